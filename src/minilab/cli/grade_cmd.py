"""``minilab grade``: marks for a folder of notebooks."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from minilab.cli.output import check_place
from minilab.cli.parser import Parser, positive
from minilab.facts.errors import InputError


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "grade",
        help="marks for a folder of labs, each run within limits",
        description="Runs every notebook below FOLDER in a process of its own with the lab's own "
        "check cells, and writes a table: file, exercise, mark, what the check said. A second call "
        "runs only what changed. Submissions are other people's code: grade in a container, or as "
        "a user who owns nothing.",
    )
    add = parser.add_argument
    add("folder", metavar="FOLDER", help="holds STUDENT/NN_lab.ipynb, or STUDENT_anything.ipynb")
    add("-o", "--out", default="marks.csv", metavar="FILE", help="the table (default marks.csv)")
    add("--lab", metavar="NN", help="of all of them (default: told by the checks in each)")
    add("--labs", metavar="DIR", help="the course's labs (default: those of the checkout)")
    add("--cell-seconds", type=positive, default=60.0, metavar="S", help="for a cell (60)")
    add("--seconds", type=positive, default=300.0, metavar="S", help="for a notebook (300)")
    add("--memory-gib", type=positive, default=4.0, metavar="G", help="address space of each (4)")
    add("--again", action="store_true", help="run all of them again")
    add("--no-progress", action="store_true", help="no progress bar")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    check_place(args.out, (".csv",))
    from minilab.lab.exercise import lab_name
    from minilab.lab.grade import Limits, grade_folder
    from minilab.lab.notebook_text import need

    need("nbformat")
    need("IPython")
    limits = Limits(args.cell_seconds, args.seconds, int(args.memory_gib * 2**30))
    found = grade_folder(
        Path(args.folder),
        Path(args.out),
        _labs(args.labs),
        lab=lab_name(args.lab) if args.lab else None,
        limits=limits,
        again=args.again,
        progress=not args.no_progress,
    )
    files = len({mark.file for mark in found})
    noted = len({mark.file for mark in found if mark.note})
    print(f"{args.out}: {files} notebooks, {sum(m.mark for m in found)} of {len(found)} exercises "
          f"pass; {noted} to look at")  # fmt: skip
    return 0


def _labs(given: str | None) -> Path:
    from minilab.lab.workdir import checkout

    root = checkout()
    labs = Path(given) if given else root / "labs" if root else None
    if labs is None or not labs.is_dir():
        raise InputError("where are the labs? Call this in the checkout, or name them with --labs")
    return labs
