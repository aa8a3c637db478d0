"""What stands in place of a live model without JavaScript: its answer to the default settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from html import escape

from minilab.judge.calculator import tables as capacity_tables
from minilab.judge.calculator.page import Page
from minilab.judge.selector.parameters import parameters, settings_of
from minilab.judge.selector.report import report
from minilab.judge.selector.tables import as_json

GIB = 2**30


def selector() -> str:
    """The bottleneck, the bars and the numbers."""
    settings = settings_of({})
    told = report(json.loads(as_json()), settings)
    rows = [
        (p["label"], f"{settings.values[p['name']]} {p['unit']}")
        for p in parameters()
        if p.get("first")
    ]
    rows += [
        ("Bottleneck", told["bottleneck"]),
        *((f"Bar: {name}", f"{value:.2f}") for name, value in told["bars"]),
        ("TTFT", f"{told['ttft'] * 1e3:.0f} ms"),
        ("ITL", f"{told['itl'] * 1e3:.1f} ms"),
        ("Goodput per GPU", f"{told['goodput_per_gpu']:.2f} requests/s"),
        ("Use", ", ".join(row[0] for row in told["stack"]) or "the defaults"),
    ]
    return _table(rows, "A model, not a benchmark.")


def advisor() -> str:
    """Nothing was pasted, so there is nothing to say but how it is done elsewhere."""
    return (
        '<p class="live-default">This reader runs in your browser and needs JavaScript. '
        "On the command line it is <code>minilab diagnose</code>.</p>"
    )


def capacity() -> str:
    """What fits, with its arithmetic."""
    asked = capacity_tables.parameters()
    told = json.loads(Page(capacity_tables.as_json(), json.dumps(asked)).report("{}"))
    rows = [(row["label"], f"{row['default']} {row['unit']}") for row in asked]
    rows += [
        ("For KV", f"{told['available'] / GIB:.2f} GiB"),
        ("KV per token", f"{told['kv_bytes_per_token']:,} B"),
        ("Tokens that fit", f"{told['tokens']:,}"),
        ("Largest batch", f"{told['batch']:,}, bound by {told['limit']}"),
        ("Longest context", f"{told['longest']:,} tokens"),
        *((f"Arithmetic: {name}", line) for name, line in told["arithmetic"]),
        *((engine, line) for engine, _, line in told["flags"]),
    ]
    return _table(rows, "An estimate, not a measurement.")


def _table(rows: Iterable[tuple[str, str]], what: str) -> str:
    cells = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value.strip())}</td></tr>'
        for name, value in rows
    )
    return (
        '<table class="live-default"><caption>The default setting, computed when this site was '
        f"built. {what}</caption><tbody>{cells}</tbody></table>"
    )


KINDS: dict[str, Callable[[], str]] = {
    "selector": selector,
    "advisor": advisor,
    "capacity": capacity,
}
"""What `{live}` takes, and what stands there without JavaScript."""
