"""The capacity calculator with sliders: the page's parameters, the page's numbers."""

from __future__ import annotations

import html
import importlib
import json
from functools import cache
from typing import Any

from minilab.judge.calculator.page import Page
from minilab.judge.calculator.tables import as_json, parameters, tables
from minilab.lab.parameter_controls import control, rounded

GIB = 2**30


@cache
def _page() -> Page:
    return Page(as_json(), json.dumps(parameters()))


def answer(**given: Any) -> str:
    """What the widget prints: the budget line by line, then what fits; or how much is missing.

    ``given``: parameters by name; what is not given has its default.
    """
    told = json.loads(_page().report(json.dumps(given)))
    lines = [f"{name:<16}{size / GIB:>9.2f} GiB" for name, size, _ in told["terms"]]
    if not told["fits"]:
        missing = f"{-told['available'] / GIB:.2f} GiB"
        more = "take more GPUs, quantised weights, fewer batched tokens or a higher share"
        return "\n".join([*lines, "", f"{missing} a GPU are missing before any KV: {more}"])
    lines.append(f"{'for KV':<16}{told['available'] / GIB:>9.2f} GiB a GPU")
    low, high = told["range"]
    return "\n".join(
        [
            *lines,
            "",
            f"{told['kv_bytes_per_token']:,} bytes a token and GPU",
            f"{told['tokens']:,} tokens ({low:,} to {high:,})",
            f"{told['batch']:,} requests at once, bound by {told['limit']}",
            *told["notes"],
        ]
    )


def capacity_widget() -> Any:
    """Choices and sliders over ``answer`` (needs ipywidgets and a running kernel)."""
    w: Any = importlib.import_module("ipywidgets")
    controls = {row["name"]: control(w, row, row["default"], _words(row)) for row in parameters()}
    text = w.HTML()

    def update(_: object = None) -> None:
        values = {row["name"]: rounded(row, controls[row["name"]].value) for row in parameters()}
        text.value = f"<pre>{html.escape(answer(**values))}</pre>"

    for one in controls.values():
        one.observe(update, names="value")
    update()
    return w.HBox([w.VBox(list(controls.values())), text])


def _words(row: dict[str, Any]) -> list[str]:
    return row.get("choices") or sorted(tables().get(row.get("kind", ""), ()))
