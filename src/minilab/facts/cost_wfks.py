"""WfksCost: a step's cost in the four numbers one can fit on a single published run."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from minilab.facts.cost_terms import LinearCost, StepShape, Term, table
from minilab.facts.errors import InputError

# The largest value that can be seconds; above it somebody wrote milliseconds.
LIMITS = {"w": 1.0, "f": 0.05, "k": 1e-4, "s": 0.1, "q": 1e-4, "t_req": 30.0}


@dataclass(frozen=True)
class WfksCost:
    """Seconds per step ``w``, per token ``f``, per context token ``k``, per sequence ``s``.

    ``q`` is seconds per prefill (query, key) pair, ``t_req`` seconds per request outside steps.
    Raises InputError for values that are negative, not finite, or look like milliseconds.
    """

    w: float
    f: float
    k: float
    s: float
    q: float = 0.0
    t_req: float = 0.0

    def __post_init__(self) -> None:
        for name, limit in LIMITS.items():
            value = getattr(self, name)
            number = not isinstance(value, bool) and isinstance(value, (int, float))
            if not number or not math.isfinite(value) or value < 0:
                raise InputError(f"cost {name} is {value!r}; give seconds, 0 or more")
            if value > limit:
                raise InputError(
                    f"cost {name} is {value} seconds; expected at most {limit:g}; "
                    f"did you mean {value / 1e3:g} ({value} ms)?"
                )
        if self.w + self.f <= 0:
            raise InputError("cost w and f are both 0: a step would take no time; give w or f")

    @property
    def request_overhead(self) -> float:
        """Seconds per request outside any step."""
        return self.t_req

    def breakdown(self, shape: StepShape) -> list[Term]:
        """The terms of the sum with their arithmetic."""
        counts = [
            ("step", self.w, 1),
            ("tokens", self.f, shape.num_tokens),
            ("context", self.k, shape.context),
            ("sequences", self.s, shape.num_seqs),
            ("pairs", self.q, shape.pairs),
        ]
        return [Term(name, rate * n, f"{n} x {rate * 1e6:g} us") for name, rate, n in counts]

    def terms(self, shape: StepShape) -> dict[str, float]:
        """Seconds by name."""
        return {term.name: term.seconds for term in self.breakdown(shape)}

    def seconds(self, shape: StepShape) -> float:
        """The step's duration in seconds."""
        return sum(self.terms(shape).values())

    def explain(self, shape: StepShape) -> str:
        """A table of the terms."""
        return table("w, f, k, s as given", self.breakdown(shape))

    def linear(self) -> LinearCost:
        """The same cost as coefficients."""
        return LinearCost(
            per_seq=self.s,
            per_context=self.k,
            per_pair=self.q,
            request_overhead=self.t_req,
            fixed=self.w,
            per_token=self.f,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)
