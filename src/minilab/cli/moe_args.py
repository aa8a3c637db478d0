"""The options that lay a mixture-of-experts model on GPUs, for ``sim`` and ``sweep``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from minilab.cli.parser import Parser, positive, whole_number
from minilab.cli.split_args import FIELDS
from minilab.facts.all_to_all import DISPATCH_DTYPES, KERNELS
from minilab.facts.errors import InputError
from minilab.sim.experiment import Experiment
from minilab.sim.moe_experiment import MoeExperiment

OWN = (
    "dp", "expert_parallel", "congestion", "dispatch_dtype", "all2all", "expert_load",
    "redundant_experts", "eplb",
)  # fmt: skip
"""Options of a MoE layout alone; each of them asks for one."""
SHARED = ("link", "gpus_per_node", "overlap")
"""Options that a prefill/decode split has too; here they are about the all-to-all."""


def add_moe(parser: Parser) -> None:
    """Add the options; any of them makes the experiment one of experts."""
    group = parser.add_argument_group(
        "experts (a MoE model; --link, --gpus-per-node and --overlap then mean the all-to-all)"
    )
    add = group.add_argument
    add("--dp", type=whole_number(1), metavar="N", help="attention ranks, --tp GPUs each")
    add("--expert-parallel", action="store_const", const=True,
        help="whole experts on GPUs (default with --dp above 1)")  # fmt: skip
    add("--congestion", type=positive, metavar="S", help="share of --link that is left (default 1)")
    add("--dispatch-dtype", metavar="D", help=f"{', '.join(DISPATCH_DTYPES)} (default fp8)")
    add("--all2all", metavar="KIND", help=f"kernels: {', '.join(KERNELS)} (default auto)")
    add("--expert-load", metavar="LOAD",
        help="uniform, zipf:EXPONENT, lognormal:SIGMA, recorded:FILE")  # fmt: skip
    add("--redundant-experts", type=whole_number(0), metavar="N", help="replicas per layer")
    add("--eplb", action="store_const", const=True, help="place experts by that load")


def moe_of(whole: Experiment, given: Mapping[str, Any]) -> Experiment | None:
    """``whole`` laid out as the options say; None where none of them was given.

    Raises:
        InputError: together with options of a prefill/decode split.
    """
    chosen = {name: given[name] for name in OWN if name in given}
    if not chosen:
        return None
    unused = [name for name in FIELDS if name in given and name not in SHARED]
    if unused:
        ours, theirs = (name.replace("_", "-") for name in (next(iter(chosen)), unused[0]))
        raise InputError(f"--{ours} with --{theirs}: experts are not modelled on a split")
    chosen |= {name: given[name] for name in SHARED if name in given}
    chosen.setdefault("expert_parallel", chosen.get("dp", 1) > 1)
    plain = {f.name: getattr(whole, f.name) for f in fields(Experiment)}
    return MoeExperiment(**plain, **chosen)
