"""`{course-map}`: the chapters as cards, each linked as soon as its page exists.

Why: a hand-kept map goes stale. The chapters and the question each of them answers stand in
book/course.yml; whether a page is there is looked up at build time, and one that isn't is marked
"planned" and linked nowhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import yaml
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


def card(entry: dict[str, Any], found: set[str]) -> list[str]:
    """MyST lines of one card. found: the documents of this build."""
    page, lab = entry.get("page"), entry.get("lab")
    there = page in found
    number = f"{entry['number']} · " if "number" in entry else ""
    lines = [f"::::{{grid-item-card}} {number}{entry['title']}"]
    if there:
        lines += [f":link: /{page}", ":link-type: doc", ":class-card: there"]
    else:
        lines += [":class-card: planned"]
    foot = "planned" if not there else "chapter and lab" if lab in found else "chapter"
    return [*lines, "", entry["question"].strip(), "", ":::{card-footer}", foot, ":::", "::::"]


class CourseMap(SphinxDirective):
    """`{course-map} file.yml part`: the cards of one part of the map."""

    required_arguments = 2
    option_spec: ClassVar = {}

    def run(self) -> list[nodes.Node]:
        """Write the cards as MyST and let the parser do the rest."""
        relative, absolute = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(relative)
        course = yaml.safe_load(Path(absolute).read_text(encoding="utf-8"))
        if self.arguments[1] not in course:
            raise self.error(f"{relative}: no part {self.arguments[1]!r}; it has {list(course)}")
        lines = [":::::{grid} 1 1 2 2", ":gutter: 3", ":class-container: course-map", ""]
        for entry in course[self.arguments[1]]:
            lines += card(entry, self.env.found_docs)
        box = nodes.container()
        self.state.nested_parse(StringList([*lines, ":::::"], relative), self.content_offset, box)
        return box.children


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("course-map", CourseMap)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
