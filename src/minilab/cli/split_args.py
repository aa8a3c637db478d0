"""The options that put prompts on a pool of their own, for ``sim`` and ``sweep``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from minilab.cli.parser import Parser, number, positive, whole_number
from minilab.core.pd_router import PD_MODES
from minilab.facts.errors import InputError
from minilab.facts.hardware import links
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment
from minilab.sim.pd_options import FIRST_TOKEN, ON_FAILURE, RESERVE

_PLAIN = {f.name for f in fields(Experiment)}
FIELDS = tuple(f.name for f in fields(PdExperiment) if f.name not in _PLAIN)
"""What a split has beyond what every experiment has."""


def add_split(parser: Parser) -> None:
    """Add the options; ``--prefill-instances`` switches the split on."""
    one, none = whole_number(1), whole_number(0)
    group = parser.add_argument_group(
        "prefill/decode split (--instances and the other options are then the decode pool's)"
    )
    add = group.add_argument
    add("--prefill-instances", type=one, metavar="N", help="instances that only compute prompts")
    add("--prefill-gpu", metavar="NAME", help="GPU of that pool (default: as --gpu)")
    add("--prefill-tp", type=one, metavar="N", help="GPUs per prefill instance (as --tp)")
    add("--prefill-kv-blocks", type=one, metavar="N", help="KV blocks per prefill instance")
    add("--prefill-max-num-batched-tokens", type=one, metavar="N", help="tokens per step there")
    add("--prefill-max-num-seqs", type=one, metavar="N", help="running prompts there")
    add("--prefill-cost", metavar="FILE", help="cost model of that pool (as --cost)")
    add("--prefill-router", metavar="NAME", help="which prefill instance (default round-robin)")
    add("--pd-mode", metavar="MODE", help=f"who is split: {', '.join(PD_MODES)} (default always)")
    add("--max-local-prefill-length", type=none, metavar="N", help="tokens (default 512)")
    add("--max-prefill-queue-size", type=none, metavar="N", help="prompts (default 2)")
    add("--link", metavar="NAME", help=f"between machines: {', '.join(links())}")
    add("--inner-link", metavar="NAME", help="within a machine (default: the GPU's first)")
    add("--link-bandwidth", type=positive, metavar="B", help="bytes/s a GPU, instead of the link's")
    add("--gpus-per-node", type=one, metavar="N", help="GPUs in a machine (default 8)")
    add("--nics-per-node", type=one, metavar="N", help="network cards in one (default: one a GPU)")
    add("--together", dest="apart", action="store_const", const=False,
        help="the decode pool fills up the prefill pool's machine")  # fmt: skip
    add("--reserve", metavar="WHEN", help=f"blocks on the decode side: {', '.join(RESERVE)}")
    add("--overlap", action="store_const", const=True, help="send layer by layer in the prefill")
    add("--gather", action="store_const", const=True, help="copy into one buffer before sending")
    add("--first-token", metavar="SIDE", help=f"who puts it out: {', '.join(FIRST_TOKEN)}")
    add("--headroom-tokens", type=none, metavar="N", help="kept free per request (default 0)")
    add("--alpha", type=number, metavar="S", help="seconds per descriptor (default 1e-6)")
    add("--max-transfers", type=one, metavar="N", help="at once from one instance")
    add("--failure-rate", type=number, metavar="P", help="share of transfers that break")
    add("--on-failure", metavar="WHAT", help=f"{', '.join(ON_FAILURE)} (default recompute)")
    add("--no-preempt", dest="preempt", action="store_const", const=False,
        help="decode instances never take blocks back (they can get stuck)")  # fmt: skip


def split_of(whole: Experiment, given: Mapping[str, Any]) -> Experiment:
    """``whole``, or the split that the options ask for.

    Raises:
        InputError: options of a split without a prefill pool.
    """
    chosen = {name: given[name] for name in FIELDS if name in given}
    if not chosen:
        return whole
    if "prefill_instances" not in chosen:
        name = next(iter(chosen)).replace("_", "-")
        raise InputError(
            f"--{name} is about a prefill/decode split; give --prefill-instances too, or leave it"
        )
    own = {name: getattr(whole, name) for name in _PLAIN}
    return PdExperiment(**own, **chosen)
