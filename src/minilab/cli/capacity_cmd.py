"""``minilab capacity``: how many tokens, requests and users fit, and where the memory went."""

from __future__ import annotations

import argparse
from typing import Any

from minilab.cli.capacity_args import add_deployment, deployment_of
from minilab.cli.output import facts, print_json, table
from minilab.cli.parser import Parser, whole_number
from minilab.facts.capacity_fit import Affine, fit_affine
from minilab.facts.capacity_log import read_startup_log
from minilab.facts.capacity_plan import GIB, Deployment
from minilab.facts.capacity_report import CapacityReport, capacity
from minilab.facts.capacity_users import TENSOR_PARALLEL, UserPlan, plan_users
from minilab.facts.errors import InputError
from minilab.facts.models import ModelSpec
from minilab.facts.slo import SLO


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "capacity",
        help="KV tokens, concurrency and length that fit",
        description="How many tokens of KV fit, and where every byte of GPU memory goes.",
    )
    add_deployment(parser)
    add = parser.add_argument
    one = whole_number(1)
    add("--max-len", type=one, metavar="N", help="tokens of a request (default 8192)")
    add("--concurrency", type=one, default=1, metavar="N", help="requests for the longest length")
    _add_questions(parser)
    add("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def _add_questions(parser: Parser) -> None:
    group = parser.add_argument_group("other questions")
    one = whole_number(1)
    add = group.add_argument
    add("--log", metavar="FILE", help="a vLLM start-up log: say where the memory went")
    add("--fit", metavar="GIB:LEN,GIB:LEN", help="fixed + slope from sizes an engine stated")
    add("--users", type=one, metavar="N", help="how many GPUs do N users need?")
    add("--slo", metavar="SLO", help="with --users: limits such as ttft=1,tpot=50ms")
    add("--prompt-tokens", type=one, metavar="N", help="with --users (default 3/4 of --max-len)")
    add("--output-tokens", type=one, metavar="N", help="with --users (default: the rest)")


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if args.fit is not None:
        return _run_fit(args)
    if args.log is not None and args.model is None and args.config is None:
        return _run_log(args)
    if args.model is None and args.config is None:
        raise InputError("no model; give --model NAME or --config FILE (see `minilab models`)")
    for name in ("slo", "prompt_tokens", "output_tokens"):
        if getattr(args, name) is not None and args.users is None:
            raise InputError(f"--{name.replace('_', '-')} goes with --users N; give that too")
    deployment = deployment_of(args)
    if args.users is not None:
        return _run_users(args, deployment)
    length = args.max_len or _default_length(deployment.model)
    report = capacity(deployment, length, args.concurrency)
    log = read_startup_log(args.log).as_dict() if args.log else None
    if args.json:
        found = report.as_dict()
        print_json({**found, "log": log} if log else found)
    else:
        print(_text(report))
        if log:
            print("\n" + "\n".join(log["explanation"]))
    return 0


def _default_length(model: ModelSpec) -> int:
    return min(8192, model.max_len or 8192)


def _run_log(args: argparse.Namespace) -> int:
    log = read_startup_log(args.log)
    if args.json:
        print_json(log.as_dict())
    else:
        print("\n".join(log.explain()))
    return 0


def _run_fit(args: argparse.Namespace) -> int:
    line = fit_affine(_points(args.fit))
    answer: dict[str, Any] = {
        "fixed_bytes": line.fixed,
        "fixed_gib": line.fixed / GIB,
        "slope_bytes_per_token": line.slope,
        "worst_misfit_bytes": line.worst,
    }
    if args.available_gib:
        avail = min(args.available_gib)
        answer["max_len"] = line.tokens(avail, args.concurrency)
        answer["max_concurrency"] = avail / (line.fixed + line.slope * (args.max_len or 8192))
    if args.json:
        print_json(answer)
    else:
        print(_fit_text(line, answer))
    return 0


def _points(text: str) -> list[tuple[float, float]]:
    points = []
    for part in text.split(","):
        size, colon, tokens = part.partition(":")
        try:
            points.append((float(tokens), float(size) * GIB))
        except ValueError:
            raise InputError(f"--fit {part!r}; write GIB:TOKENS, such as 5.44:13528") from None
        if not colon:
            raise InputError(f"--fit {part!r}; write GIB:TOKENS, such as 5.44:13528")
    return points


def _fit_text(line: Affine, answer: dict[str, Any]) -> str:
    rows = [
        ("fixed", f"{line.fixed / GIB:.2f} GiB a sequence"),
        ("slope", f"{line.slope:,.0f} B a token"),
    ]
    if "max_len" in answer:
        rows.append(("max len", f"{answer['max_len']:,} tokens"))
    return facts(rows)


def _run_users(args: argparse.Namespace, deployment: Deployment) -> int:
    length = args.max_len or _default_length(deployment.model)
    prompt = args.prompt_tokens or max(1, length * 3 // 4)
    output = args.output_tokens or max(1, length - prompt)
    slo = SLO.parse(args.slo) if args.slo else None
    if slo is not None and not isinstance(slo, SLO):
        raise InputError("--slo with --users takes one set of limits, not one for each class")
    choices = (args.tp,) if args.tp else TENSOR_PARALLEL
    plan = plan_users(deployment, args.users, slo, prompt, output, choices)
    if args.json:
        print_json({"prompt_tokens": prompt, "output_tokens": output, **plan.as_dict()})
    else:
        print(_users_text(plan))
    return 0


def _users_text(plan: UserPlan) -> str:
    expected = ", ".join(f"{name} {value:.3g} s" for name, value in plan.expected.items())
    return facts(
        [
            ("GPUs", f"{plan.gpus}: {plan.instances} instances with tp={plan.tp}"),
            ("users", f"{plan.per_instance} an instance ({plan.fits_in_kv} would fit in KV)"),
            ("limit", plan.limit),
            ("expected", expected + " (closed form)"),
        ]
    )


def _text(report: CapacityReport) -> str:
    found, d = report.as_dict(), report.deployment
    rows = [["memory per GPU", "GiB", ""]]
    rows += [[t["name"], f"{t['gib']:.2f}", t["how"]] for t in found["terms"]]
    rows.append(["for KV", f"{found['available_gib']:.2f}", ""])
    length = found["max_len"]
    ends = found["range"]
    between = f" ({ends['tokens'][0]:,} to {ends['tokens'][1]:,})" if ends else ""
    lines = [
        ("KV a token", f"{found['kv_bytes_per_token']:,} B per GPU"),
        ("tokens", f"{found['tokens']:,}{between}, {found['blocks']:,} blocks of {d.block_size}"),
        ("requests", f"{found['max_concurrency']:.2f} of {report.max_len:,} tokens at once"),
        (
            "longest",
            f"{'no limit' if length is None else format(length, ',')} tokens for "
            f"{report.concurrency} at once",
        ),
    ]
    flags = [(name, str(row["command"])) for name, row in found["flags"].items()]
    notes = [f"- {note}" for note in found["notes"]]
    return "\n".join([table(rows, 1), facts(lines), *notes, facts(flags)])
