"""``minilab place``: which pools and which parallelism serve the most requests per GPU in time."""

from __future__ import annotations

import argparse
from typing import Any

from minilab.cli import args as options
from minilab.cli.output import plain, print_json, table, tell_stand_in
from minilab.cli.parser import Parser, positive, whole_number, whole_numbers
from minilab.cli.sim import check_classes
from minilab.facts.errors import InputError
from minilab.sim.placement import Placed, placements, search


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "place",
        help="search the pools with the best goodput per GPU",
        description="For every placement on so many GPUs, split or whole, bisect for the highest "
        "rate that meets the SLO.",
    )
    options.add_experiment(parser)
    group = parser.add_argument_group("the search")
    add = group.add_argument
    add("--gpus", type=whole_number(1), default=4, metavar="N", help="at most so many (default 4)")
    add("--tps", type=whole_numbers(1), default=[1, 2], metavar="N,N,...",
        help="GPUs per instance to try (default 1,2)")  # fmt: skip
    add("--slo", metavar="LIMITS", required=True, help=options.SLO_HELP)
    add("--target", type=positive, default=0.9, metavar="S", help="share of good requests (0.9)")
    add("--min-rate", type=positive, default=0.05, metavar="R", help="requests/s per GPU (0.05)")
    add("--max-rate", type=positive, default=50.0, metavar="R", help="requests/s per GPU (50)")
    add("--seeds", type=whole_numbers(0), default=[0], metavar="N,N,...", help="repetitions")
    add("--tolerance", type=positive, default=0.05, metavar="T", help="of a rate (default 0.05)")
    add("--out", metavar="FILE", help="keep what was tried (.jsonl); goes on after a kill")
    add("--no-progress", action="store_true", help="no progress bar")
    add("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    slos = options.slo_set(args.slo)
    assert slos is not None, "the parser requires it"
    if args.rate is not None:
        raise InputError("--rate is what the search varies; use --min-rate and --max-rate")
    base = options.experiment(args)
    work = base.workload.load()
    tell_stand_in(work)
    check_classes(slos, work)
    found = search(
        base,
        placements(args.gpus, args.tps),
        slos,
        target=args.target,
        lo_per_gpu=args.min_rate,
        hi_per_gpu=args.max_rate,
        seeds=args.seeds,
        rel_tol=args.tolerance,
        out=args.out,
        progress=not args.no_progress,
    )
    if args.json:
        print_json({"slo": str(slos), "target": args.target, "rows": [p.row() for p in found]})
    else:
        print(as_text(found))
    return 0


def as_text(found: list[Placed]) -> str:
    """A row of text for each placement, best first."""
    lines = [["placement", "GPUs", "requests/s per GPU", ""]]
    for placed in found:
        rate = plain(placed.rate_per_gpu) if placed.result is not None else "n/a"
        note = placed.reason or (placed.result.reason if placed.result is not None else "")
        lines.append([str(placed.placement), str(placed.placement.gpus), rate, note])
    return table(lines)
