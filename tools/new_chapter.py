"""Begin a chapter page that builds: `make new CHAPTER=name`.

The page, book/name.md, holds every part that a chapter has (tools/chapter_parts.py) with a line on
what belongs there (tools/chapter.md.template), and is added to the table of contents as the last
chapter.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from string import Template

import yaml

from chapter_parts import problems

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = Path(__file__).with_name("chapter.md.template")

NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
LONGEST = 40
PART = re.compile(r"^\s*- caption:\s*(.+?)\s*$")
PAGE = re.compile(r"^(\s*)- file:\s*(\S+)")
NOT_CHAPTERS = ("Reference", "Appendix")
"""Captions of the parts at the end of the table of contents that a chapter doesn't belong to."""


def main(arguments: list[str]) -> int:
    """Create the chapter named in ``[name]``; 2 with one line on stderr when refused."""
    try:
        (name,) = arguments or ("",)
        page = create(ROOT, name)
    except (ValueError, OSError) as error:
        print(f"new: {error}", file=sys.stderr)
        return 2
    print(f"{page} is ready and stands in _toc.yml; `make book` shows it")
    return 0


def create(root: Path, name: str) -> str:
    """Write book/``name``.md and its line in _toc.yml; return the path of the page.

    Raise ValueError when the name is bad or taken. Either both files change or none.
    """
    if not NAME.fullmatch(name) or len(name) > LONGEST:
        raise ValueError(
            f"CHAPTER={name} is not a name of at most {LONGEST} small letters, digits and single"
            " dashes that starts with a letter, such as spec-decode"
        )
    page, toc = root / "book" / f"{name}.md", root / "_toc.yml"
    if page.exists() or page.with_suffix("").exists():
        raise ValueError(f"book/{name} is already there; choose another name, or edit it")
    contents = with_page(toc.read_text(encoding="utf-8"), f"book/{name}")
    title = name.replace("-", " ").capitalize()
    text = Template(TEMPLATE.read_text(encoding="utf-8")).substitute(name=name, title=title)
    if lacking := problems(text, draft=True):
        raise ValueError(f"{TEMPLATE.name}: {lacking[0]}; bring it in line with chapter_parts.py")
    page.write_text(text, encoding="utf-8")
    try:
        temporary = toc.with_name("_toc.yml.new")
        temporary.write_text(contents, encoding="utf-8")
        os.replace(temporary, toc)
    except OSError:
        page.unlink()
        raise
    return f"book/{name}.md"


def with_page(toc: str, page: str) -> str:
    """The table of contents with ``page`` after the last chapter; its comments stay.

    The line goes to the end of the last part that holds pages of book/ and is not one of
    ``NOT_CHAPTERS``; without such a part, a new one is begun before the others.
    """
    lines = toc.splitlines()
    if any(found[2] == page for line in lines if (found := PAGE.match(line))):
        raise ValueError(f"{page} already stands in _toc.yml")
    starts = [number for number, line in enumerate(lines) if PART.match(line)]
    where, new = first_part(lines, starts), ["  - caption: Chapters", "    chapters:"]
    indent = "      "
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        caption = PART.match(lines[start])
        pages = [n for n in range(start, end) if PAGE.match(lines[n])]
        if (
            caption
            and caption[1].strip("'\"") not in NOT_CHAPTERS
            and any(" book/" in lines[n] for n in pages)
        ):
            first = PAGE.match(lines[pages[0]])
            indent = first[1] if first else indent
            where, new = end_of_entries(lines, pages[-1], end, indent), []
    lines[where:where] = [*new, f"{indent}- file: {page}"]
    changed = "\n".join(lines) + "\n"
    if pages_in(changed) != pages_in(toc) | {page}:
        raise ValueError(
            f"_toc.yml has a form this tool can't extend; add `- file: {page}` by hand"
        )
    return changed


def first_part(lines: list[str], starts: list[int]) -> int:
    """Line number before which a new part can be put."""
    return starts[0] if starts else len(lines)


def end_of_entries(lines: list[str], last: int, end: int, indent: str) -> int:
    """Line after the last entry, whose own lines (title, sections) are indented deeper than it."""
    after = last + 1
    while after < end and lines[after].startswith(indent + " "):
        after += 1
    return after


def pages_in(toc: str) -> set[str]:
    """Every page named in a table of contents."""
    found: set[str] = set()

    def walk(node: object) -> None:
        if isinstance(node, dict):
            found.update(str(node[key]) for key in ("file", "root") if key in node)
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(yaml.safe_load(toc))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
