"""``minilab load``: send a workload to a real server, and judge what came back."""

from __future__ import annotations

import argparse
import importlib.util
import os
from typing import Any

from minilab.cli import args as options
from minilab.cli.output import (
    check_place,
    duration,
    facts,
    plain,
    print_json,
    quantile_rows,
    share,
    table,
    tell,
    tell_stand_in,
)
from minilab.cli.parser import Parser, positive, whole_number
from minilab.cli.sim import RUNLOGS, check_classes
from minilab.facts import runlog_io
from minilab.facts.arrivals import ARRIVALS
from minilab.facts.errors import InputError
from minilab.facts.runlog import STATUSES, RunLog
from minilab.facts.slo import METRICS, SLOSet, goodput, summary
from minilab.facts.traces import names
from minilab.facts.workload import Workload
from minilab.judge.filed_prediction import now

SEEN_BY_CLIENT = [name for name in METRICS if name != "queue"]


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "load",
        help="send a workload to a server and measure",
        description="Open-loop load on any OpenAI-compatible server: requests go out when they "
        "are due, whatever became of the earlier ones. Ctrl-C ends the run and keeps its log.",
    )
    _add_server(parser)
    _add_workload(parser)
    group = parser.add_argument_group("what comes out")
    group.add_argument("--slo", metavar="LIMITS", help=options.SLO_HELP)
    group.add_argument("--gpus", type=positive, default=1, metavar="N", help="the server's GPUs")
    group.add_argument("--json", action="store_true", help="print one JSON object")
    group.add_argument("--out", metavar="RUNLOG", help="write the run log (.jsonl or .parquet)")
    parser.set_defaults(run=run)


def _add_server(parser: Parser) -> None:
    group = parser.add_argument_group("who is asked, and how")
    one = whole_number(1)
    add = group.add_argument
    add("--url", required=True, metavar="URL", help="such as http://127.0.0.1:8000")
    add("--model", required=True, metavar="NAME", help="as the server calls it")
    add("--chat", action="store_true", help="ask /v1/chat/completions, not /v1/completions")
    add("--prompts", default="auto", metavar="FORM", help="auto, ids (exact) or text")
    add("--ids", metavar="LOW-HIGH", help="token ids to draw, HIGH left out (default: found out)")
    add("--plain", action="store_true", help="only OpenAI's own fields (no ignore_eos, cache_salt)")
    add("--api-key-env", metavar="VAR", help="environment variable that holds the key")
    add("--timeout", type=positive, default=600.0, metavar="S", help="for a whole answer (600 s)")
    add("--max-concurrency", type=one, metavar="N", help="at most N outstanding; the wait counts")
    add("--warmup", type=whole_number(0), default=1, metavar="N", help="requests before (1)")


def _add_workload(parser: Parser) -> None:
    group = parser.add_argument_group("what is sent")
    which = group.add_mutually_exclusive_group(required=True)
    which.add_argument("--trace", metavar="NAME", help=f"one of {', '.join(names())}")
    which.add_argument("--trace-file", dest="file", metavar="FILE", help="a trace of your own")
    which.add_argument(
        "--synthetic", dest="trace", action="store_const", const="synthetic", help="made requests"
    )
    one = whole_number(1)
    add = group.add_argument
    add("--num", "--limit", dest="limit", type=one, metavar="N", help="the first N requests")
    add("--rate", type=positive, metavar="R", help="requests per second; a trace is stretched")
    add("--speedup", type=positive, metavar="X", help="arrival times divided by X")
    add("--concurrency", type=one, metavar="N", help="closed loop of N clients instead")
    add("--seed", type=whole_number(0), default=0, metavar="N", help="of all that is random (0)")
    add("--arrivals", metavar="KIND", help=f"{', '.join(ARRIVALS)} (synthetic; poisson)")
    add("--cv", type=positive, metavar="CV", help="variation of the gaps of gamma arrivals")
    add("--prompt-tokens", type=one, metavar="N", help="prompt length (synthetic; 1024)")
    add("--output-tokens", type=one, metavar="N", help="output length (synthetic; 128)")
    add("--jitter", type=float, metavar="J", help="lengths uniform in 1 - J to 1 + J of that")


def run(args: argparse.Namespace) -> int:
    """Run the command. Status 130 for a run that was interrupted (its log is written)."""
    slos = options.slo_set(args.slo)
    check_place(args.out, RUNLOGS)
    ids = None if args.ids is None else _ids(args.ids)
    given = {name: value for name, value in vars(args).items() if value is not None}
    work = options.workload_spec(given).load()
    tell_stand_in(work)
    check_classes(slos, work)
    _need_aiohttp()
    from minilab.serve.load import Settings, measure
    from minilab.serve.load_wire import Target

    target = Target(args.url, args.model, args.chat, args.plain, _key(args.api_key_env))
    settings = Settings(
        form=args.prompts,
        ids=ids,
        seed=args.seed,
        warmup=args.warmup,
        max_concurrency=args.max_concurrency,
        timeout=args.timeout,
    )
    started = now()
    log = measure(target, work, settings, tell)
    log.meta["started"] = started
    log.meta["gpus"] = args.gpus
    if args.out:
        runlog_io.write(log, args.out)
    if not len(log):
        raise InputError("interrupted before the first request was due; nothing was measured")
    result = report(log, work, slos)
    if args.json:
        print_json(result)
    else:
        print(as_text(result))
    return 130 if log.meta["interrupted"] else 0


def _need_aiohttp() -> None:
    if importlib.util.find_spec("aiohttp") is None:
        raise InputError("load needs aiohttp, which is not installed; pip install minilab[serve]")


def _ids(text: str) -> tuple[int, int]:
    try:
        low, high = (int(part) for part in text.split("-"))
    except ValueError:
        raise InputError(f"--ids {text!r}; give two whole numbers, such as 100-1000") from None
    return low, high


def _key(name: str | None) -> str | None:
    if name is None:
        return None
    if not os.environ.get(name):
        raise InputError(f"--api-key-env {name}: not set; export it first")
    return os.environ[name]


def report(log: RunLog, work: Workload, slos: SLOSet | None) -> dict[str, Any]:
    """The result; times in seconds, rates per second, None where unavailable."""
    status = log.requests["status"]
    result: dict[str, Any] = {
        "requests": len(log),
        **{name: int((status == name).sum()) for name in STATUSES},
        "seconds": log.duration,
        "prompt_tokens": int(log.requests["prompt_tokens"].sum()),
        "output_tokens": int(log.requests["output_tokens"].sum()),
        "cached_tokens": int(log.requests["cached_tokens"].sum()),
        **summary(log),
        "slo": None if slos is None else str(slos),
    }
    judged = None if slos is None else goodput(log, slos, log.meta["gpus"]).as_dict()
    for name in ("attainment", "goodput", "goodput_per_gpu", "by_class"):
        result[name] = None if judged is None else judged[name]
    names = ("arrivals", "client_lag", "client_is_bottleneck", "client_queue", "lengths", "chunks",
             "errors", "interrupted", "not_sent", "prompts", "target", "data", "workload_hash",
             "seed", "gpus", "versions")  # fmt: skip
    return {**result, **{name: log.meta[name] for name in names}}


def as_text(result: dict[str, Any]) -> str:
    """The report for people."""
    parts = [f"{result[name]} {name}" for name in STATUSES if result[name]]
    unsent = f"; {result['not_sent']} not sent" if result["not_sent"] else ""
    arrivals = result["arrivals"]
    rates = [f"{plain(arrivals[name])} requests/s {name}" for name in ("requested", "achieved")]
    lag, lengths = result["client_lag"], result["lengths"]
    exact = f"{lengths['prompt_as_asked']} prompts and {lengths['output_as_asked']} outputs"
    lines = [
        ("run", f"{result['data']['name']} to {result['target']}"),
        ("requests", f"{result['requests']}: {', '.join(parts)}{unsent}"),
        ("arrivals", ", ".join(rates)),
        ("client", f"{duration(lag['p99'])} late at p99, {duration(lag['max'])} at most"),
        ("prompts", f"{result['prompts']}; {exact} of {lengths['finished']} as long as asked"),
    ]
    lines += [("error", f"{count} x {what}") for what, count in result["errors"].items()]
    return "\n\n".join(
        [facts(lines), table(quantile_rows(result, [*SEEN_BY_CLIENT, "gap"])), facts(_end(result))]
    )


def _end(result: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [("SLO", "none given, so no goodput (--slo ttft=0.5,itl=50ms)")]
    if result["slo"] is not None:
        rate, each = plain(result["goodput"]), plain(result["goodput_per_gpu"])
        lines = [
            ("SLO", f"{result['slo']} s: {share(result['attainment'])} of the requests are good"),
            ("goodput", f"{rate} good requests/s, {each} per GPU"),
        ]
    waited = result["client_queue"]["p99"]
    if waited:
        lines.append(("note", f"requests waited in the client (p99 {duration(waited)}): its limit"))
    if result["client_is_bottleneck"]:
        lines.append(("note", "the client is the bottleneck: these are not the server's numbers"))
    if result["interrupted"]:
        lines.append(("note", "interrupted: what was outstanding counts as aborted"))
    return lines
