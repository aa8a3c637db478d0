"""``minilab select``: for this workload, what is the bottleneck and which stack relieves it."""

from __future__ import annotations

import argparse
import math
from typing import Any

from minilab.cli.output import duration, facts, plain, print_json, share
from minilab.cli.parser import Parser, positive
from minilab.facts.errors import InputError
from minilab.judge.selector.fill_files import as_dict, fill_from
from minilab.judge.selector.filled import Filled
from minilab.judge.selector.flags import launch, refute
from minilab.judge.selector.parameters import parameters, parse
from minilab.judge.selector.report import flips, report
from minilab.judge.selector.tables import tables
from minilab.judge.selector.workload import Settings

DESCRIPTION = (
    "Bottleneck, latency, goodput and the recommended stack of a workload. A model, not a "
    "benchmark. Parameters: "
)


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "select",
        help="choose the optimisations for a workload, by arithmetic",
        description=DESCRIPTION
        + "; ".join(f"{p['name']} ({p['help'].rstrip('.')})" for p in parameters()),
    )
    parser.add_argument("words", nargs="*", metavar="NAME=VALUE", help="such as rate=5 gpu=h100")
    parser.add_argument(
        "--from",
        dest="sources",
        action="append",
        default=[],
        metavar="FILE",
        help="read settings off a page of /metrics (twice: before and during the load), a run log "
        "or a benchmark file; NAME=VALUE goes before what was read",
    )
    parser.add_argument(
        "--seconds", type=positive, metavar="S", help="that the counters of --from cover"
    )
    parser.add_argument("--no-flips", action="store_true", help="do not look for flip points")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.seconds is not None and not args.sources:
        raise InputError("--seconds goes with --from FILE; give that too")
    filled = fill_from(args.sources, args.seconds) if args.sources else None
    settings = parse(args.words, filled.values if filled else None)
    told = report(tables(), settings)
    if not told["fits"]:
        raise InputError(
            f"select: {settings.model} needs {told['weights_gb']:.0f} GB of weights, which do not "
            f"fit on {settings.gpus or 8:.0f} x {settings.gpu}; take more GPUs or a larger card"
        )
    told["flips"] = [] if args.no_flips else _flips(settings)
    told["launch"] = launch(settings, told)
    told["refute"] = refute(settings)
    told["settings"] = settings.values
    told["read"] = as_dict(filled) if filled else None
    if args.json:
        print_json(_finite(told))
    else:
        if filled:
            print(_read_text(filled, settings) + "\n")
        print(as_text(told))
    return 0


def _read_text(filled: Filled, settings: Settings) -> str:
    """What was read, what was given instead, and what could not be read."""
    lines = []
    for name, how in filled.how:
        value = filled.values[name]
        shown = value if isinstance(value, str) else _number(value)
        given = "" if settings.values[name] == value else f"; you gave {settings.values[name]}"
        lines.append((name, f"{shown}: {how}{given}"))
    parts = ["Read\n" + facts(lines, 14)]
    if filled.unread:
        parts.append("Not read\n" + facts(filled.unread, 14))
    return "\n\n".join([*parts, *(f"note: {note}" for note in filled.notes)])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else plain(value, 3)


def _flips(settings: Settings) -> list[dict[str, Any]]:
    return [
        {"parameter": name, "lever": lever, "at": value, "used": "above" if above else "below"}
        for name, lever, value, above in flips(tables(), settings)
    ]


def _finite(value: Any) -> Any:
    """The same with null where a number has no bound: JSON has no infinity."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def as_text(told: dict[str, Any]) -> str:
    """The report for people."""
    best = told["recommended"]
    head = [
        ("bottleneck", f"{told['bottleneck']}, {told['after']} after the change"),
        *(("" if at else "bars", f"{name:<18}{_bar(value)}")
          for at, (name, value) in enumerate(told["bars"])),
        ("now", _line(told)),
        ("then", _line(best)),
    ]  # fmt: skip
    use = [(lever, f"{why}\n{'':<20}costs: {price}") for lever, why, price in told["stack"]]
    parts = [facts(head, 12), "Use\n" + (facts(use, 20) or "nothing: the defaults do")]
    parts.append("Do not rush into\n" + "\n".join(_grouped(told["avoid"])))
    if told["flips"]:
        lines = [
            f"{f['parameter']} {f['used']} {plain(f['at'], 3)}: {f['lever']}" for f in told["flips"]
        ]
        parts.append("It flips\n" + "\n".join(lines))
    parts.append("\n".join(f"{name}: {line}" for name, line in told["launch"].items()))
    parts.append(f"refute it: {told['refute']}\n({told['says']}{_band(told['band'])})")
    return "\n\n".join(parts)


def _grouped(rows: list[list[str]]) -> list[str]:
    """One line per reason, the levers that it holds for before it."""
    by_reason: dict[str, list[str]] = {}
    for lever, why in rows:
        by_reason.setdefault(why, []).append(lever)
    return [f"{', '.join(levers)}: {why}" for why, levers in by_reason.items()]


def _bar(value: float) -> str:
    filled = 20 if not math.isfinite(value) else min(20, round(20 * value))
    number = "no bound" if not math.isfinite(value) else f"{value:.2f}"
    return f"{'#' * filled:<20} {number}"


def _line(told: dict[str, Any]) -> str:
    ttft = duration(told["ttft"]) if math.isfinite(told["ttft"]) else "without bound"
    return (
        f"{told['layout']}: {plain(told['goodput_per_gpu'], 3)} good requests/s per GPU "
        f"({share(told['attainment'])} good), TTFT {ttft}, ITL {duration(told['itl'])}"
    )


def _band(band: dict[str, Any] | None) -> str:
    if not band:
        return "; nobody has measured how far off it is for this model and GPU"
    words = [f"{name.upper()} x {low:.2f} to {high:.2f}" for name, (low, high) in band.items()]
    return "; four of five measurements lay within " + ", ".join(words)
