"""``minilab predict``: file what a run will show, before it is made."""

from __future__ import annotations

import argparse
from typing import Any

from minilab.cli import args as options
from minilab.cli.output import check_place, table, tell_stand_in
from minilab.cli.parser import Parser, number
from minilab.cli.sim import check_classes
from minilab.facts.errors import InputError
from minilab.facts.slo import SLOSet
from minilab.judge.filed_prediction import FiledPrediction, now
from minilab.judge.predicting import expected, selected, simulated

BY = {"simulator": simulated, "selector": selected}
NOBODY = "nobody"


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "predict",
        help="file a prediction before a run, for `minilab report` to hold against it",
        description="Predicts a run of these options, and files it with the workload's hash and "
        "the time. Add your own ranges with --expect; yours take the place of the model's.",
    )
    options.add_experiment(parser)
    group = parser.add_argument_group("what is said")
    add = group.add_argument
    add("--slo", metavar="LIMITS", required=True, help=options.SLO_HELP)
    add("--by", default="simulator", metavar="WHO", help=f"{', '.join(BY)} or {NOBODY} but you")
    add(
        "--expect",
        action="append",
        default=[],
        metavar="NAME=LOW..HIGH",
        help="a range of your own: ttft_p99=0.2..0.5 (s), attainment=0.8..0.95, ...",
    )
    add("--sure", type=number, default=0.8, metavar="P", help="how often a range holds (0.8)")
    add("--why", default="", metavar="TEXT", help="your reason, in a sentence")
    add("-o", "--out", required=True, metavar="FILE", help="where it is filed (.json)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    check_place(args.out, (".json",))
    if not 0 < args.sure < 1:
        raise InputError(f"--sure {args.sure:g}; give a share between 0 and 1, such as 0.8")
    if args.by not in (*BY, NOBODY):
        raise InputError(f"--by {args.by}; give {', '.join(BY)} or {NOBODY}")
    slos = SLOSet.parse(args.slo)
    experiment = options.experiment(args).check()
    work = experiment.workload.load()
    tell_stand_in(work)
    check_classes(slos, work)
    said = expected(args.expect, BY[args.by](experiment, work, slos) if args.by in BY else {})
    if not said:
        raise InputError("nothing is predicted; give --expect ttft_p99=0.2..0.5, or --by simulator")
    settings = experiment.to_dict()
    prediction = FiledPrediction(
        filed=now(),
        workload_hash=work.hash(),
        workload=settings.pop("workload"),
        settings=settings,
        slo=str(slos),
        said=said,
        coverage=args.sure,
        why=args.why,
        requests=len(work.requests),
    )
    prediction.write(args.out)
    rows = [["number", "said", "low", "high", "by"]]
    for name, one in said.items():
        ends = ["-" if end is None else f"{end:.4g}" for end in (one.low, one.high)]
        rows.append([name, f"{one.value:.4g}", *ends, one.by])
    print(table(rows))
    print(f"filed in {args.out} at {prediction.filed}, of workload {prediction.workload_hash[:12]}")
    return 0
