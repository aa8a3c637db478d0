"""``minilab sim``: one simulated run, and what came of it."""

from __future__ import annotations

import argparse
from typing import Any

from minilab.cli import args as options
from minilab.cli.output import check_place, print_json, tell_stand_in
from minilab.cli.parser import Parser
from minilab.cli.sim_report import as_text, report
from minilab.facts import runlog_io
from minilab.facts.errors import InputError
from minilab.facts.runlog import RunLog
from minilab.facts.slo import SLOSet
from minilab.facts.workload import Workload
from minilab.judge.filed_prediction import now
from minilab.sim.experiment import Experiment

RUNLOGS = (".jsonl", ".parquet")
PICTURES = (".png", ".svg", ".pdf")


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "sim",
        help="simulate a trace on a cluster",
        description="Replay a trace, or synthetic requests, on simulated instances.",
    )
    options.add_experiment(parser)
    group = parser.add_argument_group("what comes out")
    group.add_argument("--slo", metavar="LIMITS", help=options.SLO_HELP)
    group.add_argument("--json", action="store_true", help="print one JSON object")
    group.add_argument("--out", metavar="RUNLOG", help="write the run log (.jsonl or .parquet)")
    group.add_argument("--plot", metavar="FILE", help="draw the run (.png, .svg or .pdf)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    slos = options.slo_set(args.slo)
    check_place(args.out, RUNLOGS)
    check_place(args.plot, PICTURES)
    experiment = options.experiment(args).check()
    work = experiment.workload.load()
    tell_stand_in(work)
    check_classes(slos, work)
    started = now()
    log = experiment.run(work)
    log.meta["started"] = started
    _check_served(experiment, work, log)
    result = report(experiment, work, log, slos)
    if args.out:
        runlog_io.write(log, args.out)
    if args.plot:
        from minilab.cli.plot import write  # matplotlib takes a second to import

        write(log, result, args.plot)
    if args.json:
        print_json(result)
    else:
        print(as_text(experiment, result))
    return 0


def check_classes(slos: SLOSet | None, work: Workload) -> None:
    """Refuse limits that leave a class of requests without any, before the run."""
    if slos is not None:
        for slo_class in sorted({request.slo_class for request in work.requests}):
            slos.for_class(slo_class)


def _check_served(experiment: Experiment, work: Workload, log: RunLog) -> None:
    """A run in which no request fits the pool says nothing about anything."""
    if not (log.requests["status"] == "rejected").all():
        return
    blocks, size = log.meta["num_blocks"], experiment.block_size
    # The last token that comes out is never written to the cache.
    least = min(request.prompt_tokens + request.output_tokens - 1 for request in work.requests)
    raise InputError(
        f"all {len(log)} requests are larger than the KV pool: the smallest needs {least} tokens, "
        f"an instance holds {blocks * size} ({blocks} blocks of {size}); raise --kv-blocks or "
        "--tp, or take a larger GPU"
    )
