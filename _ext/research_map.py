"""`{research-line}`, `{research-core}` and `{research-rows}`: the research map, from its data file.

Why: a hand-kept map of thirty works and a hundred links goes stale. A page of the site that does
not exist yet is left out of the links, and comes in by itself once it is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from minilab.judge.advisor.table import rows
from minilab.lab.research import Entry, Product, core, entries_for, entries_of, lines
from page_status import Cell, table

WORDS = {"paper": "paper", "docs": "documentation", "code": "code and its README"}


def here(entry: Entry, found: set[str]) -> list[str]:
    """Links to pages and their sections, one text per page. found: the documents of this build."""
    by_page: dict[str, list[str]] = {}
    for place in entry.here:
        page, _, section = place.partition("#")
        if page in found:
            by_page.setdefault(page, []).extend([section] if section else [])
    texts = []
    for page, sections in by_page.items():
        links = ", ".join(f"[](/{page}.md#{section})" for section in sections)
        texts.append(f"[](/{page}.md){': ' if links else ''}{links}")
    return texts


def product(one: Product) -> str:
    """A product with its link, if it has one, and the version looked at."""
    name = f"[{one.name}]({one.url})" if one.url else one.name
    return f"{name} (looked at: {one.version})"


def entry_lines(entry: Entry, found: set[str]) -> list[str]:
    """MyST lines of one work, without its title."""
    core_words = f" **Core reading {entry.order}, {entry.minutes} minutes.**" if entry.order else ""
    code = ", ".join(f"`{path.removeprefix('src/')}`" for path in entry.code)
    answers = [
        ("Which bottleneck does it remove?", entry.bottleneck),
        ("What new cost does it bring?", entry.cost),
        ("Which layer is it?", entry.layer),
        ("In this course", ". ".join([*here(entry, found), f"Code: {code}"])),
        ("In production", "; ".join(product(one) for one in entry.production)),
    ]
    text = [f"{{cite:t}}`{entry.bib}`, {WORDS[entry.kind]}, {entry.by}.{core_words}", ""]
    text += [entry.main, ""]
    for question, answer in answers:
        text += [question, f": {answer}", ""]
    return text


class ResearchLine(SphinxDirective):
    """`{research-line} key`: what to grasp of a thread, then a section for each of its works."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Sections that stand in the page's own table of contents."""
        named = [line for line in lines() if line.key == self.arguments[0]]
        if not named:
            keys = ", ".join(line.key for line in lines())
            raise self.error(f"research-line: {self.arguments[0]!r}; it is one of {keys}")
        found: list[nodes.Node] = [nodes.paragraph("", named[0].grasp)]
        return found + [self._section(entry) for entry in entries_of(named[0].key)]

    def _section(self, entry: Entry) -> nodes.section:
        section = nodes.section(ids=[entry.id], names=[entry.id])
        section += nodes.title("", entry.title)
        text = StringList(entry_lines(entry, self.env.found_docs), self.env.docname)
        self.state.nested_parse(text, self.content_offset, section)
        self.state.document.note_explicit_target(section)
        return section


def links(entries: Sequence[Entry]) -> nodes.inline:
    """Works as links to their sections of this page."""
    found = nodes.inline()
    for at, entry in enumerate(entries):
        if at:
            found += nodes.Text(", ")
        found += nodes.reference("", entry.title, refid=entry.id, internal=True)
    return found


class ResearchCore(SphinxDirective):
    """The core reading in its order, with minutes and their sum."""

    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """One table."""
        title = {line.key: line.title for line in lines()}
        body: list[list[Cell]] = [
            [str(entry.order), links([entry]), title[entry.line], str(entry.minutes)]
            for entry in core()
        ]
        body.append(["", "All of them", "", str(sum(entry.minutes for entry in core()))])
        return [table(["Order", "Work", "Thread", "Minutes"], body, [10, 30, 45, 15])]


class ResearchRows(SphinxDirective):
    """What is seen, and what to read then."""

    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """One table; a row for which no work helps is left out."""
        body: list[list[Cell]] = [
            [row.symptom, links(entries_for(row.key))] for row in rows() if entries_for(row.key)
        ]
        return [table(["What you see", "What to read"], body, [55, 45])]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("research-line", ResearchLine)
    app.add_directive("research-core", ResearchCore)
    app.add_directive("research-rows", ResearchRows)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
