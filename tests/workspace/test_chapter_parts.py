"""Each chapter of the course has every part, in order: tools/chapter_parts.py has the list."""

from __future__ import annotations

import re

import pytest
import yaml

import chapter_parts
from chapter_parts import PARTS, problems, sections

NAMES = [part.name for part in PARTS]
PAGE = """\
# Tiers

Text before any part, with a ## that is no heading.

## What you will be able to decide

- Whether a tier pays.

## Before you start

| concept | needed | time |
|---|---|---|
| blocks | necessary | 5 min |

## Three questions

Which bottleneck does it remove?
: The first.

What new cost does it bring?
: The second.

Which layer is it?
: The third.

## Arithmetic by hand

How long?

:::{dropdown} Answer
4.8 ms.
:::

## The mechanism

A drawing.

## The code

```{literalinclude} ../src/minilab/facts/request.py
```

% part: The experiment

## Two tiers, one trace

```{code-cell} ipython3
# a comment
## The mechanism
run()
```

## A second look

More.

## Regime map

Here it wins.

## Evidence ledger

| claim | where it holds | where it does not |
|---|---|---|
| it pays | long prompts | short ones |

## What it is called in production

| here | vLLM |
|---|---|
| tier | `--x` |

## As an interviewer would ask

It depends on what?

:::{dropdown} Answer
On the prompts.
:::

## Self-check

- I can say when.

## Further reading

- A paper.
"""


def chapters(root) -> list[str]:
    """The pages that the course map counts as chapters."""
    course = yaml.safe_load((root / "book" / "course.yml").read_text(encoding="utf-8"))
    return [entry["page"] for entry in course["chapters"] if "page" in entry]


def test_every_chapter_has_all_its_parts(root):
    """A chapter that leaves out its ledger or the losing case is praise and not a course."""
    pages = chapters(root)
    lacking = {
        page: found
        for page in pages
        if (found := problems((root / f"{page}.md").read_text(encoding="utf-8")))
    }
    assert pages
    assert lacking == {}


def test_a_whole_chapter_passes():
    """Own headings may stand between the parts, or in their place with a mark; code has none."""
    assert problems(PAGE) == []
    assert [name for name, _ in sections(PAGE)][5:8] == [
        "The code",
        "The experiment",
        "A second look",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_omission_is_caught(name):
    """Each part in turn is taken out, heading and text."""
    start = re.search(rf"^(?:% part: {name}\n\n## .*|## {name})$", PAGE, re.MULTILINE)
    assert start is not None
    rest = PAGE[start.end() :]
    end = re.search(r"^(?:% part: |## (?!The mechanism\nrun))", rest, re.MULTILINE)
    short = PAGE[: start.start()] + (rest[end.start() :] if end else "")
    assert f"part {name!r} is missing" in problems(short)


@pytest.mark.parametrize("part", [part for part in PARTS if part.holds != r"\S"])
def test_a_part_without_its_matter_is_caught(part):
    """A heading over a sentence of good intent is not an answer, a table or a computation."""
    emptied = "\n".join(
        line if line.startswith(("#", "%")) else re.sub(r"^[-|:`].*", "words", line)
        for line in PAGE.splitlines()
    )
    assert f"part {part.name!r} holds no {part.which}" in problems(emptied)


def test_order_twins_and_slips_are_told():
    """What was moved, doubled or misspelt is said by name, so that it is quickly mended."""
    code, experiment = PAGE.index("## The code"), PAGE.index("% part:")
    regime = PAGE.index("## Regime map")
    moved = PAGE[:code] + PAGE[experiment:regime] + PAGE[code:experiment] + PAGE[regime:]
    assert problems(moved) == ["part 'The experiment' comes too early: 'The code' goes before it"]
    assert "part 'Self-check' comes twice" in problems(PAGE + "\n## Self-check\n\n- Again.\n")
    slip = problems(PAGE.replace("% part: The experiment", "% part: The experimnt"))
    assert slip == [
        "part 'The experiment' is missing",
        "`% part: The experimnt` names none of the parts",
    ]


def test_a_scaffold_is_no_chapter(root):
    """What `make new` wrote must not be taken for a finished page."""
    template = (root / "tools" / "chapter.md.template").read_text(encoding="utf-8")
    assert problems(template, draft=True) == []
    assert len(problems(template)) == len(PARTS) - 1  # the code is shown from the package already


def test_the_command_names_page_and_part(tmp_path, capsys):
    """The tool is for writers; they run it on a page."""
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text(PAGE)
    bad.write_text(PAGE.replace("## Regime map", "## Map"))
    assert chapter_parts.main([str(good)]) == 0
    assert chapter_parts.main([str(good), str(bad)]) == 1
    assert f"{bad}: part 'Regime map' is missing" in capsys.readouterr().out
