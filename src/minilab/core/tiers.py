"""Tiers below HBM: where KV blocks go so that they outlive eviction, and when fetching them pays.

A small LMCache. Each tier is an LRU store of block keys with a bandwidth and a latency. Blocks are
written to the first tier when they have been computed, in the background; what a tier evicts sinks
to the next one. A prompt's blocks are fetched back only as far as that is faster than computing
them again. The bytes themselves are somebody else's: the simulator's clock, or the engine's memory.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

GIB = float(1 << 30)


@dataclass(frozen=True, slots=True)
class TierSpec:
    """One tier. Bandwidths are bytes/s, latency is seconds for a first byte.

    Attributes:
        name: ``cpu``, ``ssd``, ``remote`` or your own.
        gib: capacity in GiB.
        read, write: bandwidth of one instance's channel.
        shared: one store for all instances, each with its own channel to it.
    """

    name: str
    gib: float
    read: float
    write: float
    latency: float
    shared: bool = False


PRIORS = {
    "cpu": TierSpec("cpu", 64.0, 25e9, 25e9, 20e-6),
    "ssd": TierSpec("ssd", 1024.0, 5e9, 2e9, 150e-6),
    "remote": TierSpec("remote", 1024.0, 10e9, 10e9, 500e-6, shared=True),
}
"""Plain values to start from, of the order of PCIe 4 x16, one NVMe disk, 100 Gb/s: not measured."""


def parse_tiers(text: str) -> tuple[TierSpec, ...]:
    """Tiers from text: ``cpu:gib=64:read=50e9+remote``, nearest first; what is left out is a prior.

    Raises:
        ValueError: an unknown tier or field, or a number that is not above 0.
    """
    tiers = []
    for part in filter(None, re.split(r"\+(?=[a-z])", text)):  # not that of 2e+09
        name, *options = part.split(":")
        if name not in PRIORS:
            raise ValueError(f"tier {name!r}; known are {', '.join(PRIORS)}")
        values = {key: getattr(PRIORS[name], key) for key in ("gib", "read", "write", "latency")}
        for option in options:
            key, _, number = option.partition("=")
            if key not in values:
                raise ValueError(f"tier {part!r}: no field {key!r}; it has {', '.join(values)}")
            try:
                values[key] = float(number)
            except ValueError:
                raise ValueError(f"tier {part!r}: {number!r} is no number") from None
            if not 0 < values[key] < float("inf"):
                raise ValueError(f"tier {part!r}: {key} is {number}; give a number above 0")
        tiers.append(TierSpec(name, **values, shared=PRIORS[name].shared))
    return tuple(tiers)


class TierStore:
    """Which block keys a tier holds, in order of last use, and from when on they can be read.

    ``capacity`` is in blocks. A key is there at once but ``readable`` only when its write is over.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.num_evictions = 0
        self._ready: OrderedDict[int, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ready)

    def __contains__(self, key: int) -> bool:
        return key in self._ready

    def readable(self, key: int, now: int) -> bool:
        """Whether the key's write is over at ``now`` (ticks)."""
        ready = self._ready.get(key)
        return ready is not None and ready <= now

    def touch(self, key: int) -> None:
        """Make a key the last to be evicted."""
        self._ready.move_to_end(key)

    def put(self, key: int, ready: int) -> list[int]:
        """Add a key that can be read from ``ready`` on; returns the keys that had to go."""
        if self.capacity < 1:
            return [key]
        self._ready[key] = ready
        gone = []
        while len(self._ready) > self.capacity:
            gone.append(self._ready.popitem(last=False)[0])
        self.num_evictions += len(gone)
        return gone


class Place(NamedTuple):
    """A block that can be fetched: its key, and which tier (0: the nearest) has it."""

    key: int
    tier: int


def find(stores: Sequence[TierStore], keys: Sequence[int], now: int) -> list[Place]:
    """The leading keys that can be read from some tier, each from the nearest one."""
    found = []
    for key in keys:
        tier = next((k for k, store in enumerate(stores) if store.readable(key, now)), None)
        if tier is None:
            break
        found.append(Place(key, tier))
    return found


def load_seconds(places: Sequence[Place], specs: Sequence[TierSpec], block_bytes: float) -> float:
    """Time to fetch all: the tiers work side by side, each needs its latency and its bytes."""
    longest = 0.0
    for tier, spec in enumerate(specs):
        count = sum(place.tier == tier for place in places)
        if count:
            longest = max(longest, spec.latency + count * block_bytes / spec.read)
    return longest


Rule = Callable[[Sequence[float], Sequence[float]], int]
"""(seconds to fetch the first n, seconds to compute them; n = 1, 2, ...) -> how many to fetch."""


def beats_recompute(fetch: Sequence[float], compute: Sequence[float]) -> int:
    """As many blocks as save the most time; 0 if computing is never slower."""
    best, saved = 0, 0.0
    for count, (slow, fast) in enumerate(zip(compute, fetch, strict=True), 1):
        if slow - fast > saved:
            best, saved = count, slow - fast
    return best


def always(fetch: Sequence[float], compute: Sequence[float]) -> int:
    """Everything that is there, whatever it takes: a tier without a rule."""
    return len(fetch)


RULES: dict[str, Rule] = {"beats-recompute": beats_recompute, "always": always}
