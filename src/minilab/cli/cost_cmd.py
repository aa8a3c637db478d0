"""``minilab cost``: what one step costs, term by term."""

from __future__ import annotations

import argparse
from typing import Any

from minilab.cli import args as options
from minilab.cli.output import print_json
from minilab.cli.parser import Parser, whole_number
from minilab.facts.cost import StepCost, StepShape, WfksCost
from minilab.facts.errors import InputError


def add(commands: Any) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "cost",
        help="what one step costs, term by term",
        description="One step with some decoding sequences and one prompt chunk, as a sum.",
    )
    options.add_hardware(parser)
    parser.add_argument("--cost", metavar="FILE", help="a cost model as JSON, instead")
    least = whole_number(0)
    add = parser.add_argument
    add("--decode", type=least, default=1, metavar="N", help="decoding sequences (default 1)")
    add("--context", type=least, default=1024, metavar="C", help="KV tokens each reads")
    add("--prefill", type=least, default=0, metavar="P", help="prompt tokens of one new request")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    if not args.decode and not args.prefill:
        raise InputError("--decode 0 and --prefill 0: an empty step; give one of them 1 or more")
    model = options.experiment(args).cost_model()
    step = shape(model, args.decode, args.context, args.prefill)
    if not args.json:
        print(model.explain(step))
        return 0
    seconds = model.seconds(step)
    terms = model.terms(step)
    print_json({"seconds": seconds, "terms": terms, "shape": step._asdict(), **model.to_dict()})
    return 0


def shape(model: StepCost | WfksCost, decode: int, context: int, prefill: int) -> StepShape:
    """A step of ``decode`` sequences at ``context`` tokens each, and a prompt of ``prefill``."""
    window = model.linear().window
    seen = min(context, window) if window else context
    return StepShape(
        num_tokens=decode + prefill,
        num_seqs=decode + (prefill > 0),
        context=decode * context,
        pairs=prefill * (prefill + 1) // 2,
        window_context=decode * seen,
    )
