"""The parts of a chapter, in their order: what `make new` writes and what a test asks of each page.

    python tools/chapter_parts.py book/goodput.md ...

A part is a heading of the second level with the part's name. Where a chapter has a better heading
of its own, the comment `% part: The mechanism` on the line above it says which part begins there.
Other headings may stand in between.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

TO_BE_WRITTEN = re.compile(r"\bto be written\b", re.IGNORECASE)
FOLDED = r"\{dropdown\}|:class: dropdown"
TABLE = r"^\|(?:[^|\n]+\|){2,}|^table\("
"""A row of a Markdown table, or the call that computes one."""


class Part(NamedTuple):
    """name: its heading. holds, which: a pattern that its text must match, and that in words."""

    name: str
    holds: str = r"\S"
    which: str = "text"


PARTS = (
    Part("What you will be able to decide", r"^- ", "a list of decisions"),
    Part("Before you start", TABLE, "a table: concept, necessary or helpful, time"),
    Part("Three questions", r"(?:^: [\s\S]*?){3}", "three answers, each after `: `"),
    Part("Arithmetic by hand", FOLDED, "a folded answer"),
    Part("The mechanism"),
    Part("The code", r"\{literalinclude\}", "code shown from the package (`literalinclude`)"),
    Part("The experiment", r"\{code-cell\}", "a cell that computes"),
    Part("Regime map"),
    Part("Evidence ledger", TABLE, "a table: claim, where it holds, where it does not, control"),
    Part("What it is called in production", TABLE, "a table of names by tool"),
    Part("As an interviewer would ask", FOLDED, "a folded answer"),
    Part("Self-check", r"^- ", "a list"),
    Part("Further reading", r"^- ", "a list"),
)

_SECTION = re.compile(r"(?:^%[ ]*part:[ ]*(?P<part>.+?)[ ]*\n+)?^##[ ]+(?P<head>.+?)[ ]*$", re.M)
_FENCE = re.compile(r"^(?P<mark>```+|~~~+).*?^(?P=mark)[ ]*$", re.M | re.S)
_MARK = re.compile(r"^%[ ]*part:.*$", re.M)


def sections(page: str) -> list[tuple[str, str]]:
    """(part or heading, text) of each section of the second level; `##` inside code is no heading.

    A section without a mark of its own is named by its heading.
    """
    masked = _FENCE.sub(lambda fence: re.sub(r"[^\n]", "x", fence[0]), page)
    found = list(_SECTION.finditer(masked))
    ends = [match.start() for match in found[1:]] + [len(page)]
    return [
        (match["part"] or match["head"], page[match.end() : end].strip())
        for match, end in zip(found, ends, strict=True)
    ]


def problems(page: str, draft: bool = False) -> list[str]:
    """What a chapter lacks, a line each: parts that are missing, out of order, twice or empty.

    draft: let pass what `make new` left to be written.
    """
    found = sections(page)
    names = [name for name, _ in found]
    known = [part.name for part in PARTS]
    said = [f"part {name!r} is missing" for name in known if name not in names]
    said += [f"part {name!r} comes twice" for name in known if names.count(name) > 1]
    marks = (line.partition(":")[2].strip() for line in _MARK.findall(page))
    said += [f"`% part: {mark}` names none of the parts" for mark in marks if mark not in known]
    here = [name for name in names if name in known]
    right = sorted(here, key=known.index)
    if here != right:
        first = next(i for i, (a, b) in enumerate(zip(here, right, strict=True)) if a != b)
        said.append(f"part {here[first]!r} comes too early: {right[first]!r} goes before it")
    texts = extended(found)
    for part in PARTS:
        if part.name in texts and not re.search(part.holds, texts[part.name], re.M):
            said.append(f"part {part.name!r} holds no {part.which}")
    unwritten = [name for name, text in found if TO_BE_WRITTEN.search(text)]
    return said if draft else said + [f"part {name!r} is still to be written" for name in unwritten]


def extended(found: list[tuple[str, str]]) -> dict[str, str]:
    """The text of each part, with the sections under headings of their own that follow it."""
    known = {part.name for part in PARTS}
    texts: dict[str, str] = {}
    current = ""
    for name, text in found:
        if name in known:
            current = name
        if current:
            texts[current] = texts.get(current, "") + "\n" + text
    return texts


def main(arguments: list[str]) -> int:
    """Print what the named pages lack; 1 if anything does."""
    said = [
        f"{name}: {line}"
        for name in arguments
        for line in problems(Path(name).read_text(encoding="utf-8"))
    ]
    print("\n".join(said) if said else f"{len(arguments)} pages have all {len(PARTS)} parts")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
