"""``minilab sweep``: many simulated runs that differ in some options, one row each."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from minilab.cli import args as options
from minilab.cli.output import check_place, duration, plain, print_json, share, table, tell_stand_in
from minilab.cli.parser import Parser, whole_number, whole_numbers
from minilab.cli.sim import check_classes
from minilab.facts.confidence import mean_ci
from minilab.facts.errors import InputError
from minilab.facts.user_input import unknown_name
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment
from minilab.sim.repeats import repeats
from minilab.sim.sweep_store import write_csv
from minilab.sim.sweep_tasks import Task, run_all

TABLES = (".csv", ".jsonl")
SWITCH = {"on": True, "off": False}
SHOWN = {"attainment": share, "goodput_per_gpu": plain, "ttft_p99": duration, "itl_p99": duration}

Row = dict[str, Any]
Axes = dict[str, list[Any]]


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "sweep",
        help="simulate every combination of some options",
        description="One row for every combination of the --over values, and for every seed.",
    )
    options.add_experiment(parser)
    axes = parser.add_argument_group("what varies, and what comes out")
    axes.add_argument(
        "--over",
        action="append",
        required=True,
        metavar="NAME=V,V,...",
        help="an option above and its values; may be given several times",
    )
    axes.add_argument(
        "--seeds",
        type=whole_numbers(0),
        metavar="N,N,...",
        help="repeat each: other random numbers, or another stretch of the trace",
    )
    axes.add_argument("--slo", metavar="LIMITS", help=options.SLO_HELP)
    axes.add_argument("--jobs", type=whole_number(-1), default=1, metavar="N", help="processes")
    axes.add_argument(
        "--out", metavar="FILE", help="keep rows (.jsonl; goes on after a kill) or a table (.csv)"
    )
    axes.add_argument("--no-progress", action="store_true", help="no progress bar")
    axes.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=lambda args: run(args, parser))


def run(args: argparse.Namespace, parser: Parser) -> int:
    """Run the command; ``parser`` knows how each option's value is read."""
    slos = options.slo_set(args.slo)
    check_place(args.out, TABLES)
    axes = read_axes(args.over, parser)
    points = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    experiments = [_experiment(args, point) for point in points]
    for experiment in {(e.workload.trace, e.workload.file): e for e in experiments}.values():
        work = experiment.workload.load()
        tell_stand_in(work)
        check_classes(slos, work)
    seeds = args.seeds or [experiments[0].workload.seed]
    text = None if slos is None else str(slos)
    tasks = [Task(repeat, text) for e in experiments for repeat in repeats(e, seeds)]
    store = Path(args.out).with_suffix(".jsonl") if args.out else None
    found = run_all(tasks, jobs=args.jobs, out=store, progress=not args.no_progress)
    labels = [{**point, "seed": seed} for point in points for seed in seeds]
    rows = [{**label, **row} for label, row in zip(labels, found, strict=True)]
    if args.out and Path(args.out).suffix == ".csv":
        write_csv(Path(args.out), rows)
    means = [_mean(rows[k : k + len(seeds)]) for k in range(0, len(rows), len(seeds))]
    points = [{**point, **mean} for point, mean in zip(points, means, strict=True)]
    if args.json:
        print_json({"over": axes, "seeds": seeds, "slo": text, "points": points, "rows": rows})
    else:
        print(as_text(list(axes), points))
    return 0


def _experiment(args: argparse.Namespace, point: Row) -> Experiment:
    return options.experiment(argparse.Namespace(**{**vars(args), **point})).check()


def read_axes(over: list[str], parser: Parser) -> Axes:
    """The values of each ``--over``, read as the option of that name reads them.

    Raises:
        InputError: no such option, one given twice, or a value that it refuses.
    """
    known = {
        name.removeprefix("--").replace("-", "_"): action
        for action in parser._actions
        for name in action.option_strings
        if action.dest in PdExperiment.__dataclass_fields__ or _of_workload(action.dest)
    }
    known["prefix_cache"] = known.pop("no_prefix_cache")
    axes: Axes = {}
    for text in over:
        name, equals, values = text.partition("=")
        field = name.strip().lstrip("-").replace("-", "_")
        if not equals or not values.strip():
            raise InputError(f"--over {text}: no values; write it as rate=1,2,4")
        if field == "seed":
            raise InputError(f"--over {text}: use --seeds {values}, which also varies a trace")
        if field not in known:
            raise InputError(f"--over {text}: {unknown_name('option', field, known)}")
        if known[field].dest in axes:
            raise InputError(f"--over {text}: {name} was given before; give all values at once")
        reader: Any = _switch if field == "prefix_cache" else known[field].type or str
        axes[known[field].dest] = [_value(text, reader, part) for part in values.split(",")]
    return axes


def _of_workload(field: str) -> bool:
    return field in options.WORKLOAD_FIELDS


def _value(text: str, reader: Callable[[str], Any], part: str) -> Any:
    try:
        return reader(part.strip())
    except argparse.ArgumentTypeError as error:
        raise InputError(f"--over {text}: {error}") from None


def _switch(text: str) -> bool:
    if text not in SWITCH:
        raise argparse.ArgumentTypeError(f"{text!r}; give on or off")
    return SWITCH[text]


def _mean(rows: list[Row]) -> Row:
    """Means over the seeds, with 95 % t intervals; None if a seed cannot tell.

    An interval is cut to what the number can be: none is below 0, no share above 1.
    """
    mean: Row = {}
    for name in SHOWN:
        values = [row[name] for row in rows]
        told = None if None in values else mean_ci(values)
        mean[name] = None if told is None else told.value
        mean[f"{name}_95"] = None
        if told is not None and told.low is not None and told.high is not None:
            top = 1.0 if name == "attainment" else math.inf
            mean[f"{name}_95"] = [max(0.0, told.low), min(top, told.high)]
    return mean


def as_text(names: list[str], points: list[Row]) -> str:
    """A row of text for each combination."""
    lines = [[*names, *(name.replace("_", " ") for name in SHOWN)]]
    for point in points:
        cells = []
        for name, show in SHOWN.items():
            low, high = point[f"{name}_95"] or (None, None)
            spread = "" if low is None else f" ({show(low)} to {show(high)})"
            cells.append(show(point[name]) + spread)
        lines.append([*(_shown(point[name]) for name in names), *cells])
    return table(lines, left=len(names))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
