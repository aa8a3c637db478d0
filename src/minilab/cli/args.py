"""The options that describe an experiment, shared by ``sim`` and ``sweep``, and what they mean.

An option has the name of the field it sets and that field's default; ``Experiment`` holds both.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from minilab.cli.moe_args import add_moe, moe_of
from minilab.cli.parser import Parser, number, positive, whole_number
from minilab.cli.split_args import add_split, split_of
from minilab.core.config import POLICIES, PREFIX_INDEXES
from minilab.core.routers import FAULTS, ROUTERS
from minilab.core.tiers import PRIORS, RULES
from minilab.facts.arrivals import ARRIVALS
from minilab.facts.cost import ABOUT, load_cost
from minilab.facts.errors import InputError
from minilab.facts.slo import SLOSet
from minilab.facts.traces import names
from minilab.facts.user_input import read_json, tidy_name
from minilab.sim.experiment import Experiment
from minilab.sim.workload_spec import WorkloadSpec

SYNTHETIC_ONLY = ("prompt_tokens", "output_tokens", "jitter", "arrivals", "cv")
"""Fields of a workload that a trace has values of its own for."""

WORKLOAD_FIELDS = [f.name for f in fields(WorkloadSpec)]

SLO_HELP = "limits such as ttft=0.5,itl=50ms, or by class: chat:ttft=0.5;batch:e2e=30"


def add_experiment(parser: Parser) -> None:
    """Add the options of an experiment."""
    _add_workload(parser)
    _add_serving(parser)
    add_split(parser)
    add_moe(parser)


def _add_workload(parser: Parser) -> None:
    group = parser.add_argument_group("what is served")
    which = group.add_mutually_exclusive_group()
    which.add_argument("--trace", metavar="NAME", help=f"one of {', '.join(names())}")
    which.add_argument("--trace-file", dest="file", metavar="FILE", help="a trace of your own")
    one = whole_number(1)
    add = group.add_argument
    add("--limit", type=one, metavar="N", help="the first N requests only")
    add("--speedup", type=positive, metavar="X", help="arrival times divided by X")
    add("--rate", type=positive, metavar="R", help="stretch arrivals to R requests per second")
    add("--concurrency", type=one, metavar="N", help="closed loop: at most N requests at a time")
    add("--seed", type=whole_number(0), metavar="N", help="of everything random (default 0)")
    only = parser.add_argument_group("requests of --trace synthetic")
    add = only.add_argument
    add("--prompt-tokens", type=one, metavar="N", help="prompt length (default 1024)")
    add("--output-tokens", type=one, metavar="N", help="output length (default 128)")
    add("--jitter", type=number, metavar="J", help="lengths uniform in 1 - J to 1 + J of that")
    add("--arrivals", metavar="KIND", help=f"{', '.join(ARRIVALS)} (default poisson)")
    add("--cv", type=positive, metavar="CV", help="variation of the gaps of gamma arrivals")


def _add_serving(parser: Parser) -> None:
    group = parser.add_argument_group("what serves")
    add_hardware(group)
    one = whole_number(1)
    add = group.add_argument
    add("--instances", type=one, metavar="N", help="copies of the model (default 1)")
    add("--block-size", type=one, metavar="N", help="tokens per KV block (default 16)")
    add("--kv-blocks", type=one, metavar="N", help="KV blocks per instance (default: what fits)")
    add("--max-num-batched-tokens", type=one, metavar="N", help="tokens per step (default 8192)")
    add("--max-num-seqs", type=one, metavar="N", help="running requests (default 256)")
    add("--policy", metavar="NAME", help=f"{', '.join(POLICIES)} (default mixed)")
    add("--router", metavar="NAME", help=f"{', '.join(ROUTERS)} (default round-robin)")
    add("--router-faults", metavar="LIST", help=f"{', '.join(FAULTS)}: stale=0.1+late-load")
    add("--tiers", metavar="LIST", help=f"{', '.join(PRIORS)}: cpu:gib=64:read=25e9+remote")
    add("--tier-rule", metavar="NAME", help=f"{', '.join(RULES)} (default beats-recompute)")
    add("--prefix-index", metavar="NAME", help=f"{', '.join(PREFIX_INDEXES)} (default hash-chain)")
    add(
        "--no-prefix-cache",
        dest="prefix_cache",
        action="store_const",
        const=False,
        help="compute every prompt from its start",
    )
    add("--num-speculative-tokens", type=whole_number(0), metavar="K", help="drafts per step")
    add("--acceptance-rate", type=number, metavar="A", help="chance of a draft (default 0.7)")
    add("--cost", metavar="FILE", help="a cost model: JSON with w, f, k, s or model, gpu, ...")


def add_hardware(group: Parser | argparse._ArgumentGroup) -> None:
    """Add the options that say which model runs on what."""
    add = group.add_argument
    add("--model", metavar="NAME", help="see `minilab models` (default llama-3.1-8b)")
    add("--gpu", metavar="NAME", help="see `minilab gpus` (default h100)")
    add("--gpu-file", metavar="FILE", help="GPUs of your own, as JSON")
    add("--tp", type=whole_number(1), metavar="N", help="GPUs per instance (default 1)")
    add("--weight-dtype", metavar="DTYPE", help="bf16, fp8, int4, ... (default bf16)")
    add("--kv-dtype", metavar="DTYPE", help="bf16, fp8, ... (default bf16)")


def experiment(args: argparse.Namespace) -> Experiment:
    """The experiment that the options describe; one that was not given keeps its default.

    Raises:
        InputError: options that contradict each other, or a cost file that cannot be used.
    """
    given = {name: value for name, value in vars(args).items() if value is not None}
    if "trace" in given:
        given["trace"] = tidy_name(given["trace"])
        if given["trace"] not in names() and Path(args.trace).is_file():
            raise InputError(f"--trace {args.trace}: a file, not a name; use --trace-file")
    for name in ("cost", "prefill_cost"):
        if name in given:
            given[name] = cost_text(given[name])
    outer = {f.name: given[f.name] for f in fields(Experiment) if f.name in given}
    whole = Experiment(workload=workload_spec(given), **outer)
    return moe_of(whole, given) or split_of(whole, given)


def workload_spec(given: Mapping[str, Any]) -> WorkloadSpec:
    """The workload of the options that were given, by the names of their fields.

    Raises:
        InputError: options that contradict each other.
    """
    spec = WorkloadSpec(**{name: given[name] for name in WORKLOAD_FIELDS if name in given})
    _check_together(spec, given)
    return spec


def _check_together(workload: WorkloadSpec, given: Collection[str]) -> None:
    """Refuse options that would be ignored: a result must not hide that they did nothing."""
    if workload.trace != "synthetic" or workload.file:
        unused = [name for name in SYNTHETIC_ONLY if name in given]
        why = f"is for --trace synthetic; {workload.file or workload.trace} has values of its own"
    elif "concurrency" in given:
        unused = [name for name in ("rate", "arrivals", "cv") if name in given]
        why = "says when requests come; with --concurrency they come when others end"
    else:
        return
    if unused:
        raise InputError(f"{option(unused[0])} {why}; leave one of the two out")


def cost_text(path: str) -> str:
    """The cost model in a file, as the JSON text that an Experiment keeps.

    Raises:
        InputError: it cannot be read or used.
    """
    load_cost(path)  # refuses, naming the file
    numbers = {key: value for key, value in read_json(path).items() if key != ABOUT}
    return json.dumps(numbers, sort_keys=True)


def option(field: str) -> str:
    """The option that sets a field."""
    return "--" + field.replace("_", "-")


def slo_set(text: str | None) -> SLOSet | None:
    """The limits of ``--slo``, if it was given."""
    return None if text is None else SLOSet.parse(text)
