"""`{live} selector|advisor`: a model of the package, alive in the page without a server.

The page gets the package's own Python files and runs them in a worker under MicroPython. Without
JavaScript it shows what was computed when the site was built.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from minilab.judge import advisor, selector
from minilab.judge.selector.parameters import parameters, settings_of
from minilab.judge.selector.report import report
from minilab.judge.selector.tables import as_json

PACKAGES = {"minilab/judge/selector": selector, "minilab/judge/advisor": advisor}
DATA = {"advisor": "decision_table.json", "selector": "scenarios.json"}


def files() -> dict[str, str]:
    """Every file that the worker fetches, by its path below ``_static/live``."""
    found = {"py/typing.py": "Any = object\n"}
    for folder in ("minilab", "minilab/judge"):
        found[f"py/{folder}/__init__.py"] = ""
    for folder, package in PACKAGES.items():
        home = Path(str(package.__file__)).parent
        for name in ["__init__.py", *package.MANIFEST]:
            found[f"py/{folder}/{name}"] = (home / name).read_text(encoding="utf-8")
        data = DATA[folder.rpartition("/")[2]]
        found[data] = (home / data).read_text(encoding="utf-8")
    found["tables.json"] = as_json()
    found["parameters.json"] = json.dumps(parameters())
    names = sorted(name for name in found if name.startswith("py/"))
    found["manifest.json"] = json.dumps(names)
    return found


def default_html() -> str:
    """The selector's answer to its default settings, as a table that needs no JavaScript."""
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
    cells = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(str(value))}</td></tr>'
        for name, value in rows
    )
    return (
        '<table class="live-default"><caption>The default setting, computed when this site was '
        f"built. A model, not a benchmark.</caption><tbody>{cells}</tbody></table>"
    )


class Live(SphinxDirective):
    """The mount of one live model."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Raw HTML: a place for the script, and what is there without it."""
        kind = self.arguments[0]
        if kind not in DATA:
            raise self.error(f"live: {kind!r}; it is one of {', '.join(DATA)}")
        root = "../" * self.env.docname.count("/")
        inner = (
            default_html()
            if kind == "selector"
            else (
                '<p class="live-default">This reader runs in your browser and needs JavaScript. '
                "On the command line it is <code>minilab diagnose</code>.</p>"
            )
        )
        html = (
            f'<link rel="stylesheet" href="{root}_static/live/live.css">'
            f'<div class="live" data-live="{kind}" data-root="{root}_static/">{inner}</div>'
            # From a file:// address a browser starts no worker; the default then stays.
            '<script>if (location.protocol !== "file:") '
            f'import(new URL("{root}_static/live/live.mjs", document.baseURI));</script>'
        )
        return [nodes.raw("", html, format="html")]


def write_files(app: Sphinx, exception: Exception | None) -> None:
    """Put the files beside the script, once the site is written."""
    if exception is not None or app.builder.format != "html":
        return
    for name, text in files().items():
        path = Path(app.outdir) / "_static" / "live" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("live", Live)
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
