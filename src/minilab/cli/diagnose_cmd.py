"""``minilab diagnose``: what a server's own metrics say is wrong, and what to touch first."""

from __future__ import annotations

import argparse
import time
from typing import Any

from minilab.cli.output import facts, print_json
from minilab.cli.parser import Parser, positive
from minilab.facts.errors import InputError
from minilab.facts.slo_set import SLOSet
from minilab.judge.advisor.advise import Advice, advise
from minilab.judge.advisor.sources import Sources
from minilab.judge.advisor.table import alert_rules

ROLES = ("prefill", "decode", "replica")
DEFAULT_SLO = "ttft=1,itl=0.1"
FAULT, UNKNOWN = 3, 4
"""Exit statuses with --exit-code."""


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "diagnose",
        help="rank what is wrong with a server, from its metrics",
        description="Ranked suspects with the evidence read, what to do first and what not to rush "
        "into. Takes pages of /metrics (vLLM, SGLang; before and after a load, in order), JSON of "
        "Prometheus's query_range, benchmark files, run logs, start-up logs, or a report in words.",
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="of one server, in order of time")
    parser.add_argument(
        "--url",
        action="append",
        default=[],
        metavar="URL",
        help="scrape this server twice, --interval apart; several are replicas",
    )
    for role in ROLES:
        what = "a replica behind a router" if role == "replica" else f"the {role} pool"
        parser.add_argument(
            f"--{role}", nargs="+", action="extend", default=[], metavar="FILE", help=f"of {what}"
        )
    parser.add_argument(
        "--baseline",
        nargs="+",
        default=[],
        metavar="FILE",
        help="the same load without speculation, to compare with",
    )
    parser.add_argument(
        "--slo",
        default=DEFAULT_SLO,
        metavar="LIMITS",
        help=f"limits in seconds on ttft, itl, tpot (default: {DEFAULT_SLO})",
    )
    parser.add_argument(
        "--interval", type=positive, default=15.0, metavar="S", help="seconds between scrapes"
    )
    parser.add_argument("--watch", action="store_true", help="go on with --url until interrupted")
    parser.add_argument(
        "--alerts", action="store_true", help="print Prometheus alert rules instead"
    )
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help=f"exit with {FAULT} if a fault is suspected, {UNKNOWN} if nothing is known",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    slo = _limits(args.slo)
    if args.alerts:
        print(alert_rules(slo), end="")
        return 0
    if not (args.files or args.url or any(getattr(args, role) for role in ROLES)):
        raise InputError("nothing to read; give a page of /metrics, --url, or --prefill/--decode")
    if args.watch and not args.url:
        raise InputError("--watch without --url; give the address of a server to look at")
    advice = _advice(args, slo)
    _print(advice, args.json)
    while args.watch:
        advice = _advice(args, slo)
        _print(advice, args.json)
    return _status(advice) if args.exit_code else 0


def _advice(args: argparse.Namespace, slo: dict[str, float]) -> Advice:
    roles = {role: _read(getattr(args, role)) for role in ROLES if getattr(args, role)}
    if args.files:
        roles[""] = _read(args.files)
    if args.url:
        role = "replica" if len(args.url) > 1 else ""
        watched = roles.setdefault(role, Sources())
        for turn in range(2):
            if turn:
                time.sleep(args.interval)
            for url in args.url:
                watched.add(url)
    return advise(roles, slo, _read(args.baseline) if args.baseline else None)


def _read(names: list[str]) -> Sources:
    sources = Sources()
    for name in names:
        sources.add(name)
    return sources


def _limits(text: str) -> dict[str, float]:
    """Limits in seconds; classes of requests are not told apart in a server's metrics."""
    found = dict(SLOSet.parse(text).for_class("").limits)
    known = {name: value for name, value in found.items() if name in ("ttft", "itl", "tpot")}
    if not known:
        raise InputError(f"--slo {text!r}; metrics can judge ttft, itl and tpot; give one of them")
    return known


def _print(advice: Advice, as_json: bool) -> None:
    if as_json:
        print_json(advice.to_dict())
    else:
        print(as_text(advice), flush=True)


def _status(advice: Advice) -> int:
    first = advice.diagnosis.suspects[0]
    if first.kind == "fault":
        return FAULT
    return UNKNOWN if first.id == "unknown" else 0


def as_text(advice: Advice) -> str:
    """The advice for people: at most three suspects in full, the rest by name."""
    told = advice.to_dict()
    limits = ", ".join(f"{name}={value:g} s" for name, value in advice.slo.items())
    parts = [facts([("SLO", limits), *(("note", note) for note in told["notes"])])]
    for place, suspect in enumerate(told["suspects"][:3], start=1):
        where = f" at {suspect['where']}" if suspect["where"] else ""
        head = f"{place}. {suspect['id']} ({suspect['kind']}, {suspect['score']:.2f}){where}"
        lines = [
            ("  because" if at == 0 else "", text) for at, text in enumerate(suspect["evidence"])
        ]
        if suspect["id"] != "healthy":
            lines.append(("  check", suspect["check"]))
        lines += [("  first", suspect["first_action"]), ("  not yet", suspect["dont_rush"])]
        parts.append(head + "\n" + facts(lines, 11))
    rest = [suspect["id"] for suspect in told["suspects"][3:]]
    if rest:
        parts.append(f"also: {', '.join(rest)}")
    if told["unknown"]:
        parts.append(facts([("unknown", item["how"]) for item in told["unknown"]]))
    return "\n\n".join(parts)
