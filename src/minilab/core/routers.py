"""Every router by name, with options and faults as text: ``cache-aware:slack=8``, ``stale=0.1``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from minilab.core.router import Router
from minilab.core.router_estimate import TransferQueuePrefill
from minilab.core.router_faults import (
    FirstMessage,
    LateLoad,
    NoEvictionFeedback,
    NoLoad,
    Stale,
    Unshared,
)
from minilab.core.router_load import (
    LeastKV,
    LeastLoad,
    PowerOfTwo,
    Random,
    RoundRobin,
    SessionAffinity,
)
from minilab.core.router_prefix import (
    BoundedPrefix,
    CacheAware,
    LoadAwareScore,
    LongestPrefix,
    OverlapCost,
    PrefixLoad,
    SmallestTree,
)

ROUTERS: dict[str, Callable[..., Router]] = {
    "round-robin": RoundRobin,
    "random": Random,
    "least-load": LeastLoad,
    "least-kv": LeastKV,
    "power-of-two": PowerOfTwo,
    "session": SessionAffinity,
    "longest-prefix": LongestPrefix,
    "cache-aware": CacheAware,
    "smallest-tree": SmallestTree,
    "bounded-prefix": BoundedPrefix,
    "overlap-cost": OverlapCost,
    "load-aware-score": LoadAwareScore,
    "transfer-queue-prefill": TransferQueuePrefill,
    "prefix-load": PrefixLoad,
}

FAULTS: dict[str, Callable[..., Router]] = {
    "no-load": NoLoad,
    "late-load": LateLoad,
    "stale": Stale,
    "routers": Unshared,
    "first-message": FirstMessage,
    "no-eviction-feedback": NoEvictionFeedback,
}


def make_router(text: str, seed: int = 0, faults: str = "", **given: float) -> Router:
    """The router that ``text`` names: ``name`` or ``name:option=number:option=number``.

    ``faults``: names of ``FAULTS`` with a plus between them, a number after ``=`` where the fault
    takes one, the innermost first. ``given`` are values for options that the text leaves out, used
    by policies that have such an option.

    Raises:
        KeyError: no such router or fault; ``ROUTERS`` and ``FAULTS`` have the names.
        ValueError: an option that the router does not have, or no number.
    """
    name, *options = text.split(":")
    policy = ROUTERS[name]
    known = inspect.signature(policy).parameters
    values = {key: value for key, value in {**given, "seed": seed}.items() if key in known}
    for option in options:
        key, number = _number(option, text)
        if key not in known or key == "seed":
            names = ", ".join(k for k in known if k != "seed") or "no options"
            raise ValueError(f"router {text!r}: no option {key!r}; {name} has {names}")
        values[key] = number

    def make() -> Router:
        return policy(**values)

    return _with_faults(make, fault_names(faults))


def fault_names(faults: str) -> list[str]:
    """The single faults of a text, numbers included; the plus of ``1e+02`` separates nothing."""
    return [part for part in re.split(r"\+(?=[a-z])", faults) if part]


def _with_faults(make: Callable[[], Router], faults: list[str]) -> Router:
    if not faults:
        return make()
    *inner, last = faults
    name, equals, _ = last.partition("=")
    fault: Any = FAULTS[name]
    takes = "value" in inspect.signature(fault).parameters
    if equals and not takes:
        raise ValueError(f"fault {last!r}: {name} takes no number")
    values: list[Any] = [_number(last, last)[1]] if equals else []
    if fault is Unshared:
        return Unshared(lambda: _with_faults(make, inner), *values)
    made: Router = fault(_with_faults(make, inner), *values)
    return made


def _number(text: str, where: str) -> tuple[str, float]:
    key, _, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"{where!r}: {text!r} is no name=number") from None
    return key, int(number) if number == int(number) and abs(number) < 1e15 else number
