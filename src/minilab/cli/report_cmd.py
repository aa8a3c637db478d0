"""``minilab report``: one HTML file from run logs: where it wins, where it loses, how one knows."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from minilab.cli import args as options
from minilab.cli.output import check_place
from minilab.cli.parser import Parser, number, positive
from minilab.facts.atomic import whole_file
from minilab.facts.errors import InputError
from minilab.facts.slo import SLOSet


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "report",
        help="one HTML file from run logs: where it wins, where it loses",
        description="Compares run logs and benchmark files under limits, and writes one page that "
        "needs no other file. Name files to make sides: plain=plain-*.jsonl split=split-*.jsonl.",
    )
    add = parser.add_argument
    add("runs", nargs="+", metavar="[NAME=]FILE", help="as `minilab goodput` reads them")
    add("--slo", metavar="LIMITS", required=True, help=options.SLO_HELP)
    add("--baseline", metavar="NAME", help="the side to compare with (default: the first)")
    add(
        "--prediction",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="of `minilab predict`, filed before the run; may be given several times",
    )
    add("--words", metavar="FILE", help="your own text (plain), shown first")
    add("--title", default="Report", metavar="TEXT", help="of the page")
    add("--margin", type=number, default=0.05, metavar="M", help="what counts as better (0.05)")
    add("--gpus", type=positive, metavar="N", help="of a log that does not say")
    add("-o", "--out", required=True, metavar="FILE", help="the page (.html)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    check_place(args.out, (".html",))
    if not args.margin < 1:
        raise InputError(f"--margin {args.margin:g}; give a share below 1, such as 0.05")
    slos = SLOSet.parse(args.slo)
    words = _words(args.words)
    from minilab.lab.run_report import Wanted, read_runs, report_page  # draws: matplotlib

    wanted = Wanted(
        slos,
        title=args.title,
        baseline=args.baseline,
        words=words,
        predictions=tuple(args.prediction),
        margin=args.margin,
    )
    page, found = report_page(read_runs(args.runs, slos, args.gpus), wanted)
    with whole_file(args.out) as file:
        file.write(page.encode())
    counts = {v: sum(f.verdict == v for f in found) for v in ("wins", "loses")}
    print(f"{args.out}: {counts['wins']} findings say wins, {counts['loses']} say loses")
    return 0


def _words(path: str | None) -> str:
    if path is None:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"--words {path}: cannot be read ({reason}); give a text file") from error
