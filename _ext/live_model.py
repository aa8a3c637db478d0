"""`{live} selector|advisor|capacity`: a model of the package, alive in the page without a server.

The page gets the package's own Python files and runs them in a worker under MicroPython. Without
JavaScript it shows what was computed when the site was built (``live_defaults``).
"""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import live_defaults
from minilab.judge import advisor, calculator, selector
from minilab.judge.calculator import tables as capacity_tables
from minilab.judge.selector.parameters import parameters
from minilab.judge.selector.tables import as_json

KINDS: dict[str, list[ModuleType]] = {
    "selector": [selector],
    "fill": [selector, advisor],
    "advisor": [advisor],
    "capacity": [calculator],
}
"""What the worker is asked -> the packages whose files it runs."""


def files() -> dict[str, str]:
    """Every file that the worker fetches, by its path below ``_static/live``."""
    found = {"py/typing.py": "Any = object\n"}
    for folder in ("minilab", "minilab/judge"):
        found[f"py/{folder}/__init__.py"] = ""
    common = sorted(found)
    needed = {}
    for kind, packages in KINDS.items():
        own = {name: text for package in packages for name, text in _sources(package).items()}
        needed[kind] = [*common, *own]
        found.update(own)
    found["manifest.json"] = json.dumps(needed)
    found["decision_table.json"] = _beside(advisor, "decision_table.json")
    found["scenarios.json"] = _beside(selector, "scenarios.json")
    found["tables.json"] = as_json()
    found["parameters.json"] = json.dumps(parameters())
    found["capacity_tables.json"] = capacity_tables.as_json()
    found["capacity_parameters.json"] = json.dumps(capacity_tables.parameters())
    return found


def _sources(package: ModuleType) -> dict[str, str]:
    folder = package.__name__.replace(".", "/")
    names = ["__init__.py", *package.MANIFEST]
    return {f"py/{folder}/{name}": _beside(package, name) for name in names}


def _beside(package: ModuleType, name: str) -> str:
    return (Path(str(package.__file__)).parent / name).read_text(encoding="utf-8")


class Live(SphinxDirective):
    """The mount of one live model."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Raw HTML: a place for the script, and what is there without it."""
        kind = self.arguments[0]
        if kind not in live_defaults.KINDS:
            raise self.error(f"live: {kind!r}; it is one of {', '.join(live_defaults.KINDS)}")
        root = "../" * self.env.docname.count("/")
        inner = live_defaults.KINDS[kind]()
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
