"""``minilab conform``: may a scheduler of your own be used, and could this run log be true?"""

from __future__ import annotations

import argparse
from typing import Any

from minilab.cli.output import print_json
from minilab.cli.parser import Parser, whole_number
from minilab.sim.conform import WORLDS, Report, conform
from minilab.sim.conform_load import load_class
from minilab.sim.conform_log import ENDINGS, LogReport, conform_log


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "conform",
        help="try a scheduler of your own, or a run log, on the house rules",
        description="Run your own scheduler (the interface of core.plain_scheduler) through small "
        "random worlds, against the rules of the house and the plain scheduler; or try a run log "
        "on its rules. Exit status: 0 conforms, 1 does not, 2 could not be tried. Your module is "
        "imported, so its code runs.",
    )
    parser.add_argument(
        "target", metavar="TARGET", help="FILE.py:CLASS, MODULE:CLASS, or a .jsonl or .parquet file"
    )
    parser.add_argument(
        "--worlds",
        type=whole_number(1),
        default=WORLDS,
        metavar="N",
        help="random worlds (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=whole_number(0), default=0, metavar="N", help="of the first world"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; 1 if something does not conform."""
    report: Report | LogReport
    if args.target.lower().endswith(ENDINGS):
        report = conform_log(args.target)
    else:
        report = conform(load_class(args.target), args.worlds, args.seed)
    if args.json:
        print_json(report.to_dict())
    else:
        print(report)
    return 0 if report.passed else 1
