"""From rows to constants: six a GPU family, fitted on frozen compositions, scored by simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from minilab.facts.cost import FUSED_ALL_REDUCE, Constants
from minilab.facts.errors import InputError
from minilab.judge.closed_form import predict
from minilab.judge.composition import Simulated, simulate
from minilab.judge.fit import Equation, Fitted, fit
from minilab.judge.scores import Scored
from minilab.judge.silicon_rows import SiliconRow
from minilab.judge.terms import FITTED, TERMS, Array, matrix

Progress = Callable[[str], None]

TTFT_WEIGHT = 0.35
"""TTFT amplifies every error of a step by its queue, so it weighs less in a fit than TPOT."""

PRIORS = {
    "e_mem": 0.80,  # bf16 GEMM at up to 64 tokens: 0.72 to 0.80 (operator tables, H100, H200)
    "e_comp": 0.70,  # GEMM at 2048 tokens and more: 0.5 (fp8) to 0.8 (bf16)
    "e_moe": 0.20,  # grouped GEMM: 0.18 to 0.25 even at 8192 tokens
    "t_layer": 40e-6,
    "t_seq": 14e-6,
    "t_req": 25e-3,
}
"""Where operator tables put a constant, or experience where no table knows it."""


@dataclass(frozen=True)
class Frozen:
    """Rows and what a simulation under nearby constants found in them."""

    rows: tuple[SiliconRow, ...]
    seen: tuple[Simulated, ...]

    @classmethod
    def of(
        cls, rows: Sequence[SiliconRow], constants: Constants, progress: Progress | None = None
    ) -> Frozen:
        """Simulate each row once; those that cannot run at all are left out."""
        kept, seen = [], []
        for at, row in enumerate(rows, 1):
            try:
                seen.append(simulate(row, constants))
            except InputError:
                continue
            kept.append(row)
            if progress is not None and at % 50 == 0:
                progress(f"{at} of {len(rows)} rows")
        return cls(tuple(kept), tuple(seen))

    def equations(
        self, change: Callable[[SiliconRow, Array], Array] | None = None
    ) -> list[Equation]:
        """Two equations a row. ``change`` edits a row's cost matrix first (ablations).

        Each (model, GPU) pair counts the same, however many rows it has: what is asked of the
        constants is to hold for the next model, not for the most measured one.
        """
        count = Counter(row.pair for row in self.rows)
        even = len(self.rows) / len(count)
        made = []
        for row, seen in zip(self.rows, self.seen, strict=True):
            per_unit = matrix_of(row)
            if change is not None:
                per_unit = change(row, per_unit)
            weight = even / count[row.pair]
            made.append(Equation(seen.tpot_features @ per_unit, row.tpot, weight))
            made.append(Equation(seen.ttft_features @ per_unit, row.ttft, TTFT_WEIGHT * weight))
        return made


def matrix_of(row: SiliconRow) -> Array:
    """``terms.matrix``, scaled so that one all-reduce latency serves fused and unfused rows."""
    found = matrix(row)
    if row.launch.fused:
        found[:, TERMS.index("t_ar")] *= FUSED_ALL_REDUCE / Constants().t_ar
    return found


def fit_rows(
    rows: Sequence[SiliconRow],
    start: Constants,
    rounds: int = 2,
    names: Sequence[str] = FITTED,
    priors: Mapping[str, float] | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """Constants for ``rows`` (of one family): simulate, fit on what happened, and once more."""
    found = Fitted(start, {}, float("inf"))
    for _ in range(rounds):
        frozen = Frozen.of(rows, found.constants, progress)
        found = fit(frozen.equations(), found.constants, names, priors or PRIORS)
    return found


def score(row: SiliconRow, constants: Constants) -> Scored:
    """What simulator and closed form say about ``row``. Raises InputError where nothing fits."""
    seen = simulate(row, constants)
    closed = predict(row, constants)
    return Scored(row, seen.ttft, seen.tpot, closed.ttft, closed.tpot)
