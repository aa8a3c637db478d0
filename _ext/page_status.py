"""`{page-status}`: with which versions, hardware, date and data each page's outputs were made.

Why a directive and not a cell: a cell's output is cached with the page that holds it, while this
table is about all the other pages and has to be made anew by every build.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path

import nbformat
from docutils import nodes
from jupyter_cache import get_cache
from myst_nb.sphinx_ import NbMetadataCollector
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from build_facts import NotebookFacts, hardware, notebook_facts, read_notebook, versions

Cell = str | nodes.Node


class page_status(nodes.General, nodes.Element):  # noqa: N801 (docutils names nodes so)
    """Holds the place until all pages have been read."""


class PageStatus(SphinxDirective):
    """Put the tables here."""

    def run(self) -> list[nodes.Node]:
        """Only mark the place."""
        return [page_status()]


def table(
    head: Sequence[str], rows: Iterable[Sequence[Cell]], widths: Sequence[int]
) -> nodes.table:
    """A table node; a cell is a text or a node."""
    group = nodes.tgroup(cols=len(head))
    group.extend(nodes.colspec(colwidth=width) for width in widths)
    thead, tbody = nodes.thead(), nodes.tbody()
    thead += _row(head)
    tbody.extend(_row(row) for row in rows)
    group += [thead, tbody]
    return nodes.table("", group, classes=["status-table"])


def _row(cells: Sequence[Cell]) -> nodes.row:
    row = nodes.row()
    for cell in cells:
        paragraph = nodes.paragraph("", "", nodes.Text(cell) if isinstance(cell, str) else cell)
        row += nodes.entry("", paragraph)
    return row


def facts_of(app: Sphinx, docname: str) -> NotebookFacts | None:
    """Of the notebook that myst-nb wrote when it read the page.

    Where outputs came from the execution cache, that file lacks them: they are read in the cache.
    """
    path = Path(app.env.mystnb_config.output_folder) / f"{docname}.ipynb"
    facts = read_notebook(path)
    if facts is None or facts.cells or not NbMetadataCollector.get_exec_data(app.env, docname):
        return facts
    cache = get_cache(app.env.mystnb_config.execution_cache_path)
    try:
        found = cache.match_cache_notebook(nbformat.read(path, as_version=4))
    except KeyError:
        return facts
    return notebook_facts(cache.get_cache_bundle(found.pk).nb)


def page_rows(app: Sphinx, here: str) -> list[list[Cell]]:
    """One row for each page that shows an output."""
    rows: list[list[Cell]] = []
    for docname in sorted(app.env.found_docs):
        facts = facts_of(app, docname)
        if facts is None or facts.cells == 0:
            continue
        run = NbMetadataCollector.get_exec_data(app.env, docname)
        if run is None:
            made = f"stored in the notebook{': ' if facts.made else ''}{facts.made}"
        else:
            day = datetime.fromtimestamp(run["mtime"], timezone.utc)
            made = f"by this site's build, {day:%Y-%m-%d %H:%M} UTC"
            if run["runtime"] is not None:
                made += f", in {run['runtime']:.1f} s"
        title = app.env.titles[docname].astext()
        if docname.startswith("solutions/"):  # has the title of its lab, from which it differs
            title = f"Solution of {title}"
        uri = app.builder.get_relative_uri(here, docname)
        link = nodes.reference("", title, refuri=uri, internal=True)
        rows.append([link, made, facts.data or "none named"])
    return rows


def fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace each marked place by the tables."""
    for place in list(doctree.findall(page_status)):
        now = datetime.now(timezone.utc)
        package = os.environ.get("MINILAB_BOOK_KEY", "")
        facts: list[tuple[str, str]] = [("Built", f"{now:%Y-%m-%d %H:%M} UTC"), *versions()]
        if package:
            facts.append(("Hash of the package and its data", package[:12]))
        new: list[nodes.Node] = [table(["What", "This build"], facts + hardware(), [30, 70])]
        rows = page_rows(app, docname)
        if rows:
            new.append(table(["Page", "Outputs made", "Data"], rows, [30, 40, 30]))
        else:
            new.append(nodes.paragraph("", "No page of this build shows a computed output."))
        place.replace_self(new)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_node(page_status)
    app.add_directive("page-status", PageStatus)
    app.connect("doctree-resolved", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
