"""The tiers that an experiment names, built for its instances, and what they did."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from minilab.core.tiers import GIB, RULES, TierStore, parse_tiers
from minilab.facts.errors import InputError
from minilab.facts.models import get_model
from minilab.facts.user_input import unknown_name
from minilab.sim.tier_cache import TierCache

if TYPE_CHECKING:
    from minilab.sim.experiment import Experiment


def tier_stack(experiment: Experiment) -> Callable[[], dict[str, Any]]:
    """A function that gives each instance's scheduler its tiers; shared stores are made once.

    Raises:
        InputError: tiers or a rule that do not exist, or tiers without a prefix cache or with a
            radix tree, whose keys mean nothing outside their own instance.
    """
    if experiment.tier_rule not in RULES:
        raise unknown_name("tier rule", experiment.tier_rule, RULES)
    try:
        specs = parse_tiers(experiment.tiers)
    except ValueError as error:
        raise InputError(str(error)) from None
    if not specs:
        return dict
    if not experiment.prefix_cache or experiment.prefix_index != "hash-chain":
        raise InputError("tiers hold blocks by their hash; use the prefix cache with hash-chain")
    model = get_model(experiment.model)
    per_token = model.kv_bytes_per_token(experiment.kv_dtype, experiment.tp) * experiment.tp
    block = float(per_token * experiment.block_size)
    linear = experiment.cost_model().linear()

    def prefill(start: int, tokens: int) -> float:
        pairs = tokens * start + tokens * (tokens + 1) // 2
        return linear.per_token * tokens + linear.per_pair * pairs

    def store(gib: float) -> TierStore:
        return TierStore(int(gib * GIB // block))

    shared = {spec.name: store(spec.gib) for spec in specs if spec.shared}

    def make() -> dict[str, Any]:
        stores = [shared[s.name] if s.shared else store(s.gib) for s in specs]
        rule = RULES[experiment.tier_rule]
        return {"tiers": TierCache(specs, stores, experiment.block_size, block, prefill, rule)}

    return make


def tier_meta(schedulers: Sequence[Any]) -> dict[str, Any]:
    """``{"tiers": [stats of each instance]}``, or nothing without tiers."""
    tiers = [getattr(scheduler, "tiers", None) for scheduler in schedulers]
    stats = [one.stats() for one in tiers if one is not None]
    return {"tiers": stats} if stats else {}
