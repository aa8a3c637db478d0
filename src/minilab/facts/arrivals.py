"""How requests arrive: times, lengths and names drawn at random, and the figures that sum them up.

Every draw takes a generator, so that one seed gives one workload. The pieces of a workload draw
from separate streams of its seed (``stream``): a higher rate moves the same requests closer
together and leaves their lengths alone, which keeps a comparison of two rates paired.

It holds the parts that ``workload`` puts together, and the check that they fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from minilab.facts.errors import InputError
from minilab.facts.prefix_stats import Prompt, segments
from minilab.facts.request import Request

MAX_TOKENS = 10_000_000
"""A prompt or an output longer than this is taken for a mistake (a unit, a wrong column)."""

ARRIVALS = ("poisson", "gamma", "constant")
Z99 = 2.3263478740408408  # the standard normal distribution's 99th percentile


def positive(name: str, value: float, hint: str) -> float:
    """The value, if it is a finite number above 0; an InputError naming it otherwise."""
    if not (isinstance(value, (int, float, np.number)) and math.isfinite(value) and value > 0):
        raise InputError(f"{name} {value!r}; must be a finite number above 0; give {hint}")
    return float(value)


def whole(name: str, value: int, least: int = 1) -> int:
    """The value, if it is a whole number of at least ``least``; an InputError otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(f"{name} {value!r}; at least {least}; give a whole number")
    return int(value)


def stream(seed: int, purpose: int) -> np.random.Generator:
    """The random stream of one purpose (0 arrivals, 1 lengths, ...) under a seed >= 0."""
    return np.random.default_rng([whole("seed", seed, 0), purpose])


def arrival_times(
    kind: str, rate: float, n: int, rng: np.random.Generator, cv: float = 1.0
) -> NDArray[np.float64]:
    """Arrival times in seconds, float64[n], ascending from 0, at ``rate`` requests per second.

    ``poisson`` has exponential gaps, ``gamma`` gaps of coefficient of variation ``cv`` (shape
    1/cv**2: below 1 more even than Poisson, above 1 bursts), ``constant`` gaps of 1/rate.
    """
    positive("rate", rate, "requests per second, such as rate=4")
    gaps = np.ones(whole("n", n))
    if kind == "poisson":
        gaps = rng.exponential(size=n)
    elif kind == "gamma":
        shape = positive("cv", cv, "the gaps' standard deviation over their mean") ** -2
        gaps = rng.gamma(shape, 1.0 / shape, size=n)
    elif kind != "constant":
        raise InputError(f"arrivals {kind!r}; unknown; use one of {', '.join(ARRIVALS)}")
    gaps[0] = 0.0
    return np.cumsum(gaps) / rate


@dataclass(frozen=True)
class Length:
    """A distribution of lengths in tokens; ``fixed``, ``uniform`` and ``lognormal`` make one.

    ``spread`` is the jitter (a share of the mean) of a uniform one, the p99 in tokens of a
    lognormal one.
    """

    kind: Literal["fixed", "uniform", "lognormal"]
    mean: float
    spread: float = 0.0

    def __post_init__(self) -> None:
        _tokens("mean length", self.mean)
        widest = self.mean * math.exp(Z99**2 / 2)
        if self.kind == "uniform" and not 0 <= self.spread <= 1:
            raise InputError(f"jitter {self.spread!r}; a share from 0 to 1; 0.2 means +-20 %")
        if self.kind == "lognormal" and not self.mean <= self.spread <= widest:
            raise InputError(
                f"p99 {self.spread!r}; a lognormal of mean {self.mean:g} has its p99 from "
                f"{self.mean:g} to {widest:.0f}; change one of the two"
            )

    def draw(self, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        """Lengths in tokens, int64[n], each from 1 to MAX_TOKENS."""
        if self.kind == "fixed":
            return np.full(n, round(self.mean), np.int64)
        if self.kind == "uniform":
            low, high = self.mean * (1 - self.spread), self.mean * (1 + self.spread)
            return rng.integers(max(1, round(low)), max(1, round(high)), size=n, endpoint=True)
        # ln(p99 / mean) = z sigma - sigma**2 / 2: the smaller root is the narrower distribution
        sigma = Z99 - math.sqrt(max(0.0, Z99**2 - 2 * math.log(self.spread / self.mean)))
        tokens = rng.lognormal(math.log(self.mean) - sigma**2 / 2, sigma, size=n)
        return np.clip(np.rint(tokens), 1, MAX_TOKENS).astype(np.int64)


def fixed(tokens: int) -> Length:
    """Always this many tokens."""
    return Length("fixed", tokens)


def uniform(mean: float, jitter: float) -> Length:
    """Uniform from mean * (1 - jitter) to mean * (1 + jitter), jitter from 0 to 1."""
    return Length("uniform", mean, jitter)


def lognormal(mean: float, p99: float) -> Length:
    """Lognormal with this mean and 99th percentile (tokens), the usual shape of chat lengths."""
    return Length("lognormal", mean, p99)


def lengths(name: str, value: Length | int, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
    """n lengths int64[n] of a distribution, or of a plain number of tokens >= 1."""
    chosen = value if isinstance(value, Length) else Length("fixed", _tokens(name, value))
    return chosen.draw(rng, n)


def _tokens(name: str, value: float) -> float:
    if not (isinstance(value, (int, float, np.number)) and 1 <= value <= MAX_TOKENS):
        raise InputError(f"{name} {value!r}; from 1 to {MAX_TOKENS} tokens; check the unit")
    return value


def labels(
    what: str, weights: Mapping[str, float] | None, rng: np.random.Generator, n: int
) -> list[str]:
    """n names drawn by weight (on any positive scale); ``""`` everywhere without weights."""
    if not weights:
        return [""] * n
    share = np.array([positive(f"{what} {k}: weight", w, "a share") for k, w in weights.items()])
    names = list(weights)
    return [names[k] for k in rng.choice(len(names), size=n, p=share / share.sum())]


def turn(
    rows: list[Request],
    arrival: float,
    text: Prompt,
    own: int,
    output: int,
    session: int,
    after: int | None = None,
    think: float = 0.0,
) -> Prompt:
    """Append the request for ``text`` and ``own`` new tokens; the text once it is answered.

    Row k's new text has content id 2k+1 and its answer 2k+2; 0 is left to a system prompt.
    """
    k = len(rows)
    prompt = (*text, (2 * k + 1, own))
    size, answer = sum(length for _, length in prompt), 2 * k + 2
    request = Request(k, arrival, size, output, prompt, answer)
    rows.append(request._replace(session=session, after=after, think=think))
    return (*prompt, (answer, output))


def in_order(rows: Sequence[Request]) -> list[Request]:
    """The rows by arrival, renumbered, ``after`` with them (ties keep their order)."""
    order = sorted(range(len(rows)), key=lambda k: rows[k].arrival)
    rank: dict[int | None, int | None] = {old: new for new, old in enumerate(order)}
    rank[None] = None
    return [rows[k]._replace(id=new, after=rank[rows[k].after]) for new, k in enumerate(order)]


def describe(
    arrival: NDArray[np.float64], prompt: NDArray[np.int64], output: NDArray[np.int64]
) -> dict[str, Any]:
    """The figures a trace is known by, JSON-able; None where all arrive at one time.

    rows; span_s (last minus first arrival); rate (rows per second of span); distinct_timestamps;
    cv (standard deviation over mean of the gaps); per_minute (requests in each minute: min,
    median, max; the last minute may be cut short); input and output (tokens: mean, p50, p90, p99,
    max); in_out (input tokens over output tokens). Percentiles are numpy's linear ones.
    """
    gaps = np.diff(arrival)
    span = float(arrival[-1] - arrival[0])
    minutes = np.bincount(((arrival - arrival[0]) // 60).astype(np.int64))
    low, middle, high = (float(q) for q in np.percentile(minutes, [0, 50, 100]))
    return {
        "rows": len(arrival),
        "span_s": span,
        "rate": len(arrival) / span if span > 0 else None,
        "distinct_timestamps": len(np.unique(arrival)),
        "cv": float(gaps.std() / gaps.mean()) if span > 0 else None,
        "per_minute": {"min": int(low), "median": middle, "max": int(high)},
        "input": _quantiles(prompt),
        "output": _quantiles(output),
        "in_out": float(prompt.sum() / output.sum()),
    }


def _quantiles(tokens: NDArray[np.int64]) -> dict[str, float]:
    p50, p90, p99 = (float(q) for q in np.percentile(tokens, [50, 90, 99]))
    top = int(tokens.max())
    return {"mean": float(tokens.mean()), "p50": p50, "p90": p90, "p99": p99, "max": top}


def check(name: str, requests: Sequence[Request]) -> None:
    """An InputError on the first request that cannot be replayed, as ``name:request ROW: ...``."""

    def refuse(bad: NDArray[np.bool_], what: str, column: Sequence[object], rule: str) -> None:
        if bad.any():
            row = int(np.argmax(bad))
            raise InputError(f"{name}:request {row}: {what} {column[row]!r}; {rule}")

    def numbers(what: str, column: Sequence[object]) -> NDArray[np.float64]:
        try:
            return np.array(column, np.float64)
        except (TypeError, ValueError):
            odd = np.array([not isinstance(v, (int, float, np.number)) for v in column])
            refuse(odd, what, column, "must be a number; mend it")
            raise

    if not requests:
        raise InputError(f"{name}: 0 requests; a workload has at least 1; add requests")
    ids, arrival, prompt, output, texts, *_, after, think = zip(*requests, strict=True)
    n = np.arange(len(ids))
    refuse(numbers("id", ids) != n, "id", ids, "ids are 0, 1, 2, ... by arrival; renumber")
    for what, column in (("arrival", arrival), ("think", think)):
        seconds = numbers(what, column)
        sound = np.isfinite(seconds) & (seconds >= 0)
        refuse(~sound, what, column, "must be finite seconds >= 0; mend it")
    late = np.diff(numbers("arrival", arrival), prepend=0.0) < 0
    refuse(late, "arrival", arrival, "must not be before the previous request's; sort by arrival")
    for what, column in (("prompt_tokens", prompt), ("output_tokens", output)):
        size = numbers(what, column)
        sound = (size >= 1) & (size <= MAX_TOKENS) & (size == np.floor(size))
        refuse(~sound, what, column, f"a whole number from 1 to {MAX_TOKENS}; check the column")
    counts, content, length = segments(texts)
    owner = np.repeat(n, np.maximum(counts, 0))
    odd = np.bincount(owner[(content < 0) | (length < 1)], minlength=len(n)) > 0
    refuse(odd, "prompt", texts, "segments are (content id >= 0, length >= 1); mend them")
    total = np.bincount(owner, weights=length, minlength=len(n))
    wrong = (counts >= 0) & (total != np.array(prompt))
    refuse(wrong, "prompt segments of", total.tolist(), "must add up to prompt_tokens; mend one")
    ahead = np.array([a is not None and not 0 <= a < k for k, a in enumerate(after)])
    refuse(ahead, "after", after, "only an earlier request can be waited for; reorder them")
