"""The notebooks that a capstone starts from: ``python -m minilab.lab.capstone.notebooks``.

They differ in a few texts only, so they are generated; a test compares. They carry no outputs.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from minilab.lab.capstone.directions import LETTERS, MODEL, Direction, direction
from minilab.lab.colab import first_cell, read_stamp
from minilab.lab.notebook_text import need
from minilab.lab.workdir import checkout, write_whole

NAMES = {"A": "a_pd_split", "B": "b_spec_decode", "C": "c_prefix_router", "D": "d_fp8_kv"}

BY_HAND = {
    "A": "How many prompt tokens per second does one GPU compute, and how many does your workload "
    "bring at each rate? How full is the decode GPU with the shortest answers? How long does the "
    "KV of one prompt take on the wire (chapter 2)?",
    "B": "How many tokens does one forward pass give at each acceptance, with four drafts "
    "(chapter 4)? At which batch does a decode step stop being bound by reading the weights?",
    "C": "How many tokens of KV does one replica hold, and how many documents is that? What share "
    "of a prompt is its document? How many requests ask for the most popular one (chapter 3a)?",
    "D": "How many tokens fit into the KV pool in bf16, and how many in FP8 (`minilab capacity`)? "
    "How many are in flight at each rate, if a request stays for its prompt and its answer?",
}

OWN = {
    "A": "Two queues in front of your own engine: one process computes prompts, one decodes, and "
    "`minilab load` measures both layouts. Or replay your own trace with `--trace-file` and "
    "`--prefill-instances`.",
    "B": "Your own drafter in the engine of this repository (`minilab.engine.spec`): check first "
    "that greedy output is the same token for token, then measure acceptance on your own texts and "
    "put it in the place of the map's.",
    "C": "`minilab route` in front of two to four `minilab serve` replicas, once with each policy, "
    "under your own prompts. Give each tenant a `cache_salt` and repeat.",
    "D": "`minilab serve` with an FP8 KV cache under your own context lengths, and the accuracy "
    "check of chapter 5 on your own task. Without it, half of the report is missing.",
}


def main() -> None:
    """Write all of them into ``capstones/`` of the checkout."""
    root = checkout() or Path.cwd()
    for path, text in generated(root).items():
        write_whole(path, text)
        print(path.relative_to(root).as_posix())


def generated(root: Path) -> dict[Path, str]:
    """Every notebook's file and text."""
    return {root / "capstones" / f"{NAMES[x]}.ipynb": _text(root, x) for x in LETTERS}


def _text(root: Path, letter: str) -> str:
    nbformat = need("nbformat")
    chosen = direction(letter, MODEL)
    notebook = nbformat.v4.new_notebook(
        cells=[_cell(letter, *one) for one in _cells(chosen, first_cell(read_stamp(root)))],
        metadata={
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
    )
    return str(nbformat.writes(notebook)).rstrip("\n") + "\n"


def _cell(letter: str, kind: str, name: str, source: str) -> Any:
    v4 = need("nbformat").v4
    cell = (v4.new_code_cell if kind == "code" else v4.new_markdown_cell)(source)
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    cell.id = f"{letter.lower()}-{name}-{digest}"
    return cell


def _cells(chosen: Direction, colab: str) -> list[tuple[str, str, str]]:
    letter, middle = chosen.letter, len(chosen.points) // 2
    return [
        ("markdown", "title", f"# Capstone {letter}: {chosen.title}\n\n{chosen.question}\n\n"
         "You hand in one page, `report.html`, that says for which workload the change wins, for "
         "which it loses, and how you know. About four hours; ten minutes of them are computing "
         "on a CPU. The brief and the rubric are on the course site."),
        ("code", "colab", colab),
        ("markdown", "name-text", "## 1. Your workload\n\nYour name decides its numbers: nobody "
         "has run it before, and your neighbour has another one."),
        ("code", "name", "import os\n\n"
         "os.environ.setdefault(\"MINILAB_STUDENT\", \"your name\")\n\n"
         "from minilab.facts.errors import InputError\n"
         "from minilab.lab.capstone import Workbook, direction\n\n"
         f"mine = direction(\"{letter}\")\nbook = Workbook.of(mine)\n"
         "print(\"limits:\", mine.slo)\nprint(\"sides: \", *mine.sides, sep=\"  \")\n"
         "print(\"axes:  \", *mine.axes, sep=\"  \")\n"
         "for point in mine.points:\n    stats = mine.work(point).stats()\n"
         "    prompt, output = (stats[part][\"mean\"] for part in (\"input\", \"output\"))\n"
         "    print(point, f\"mean prompt {prompt:.0f}, mean answer {output:.0f} tokens\")"),
        ("markdown", "hand", "## 2. By hand, before the run\n\n" + BY_HAND[letter] + "\n\nWrite "
         "the arithmetic here. Then file a range for each point you mean to defend; it should hold "
         "the outcome four times out of five. What is filed stays."),
        ("code", "predict", f"point = mine.points[{middle}]\ntry:\n"
         "    book.predict(\n        mine.baseline,\n        point,\n"
         "        {\"attainment\": (0.5, 1.0)},\n"
         "        why=\"a guess: put your arithmetic here\",\n    )\n"
         "except InputError as told:\n    print(told)"),
        ("markdown", "run-text", "## 3. Run\n\nEvery side serves the same requests at each point. "
         "Stop it when you like: what is done is kept."),
        ("code", "run", "book.run(progress=False)"),
        ("markdown", "own", "## 4. Your own engine or your own trace\n\nThe runs above are a "
         "simulator's. A capstone needs one part that is yours.\n\n" + OWN[letter] + "\n\nA run "
         "log of your own enters the report with `book.keep(side, point, runlog_io.read(path))`, "
         "or with `minilab report NAME=FILE ...` beside these."),
        ("markdown", "report-text", "## 5. Report\n\nYour words come first. Say what you changed, "
         "what you compared it with and why that is the strongest you could find, the mechanism "
         "behind the boundary, and what would refute you."),
        ("code", "report", "words = \"\"\"\nWhere it wins, and why.\n\nWhere it loses, and why.\n\n"
         "What would refute me.\n\"\"\"\nbook.report(words)"),
        ("markdown", "end", "## 6. Before you hand it in\n\nIs there a point where your change "
         "loses? Did the strongest baseline get the same care as your change? Did your ranges "
         "hold, and if not, what did you not know? Does every number have its control?"),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
