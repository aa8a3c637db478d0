"""The map on the start page must know each chapter and lab that the menu has."""

from __future__ import annotations

import re

import yaml


def test_no_chapter_is_called_planned_while_it_is_there(root):
    """A chapter that the map forgets looks like one that nobody has written."""
    toc = yaml.safe_load((root / "_toc.yml").read_text())
    (course,) = [part for part in toc["parts"] if part["caption"] == "Course"]
    listed = {chapter["file"] for chapter in course["chapters"]}
    known = yaml.safe_load((root / "book" / "course.yml").read_text())
    entries = known["chapters"] + known["tools"]
    linked = {entry.get(name) for entry in entries for name in ("page", "lab")}
    wanted = {name for name in listed if re.match(r"(book|labs)/", name)}
    assert wanted - linked == set()
