"""The other goodput: the highest request rate per GPU at which enough requests meet their SLOs.

Takes any callable that serves a load and returns a RunLog (simulator, engine, HTTP client), so it
knows no server. Each seed is searched on its own by bisection, which gives the interval over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from minilab.facts.confidence import mean_ci
from minilab.facts.errors import InputError
from minilab.facts.runlog import RunLog
from minilab.facts.slo import goodput
from minilab.facts.slo_set import SLO, SLOSet, as_slo_set

NOISE = 0.01  # attainment that rises by more than this with the rate is reported

Cache = MutableMapping[tuple[float, int], float]


@dataclass(frozen=True)
class Evaluation:
    """One load that was tried: rate in requests/s over all GPUs."""

    rate: float
    seed: int
    attainment: float


@dataclass(frozen=True)
class RateResult:
    """Rates are requests/s per GPU; each is one that met the target, up to rel_tol below the limit.

    ``verdict``: "found"; "at least" (a seed still met the target at the highest rate tried, so the
    answer is a lower bound); "never met" (rate 0: no seed met it at the lowest rate). ``low`` and
    ``high``: 95 % t interval of the mean over seeds, None from one seed. ``notes`` say what a
    reader should doubt.
    """

    verdict: str
    reason: str
    rate_per_gpu: float
    goodput_per_gpu: float
    low: float | None
    high: float | None
    per_seed: dict[int, float]
    target: float
    gpus: float
    notes: tuple[str, ...]
    evaluations: tuple[Evaluation, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def max_rate(
    run: Callable[[float, int], RunLog],
    slos: SLO | SLOSet | str,
    gpus: float = 1,
    target: float = 0.9,
    *,
    lo: float,
    hi: float,
    seeds: Sequence[int] = (0, 1, 2),
    rel_tol: float = 0.02,
    cache: Cache | None = None,
    progress: Callable[[Evaluation], None] | None = None,
) -> RateResult:
    """The highest rate per GPU with attainment >= ``target``: mean over seeds, with an interval.

    Args:
        run: (rate, seed) -> RunLog; the rate is requests/s over all GPUs.
        slos: as in ``slo.goodput``.
        gpus: GPUs that ``run`` uses.
        target: share of requests that must be good, (0, 1].
        lo, hi: lowest and highest rate to try (requests/s over all GPUs).
        seeds: repetitions; three or more, for an interval worth its name.
        rel_tol: bisection (geometric) ends when the bracket's ends differ by less.
        cache: (rate, seed) -> attainment; what it holds is not run again, what is run is added.
            Keep it to resume: the same lo, hi and target try the same rates.
        progress: called after each new evaluation, when the cache already has it.

    Raises:
        InputError: an argument outside its limits, or SLOs that the logs cannot tell.
    """
    _check(gpus, target, lo, hi, seeds, rel_tol)
    search = _Search(run, as_slo_set(slos), gpus, {} if cache is None else cache, progress)
    found = {seed: search.bisect(seed, target, lo, hi, rel_tol) for seed in seeds}
    rates = {seed: rate / gpus for seed, rate in found.items()}
    useful = [search.goodput_at(rate, seed) if rate else 0.0 for seed, rate in found.items()]
    interval = mean_ci(list(rates.values()))
    verdict, reason = _verdict(found, target, lo, hi)
    return RateResult(
        verdict=verdict,
        reason=reason,
        rate_per_gpu=interval.value,
        goodput_per_gpu=math.fsum(useful) / len(useful),
        low=None if interval.low is None else max(0.0, interval.low),
        high=None if verdict == "at least" else interval.high,
        per_seed=rates,
        target=target,
        gpus=gpus,
        notes=tuple(_doubts(search.evaluations, found, target, lo)),
        evaluations=tuple(search.evaluations),
    )


class _Search:
    """Evaluates loads, each once, and remembers them."""

    def __init__(
        self,
        run: Callable[[float, int], RunLog],
        slos: SLOSet,
        gpus: float,
        cache: Cache,
        progress: Callable[[Evaluation], None] | None,
    ) -> None:
        self.run, self.slos, self.gpus = run, slos, gpus
        self.cache, self.progress = cache, progress
        self.evaluations: list[Evaluation] = []
        self.goodputs: dict[tuple[float, int], float] = {}

    def bisect(self, seed: int, target: float, lo: float, hi: float, rel_tol: float) -> float:
        """The highest rate seen to meet the target, next to one that misses it (0, or hi)."""
        if self.attainment(lo, seed) < target:
            return 0.0
        if self.attainment(hi, seed) >= target:
            return hi
        while hi > lo * (1 + rel_tol):
            middle = math.sqrt(lo * hi)
            if self.attainment(middle, seed) >= target:
                lo = middle
            else:
                hi = middle
        return lo

    def attainment(self, rate: float, seed: int) -> float:
        """From the cache, else from a run."""
        new = (rate, seed) not in self.cache
        if new:
            self._serve(rate, seed)
        evaluation = Evaluation(rate, seed, self.cache[rate, seed])
        self.evaluations.append(evaluation)
        if new and self.progress is not None:
            self.progress(evaluation)
        return evaluation.attainment

    def goodput_at(self, rate: float, seed: int) -> float:
        """Per GPU; a load that only the cache knows is run again."""
        if (rate, seed) not in self.goodputs:
            self._serve(rate, seed)
        return self.goodputs[rate, seed]

    def _serve(self, rate: float, seed: int) -> None:
        result = goodput(self.run(rate, seed), self.slos, self.gpus)
        if result.attainment is None or result.goodput_per_gpu is None:
            raise InputError(f"rate search at {rate:g} requests/s, seed {seed}: {result.reason}")
        self.cache[rate, seed] = result.attainment
        self.goodputs[rate, seed] = result.goodput_per_gpu


def _check(
    gpus: float, target: float, lo: float, hi: float, seeds: Sequence[int], rel_tol: float
) -> None:
    faults = {
        f"gpus {gpus}: must be above 0": not 0 < gpus < math.inf,
        f"target {target}: is a share, above 0 and up to 1, such as 0.9": not 0 < target <= 1,
        f"rates {lo}..{hi}: need 0 < lo < hi, in requests/s": not 0 < lo < hi < math.inf,
        f"seeds {list(seeds)}: need at least one, each once": not seeds
        or len(set(seeds)) < len(seeds),
        f"rel_tol {rel_tol}: must be at least 0.0001": not 1e-4 <= rel_tol < math.inf,
    }
    for fault, broken in faults.items():
        if broken:
            raise InputError(f"rate search: {fault}")


def _verdict(found: dict[int, float], target: float, lo: float, hi: float) -> tuple[str, str]:
    rates = list(found.values())
    if not any(rates):
        return (
            "never met",
            f"attainment is below {target:g} even at {lo:g} requests/s; try a lower lo",
        )
    if hi in rates:
        count = f"{rates.count(hi)} of {len(rates)} seeds"
        return "at least", f"{count} still met {target:g} at {hi:g} requests/s; try a higher hi"
    return "found", ""


def _doubts(
    evaluations: Sequence[Evaluation], found: dict[int, float], target: float, lo: float
) -> list[str]:
    notes = []
    never = [seed for seed, rate in found.items() if not rate]
    if never and len(never) < len(found):
        notes.append(f"seeds {never} missed {target:g} even at {lo:g} requests/s and count as 0")
    for seed in found:
        points = sorted((e.rate, e.attainment) for e in evaluations if e.seed == seed)
        rises = [
            (high - low, slow, low, fast, high)
            for i, (slow, low) in enumerate(points)
            for fast, high in points[i + 1 :]
        ]
        rise, slow, low, fast, high = max(rises, default=(0.0, 0.0, 0.0, 0.0, 0.0))
        if rise > NOISE:
            notes.append(
                f"seed {seed}: attainment rises with the rate, {low:.3f} at {slow:g} and "
                f"{high:.3f} at {fast:g} requests/s; the runs are too short or too noisy for "
                f"this answer to be sharp"
            )
    return notes
