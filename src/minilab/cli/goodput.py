"""``minilab goodput``: judge a run, whoever measured it, by limits on latency."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from minilab.cli import args as options
from minilab.cli.output import duration, facts, plain, print_json, quantile_rows, share, table, tell
from minilab.cli.parser import Parser, number, positive, whole_number, whole_numbers
from minilab.facts import readers
from minilab.facts.runlog import RunLog
from minilab.facts.slo import (
    METRICS,
    Goodput,
    SLOSet,
    attainment_ci,
    by_prompt_length,
    cost_per_good_request,
    goodput,
    summary,
)


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "goodput",
        help="judge a run by limits on latency",
        description="Requests of a run that meet their limits: share, rate, rate per GPU.",
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a run log (.jsonl or .parquet), or a result file with a row per request of vLLM, "
        "SGLang, aiperf, guidellm or inference-perf",
    )
    parser.add_argument(
        "--format",
        metavar="NAME",
        help=f"{', '.join(readers.FORMATS)} (default: told by the content)",
    )
    parser.add_argument(
        "--part", type=whole_number(1), metavar="N", help="which run of a file that holds several"
    )
    parser.add_argument("--slo", metavar="LIMITS", required=True, help=options.SLO_HELP)
    parser.add_argument("--gpus", type=positive, metavar="N", help="if the log does not say")
    parser.add_argument(
        "--buckets",
        type=whole_numbers(1),
        metavar="N,N,...",
        help="prompt lengths between which to tell requests apart",
    )
    parser.add_argument("--price", type=number, metavar="P", help="price of one GPU for one hour")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    slos = SLOSet.parse(args.slo)
    log = readers.read(args.file, args.format, args.part)
    if not isinstance(data := log.meta.get("data"), dict):
        data = {"name": Path(args.file).name, "kind": "unknown"}
    if data.get("kind") == "stand-in":
        tell(f"{args.file}: of a stand-in for {data.get('name')}, not the trace")
    judged = goodput(log, slos, _gpus(args.gpus, log))
    result = {**_result(log, slos, judged, args), "data": data}
    if args.json:
        print_json(result)
    else:
        print(as_text(result))
    return 0


def _gpus(given: float | None, log: RunLog) -> float:
    """GPUs of the option, else of the log, else 1."""
    if given is not None:
        return given
    said = log.meta.get("gpus")
    if isinstance(said, (int, float)) and not isinstance(said, bool) and 0 < said < math.inf:
        return said
    return 1


def _result(log: RunLog, slos: SLOSet, judged: Goodput, args: argparse.Namespace) -> dict[str, Any]:
    interval = None
    if judged.good is not None:
        _, *interval = attainment_ci(judged.good, judged.total)
    cost = None if args.price is None else cost_per_good_request(judged, args.price)
    return {
        "slo": str(slos),
        **judged.as_dict(),
        "attainment_95": interval,
        "price_per_gpu_hour": args.price,
        "cost_per_good_request": cost,
        **summary(log),
        "buckets": None if args.buckets is None else by_prompt_length(log, args.buckets, slos),
        "versions": log.meta.get("versions"),
        "measured_by": _measured_by(log),
    }


def _measured_by(log: RunLog) -> dict[str, Any] | None:
    """What an imported file says of itself: tool, what its words mean, what it lacks, arrivals."""
    names = ("tool", "version", "definitions", "missing", "arrivals")
    told = {name: log.meta.get(name) for name in names}
    known = isinstance(told["tool"], str) and isinstance(told["arrivals"], dict)
    return told if known else None


def as_text(result: dict[str, Any]) -> str:
    """The result for people."""
    data = result["data"]
    head = [
        ("log", f"{data.get('name')} ({data.get('kind')})"),
        ("requests", f"{result['total']}: {result['completed']} completed"),
        ("SLO", f"{result['slo']} s"),
    ]
    if result["measured_by"] is not None:
        head[1:1] = _client(result["measured_by"])
    if result["attainment"] is None:
        head.append(("", f"unavailable: {result['reason']}"))
    else:
        low, high = result["attainment_95"]
        spread = f"{share(low)} to {share(high)}, 95 % if requests were independent"
        head.append(("attainment", f"{share(result['attainment'])} are good ({spread})"))
        rate, each = plain(result["goodput"]), plain(result["goodput_per_gpu"])
        head.append(("goodput", f"{rate} good requests/s, {each} per GPU ({result['gpus']:g})"))
    if result["price_per_gpu_hour"] is not None:
        price = plain(result["cost_per_good_request"])
        head.append(("cost", f"{price} per good request at {result['price_per_gpu_hour']:g}/h"))
    head += [("note", f"no request is of class {name!r}") for name in result["unused_classes"]]
    parts = [facts(head, 12), table(quantile_rows(result, [*METRICS, "gap"]))]
    for what, key in (("class", "by_class"), ("tenant", "by_tenant")):
        if len(result[key]) > 1:
            parts.append(_shares(what, result[key]))
    if result["buckets"]:
        parts.append(_buckets(result["buckets"]))
    return "\n\n".join(parts)


def _client(told: dict[str, Any]) -> list[tuple[str, str]]:
    """Who measured, and the arrivals as they were: a client may send at another rate than asked."""
    asked, came = (told["arrivals"].get(name) for name in ("requested", "achieved"))
    rates = [
        f"{plain(rate)} requests/s {what}" if isinstance(rate, float) else f"{what}: unknown"
        for rate, what in ((asked, "asked for"), (came, "achieved"))
    ]
    version = f" {told['version']}" if isinstance(told["version"], str) else ""
    return [("measured by", f"{told['tool']}{version}"), ("arrivals", ", ".join(rates))]


def _shares(what: str, parts: dict[str, Any]) -> str:
    rows = [[what, "requests", "good", "goodput/s"]]
    for name, part in parts.items():
        good, rate = share(part["attainment"]), plain(part["goodput"])
        rows.append([name or "(none)", str(part["total"]), good, rate])
    return table(rows)


def _buckets(buckets: list[dict[str, Any]]) -> str:
    rows = [["prompt tokens", "requests", "good", "ttft p50", "p99", "itl p50", "p99"]]
    for row in buckets:
        span = f"{row['from']} up" if row["to"] is None else f"{row['from']} to {row['to'] - 1}"
        times = [(row[name] or {}).get(q) for name in ("ttft", "itl") for q in ("p50", "p99")]
        good = share(row["attainment"])
        rows.append([span, str(row["n"]), good, *(duration(t) for t in times)])
    return table(rows)
