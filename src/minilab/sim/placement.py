"""Placement search: which pools and which parallelism serve the most requests per GPU in time.

As DistServe does it (OSDI'24, section 4): try the placements that fit, and for each find by
bisection the highest rate at which enough requests meet their SLO. Whole placements (no split) are
candidates too, so the answer may be not to split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError
from minilab.facts.rate_search import Cache, RateResult
from minilab.facts.slo_set import SLO, SLOSet, as_slo_set
from minilab.sim.experiment import Experiment
from minilab.sim.knee import find_knee
from minilab.sim.pd_experiment import PdExperiment
from minilab.sim.placement_store import PlacementStore
from minilab.sim.progress_bar import progress_bar


@dataclass(frozen=True, slots=True)
class Placement:
    """Instances and GPUs per instance of both pools; ``prefill`` 0: one pool that does all."""

    prefill: int
    prefill_tp: int
    decode: int
    decode_tp: int

    @property
    def gpus(self) -> int:
        """GPUs it uses."""
        return self.prefill * self.prefill_tp + self.decode * self.decode_tp

    def __str__(self) -> str:
        decode = f"{self.decode} x tp{self.decode_tp}"
        return f"{self.prefill} x tp{self.prefill_tp} + {decode}" if self.prefill else decode

    def of(self, base: Experiment) -> Experiment:
        """``base`` placed so; a split keeps what ``base`` says of wires and hand-over."""
        if self.prefill:
            split = base if isinstance(base, PdExperiment) else PdExperiment.split(base)
            return split.with_(
                prefill_instances=self.prefill,
                prefill_tp=self.prefill_tp,
                instances=self.decode,
                tp=self.decode_tp,
            )
        whole = base.decode_side() if isinstance(base, PdExperiment) else base
        return whole.with_(instances=self.decode, tp=self.decode_tp)


@dataclass(frozen=True, slots=True)
class Placed:
    """A placement and the best rate found for it; None where the model does not fit."""

    placement: Placement
    result: RateResult | None
    reason: str = ""

    @property
    def rate_per_gpu(self) -> float:
        """Requests/s per GPU within the SLO; 0 where it cannot be built."""
        return 0.0 if self.result is None else self.result.rate_per_gpu

    def row(self) -> dict[str, Any]:
        """For JSON and tables."""
        row: dict[str, Any] = {"placement": str(self.placement), "gpus": self.placement.gpus}
        row |= {"rate_per_gpu": self.rate_per_gpu, "reason": self.reason, "verdict": None}
        if self.result is not None:
            row |= {"verdict": self.result.verdict, "reason": self.result.reason}
            row |= {"low": self.result.low, "high": self.result.high}
            row["goodput_per_gpu"] = self.result.goodput_per_gpu
        return row


def placements(gpus: int, tps: Sequence[int] = (1, 2, 4, 8)) -> list[Placement]:
    """Every placement on at most ``gpus`` GPUs that is not a multiple of a smaller one.

    Twice as many of everything serve twice the rate on twice the GPUs, so ``2 x tp1 + 2 x tp1`` is
    left out beside ``1 x tp1 + 1 x tp1``.

    Raises:
        InputError: no GPU, or no parallelism.
    """
    if gpus < 1 or not tps or min(tps) < 1:
        raise InputError(f"placements: {gpus} GPUs, tp {list(tps)}; give at least 1 of each")
    return list(_placements(gpus, tps))


def _placements(gpus: int, tps: Sequence[int]) -> Iterator[Placement]:
    for tp in tps:
        if tp <= gpus:
            yield Placement(0, 1, 1, tp)
    for prefill_tp, decode_tp in product(tps, tps):
        for prefill in range(1, gpus // prefill_tp + 1):
            for decode in range(1, (gpus - prefill * prefill_tp) // decode_tp + 1):
                if _in_lowest_terms(prefill, decode):
                    yield Placement(prefill, prefill_tp, decode, decode_tp)


def _in_lowest_terms(a: int, b: int) -> bool:
    while b:
        a, b = b, a % b
    return a == 1


def search(
    base: Experiment,
    candidates: Sequence[Placement],
    slos: SLO | SLOSet | str,
    *,
    target: float = 0.9,
    lo_per_gpu: float = 0.05,
    hi_per_gpu: float = 50.0,
    seeds: Sequence[int] = (0,),
    rel_tol: float = 0.05,
    out: Path | str | None = None,
    progress: bool = True,
) -> list[Placed]:
    """The candidates, best first, each with the highest rate per GPU that meets the SLO.

    Args:
        base: model, GPU, workload and hand-over; its own pools and rate are replaced.
        slos, target, seeds, rel_tol: as in ``find_knee``.
        lo_per_gpu, hi_per_gpu: rates to bisect between, requests/s per GPU.
        out: a ``.jsonl`` file of the loads that were tried; started again, the search goes on.
        progress: a bar on stderr.

    Raises:
        InputError: no candidate, and as ``find_knee``.
    """
    if not candidates:
        raise InputError("placement: no candidates; give more GPUs or another parallelism")
    text = str(as_slo_set(slos))
    found = []
    with PlacementStore(out) as store, progress_bar("place", len(candidates), 0, progress) as tick:
        for placement in candidates:
            experiment, gpus = placement.of(base), placement.gpus
            rates = (lo_per_gpu * gpus, hi_per_gpu * gpus)
            loads = store.cache(experiment, text)
            found.append(_best(placement, experiment, text, loads, target, rates, seeds, rel_tol))
            tick()
    return sorted(found, key=lambda placed: -placed.rate_per_gpu)


def _best(
    placement: Placement,
    experiment: Experiment,
    slos: str,
    cache: Cache,
    target: float,
    rates: tuple[float, float],
    seeds: Sequence[int],
    rel_tol: float,
) -> Placed:
    try:
        experiment.build()
    except InputError as error:
        return Placed(placement, None, str(error))
    low, high = rates
    result = find_knee(experiment, slos, target, low, high, seeds, rel_tol=rel_tol, cache=cache)
    return Placed(placement, replace(result, evaluations=()))
