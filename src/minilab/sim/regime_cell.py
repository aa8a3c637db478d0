"""One point of a regime map: what two sides did there, and the verdict on it.

The rule is ``Judge``'s: neither serves; or one is better by more than a margin that the seeds can
vouch for; or there is no difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minilab.facts.confidence import Interval, mean_ci
from minilab.facts.errors import InputError
from minilab.sim.sweep_row import Row

WINS, LOSES, EQUAL, NEITHER = "wins", "loses", "no difference", "neither serves"
VERDICTS = (WINS, LOSES, EQUAL, NEITHER)

MORE_IS_BETTER = (
    "goodput_per_gpu", "goodput", "attainment", "throughput", "completed", "token_hit_rate"
)  # fmt: skip
"""Of all other numbers of a row (times, preemptions, KV use) less is better."""


class Cell(NamedTuple):
    """One point of the map, seen from A.

    ``a``, ``b``: the metric, mean over the seeds with its interval; None for a side that cannot be
    built or finished nothing. ``difference``: A's advantage as a share of the better mean (+0.2: B
    reaches 80 % of A), paired by seed; None where a side has no value. ``attainment_a``,
    ``attainment_b``: means, None if unavailable.
    """

    verdict: str
    a: Interval | None
    b: Interval | None
    difference: Interval | None
    attainment_a: float | None
    attainment_b: float | None

    def __str__(self) -> str:
        if self.verdict == NEITHER or self.difference is None:
            return self.verdict
        return f"{self.verdict} {percent(self.difference.value)}"

    def flat(self) -> dict[str, Any]:
        """Every number by a name of its own: a, a_low, a_high, b, ..."""
        flat = self._asdict()
        for name in ("a", "b", "difference"):
            interval = flat[name] or (None, None, None)
            flat |= zip((name, f"{name}_low", f"{name}_high"), interval, strict=True)
        return flat

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; ``from_dict`` reads them back."""
        return {k: v._asdict() if isinstance(v, Interval) else v for k, v in self._asdict().items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Cell:
        """The cell that ``to_dict`` described."""
        bounds = {name: data[name] for name in ("a", "b", "difference")}
        found = {name: v if v is None else Interval(**v) for name, v in bounds.items()}
        return cls(**{**data, **found})


class Judge(NamedTuple):
    """How two sides are compared: by which number of their rows, and what counts."""

    metric: str
    margin: float
    least_attainment: float

    def cell(self, a: Sequence[Row], b: Sequence[Row]) -> Cell:
        """From the rows of each side, one per seed in the same order; no rows: it cannot be built.

        Raises:
            InputError: requests finished, yet the metric is unavailable.
        """
        ours, theirs = self._values(a), self._values(b)
        difference = None if ours is None or theirs is None else self._paired(ours, theirs)
        share_a, share_b = _attainment(a), _attainment(b)
        a_serves, b_serves = self._serves(ours, share_a), self._serves(theirs, share_b)
        if not (a_serves or b_serves):
            verdict = NEITHER
        elif difference is None:
            verdict = WINS if a_serves else LOSES
        else:
            verdict = self._verdict(difference)
        return Cell(verdict, _mean(ours), _mean(theirs), difference, share_a, share_b)

    def _values(self, rows: Sequence[Row]) -> list[float] | None:
        values = [row[self.metric] for row in rows]
        if None not in values:
            return values or None
        completed = max(row["completed"] for row in rows)
        if completed:
            raise InputError(
                f"regime map: {self.metric} is unavailable although {completed} requests finished; "
                "choose another metric"
            )
        return None

    def _serves(self, values: list[float] | None, attainment: float | None) -> bool:
        return values is not None and (attainment is None or attainment >= self.least_attainment)

    def _paired(self, ours: Sequence[float], theirs: Sequence[float]) -> Interval:
        sign = 1 if self.metric in MORE_IS_BETTER else -1
        scale = max(abs(mean_ci(ours).value), abs(mean_ci(theirs).value)) or 1.0
        return mean_ci([sign * (p - q) / scale for p, q in zip(ours, theirs, strict=True)])

    def _verdict(self, difference: Interval) -> str:
        value, low, high = difference
        if abs(value) <= self.margin:
            return EQUAL
        if low is not None and high is not None and low <= 0 <= high:
            return EQUAL
        return WINS if value > 0 else LOSES


def _mean(values: list[float] | None) -> Interval | None:
    return None if values is None else mean_ci(values)


def _attainment(rows: Sequence[Row]) -> float | None:
    shares = [row["attainment"] for row in rows]
    return None if None in shares or not shares else mean_ci(shares).value


def percent(share: float) -> str:
    """+18 %, 0 %, -4 %."""
    whole = round(100 * share)
    return f"{whole:+d} %" if whole else "0 %"
