"""The silicon calibration: fit on one half, score the other, leave pairs out, take terms away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minilab.facts.cost import Constants
from minilab.judge.ablation import ablate
from minilab.judge.fit import Fitted, fit
from minilab.judge.scores import Scored, errors, spread, table
from minilab.judge.silicon_fit import PRIORS, Frozen, Progress, fit_rows
from minilab.judge.silicon_gate import Silicon
from minilab.judge.silicon_rows import SiliconRow
from minilab.judge.split import halves, leave_one_pair_out
from minilab.judge.store import ScoreStore
from minilab.judge.terms import moe_launches

FAMILIES = ("hopper", "blackwell")


def calibrate(
    silicon: Silicon,
    store: ScoreStore,
    leave_out: bool = True,
    ablations: bool = True,
    progress: Progress = lambda text: None,
) -> dict[str, Any]:
    """Everything about ``silicon`` as plain JSON values (see ``benchmarks/calibration.py``)."""
    held: list[Scored] = []
    out: list[Scored] = []
    result: dict[str, Any] = {"rows": len(silicon.rows), "families": {}, "left_out": {}}
    result["refused"] = _reasons(silicon)
    result["spread"] = spread(silicon.rows)
    for family in FAMILIES:
        rows = [row for row in silicon.rows if row.family == family]
        if len(rows) < 24:  # two rows a constant in each half
            continue
        split = halves(rows)
        progress(f"{family}: fit on {len(split.fit)} rows")
        fitted = fit_rows(split.fit, start(rows), progress=progress)
        scored = store.score_all(split.held, fitted.constants, progress)
        held += scored
        result["families"][family] = _family(fitted, split.fit, scored)
        if leave_out:
            left = _leave_out(rows, store, progress)
            out += left
            result["left_out"][family] = _errors(left)
    result["held"] = _errors(held)
    result["held_by_pair"] = table(held, lambda row: row.pair)
    if leave_out:
        result["left_out"]["by_pair"] = table(out, lambda row: row.pair)
    if ablations:
        progress("ablations")
        result["ablation"] = ablate(halves(silicon.rows), start, FAMILIES)
    result["points"] = [[s.row.pair, s.row.tpot, s.tpot, s.row.ttft, s.ttft] for s in held]
    return result


def start(rows: Sequence[SiliconRow]) -> Constants:
    """Where a fit begins: priors for the six, and the two that stay fixed (t_ar, e_link)."""
    launches = moe_launches(rows[0].gpu)
    comp = 0.9 if rows[0].family == "hopper" else 0.5
    return Constants(0.9, comp, 0.15, 40e-6, 14e-6, 30e-3, moe_launches=launches)


def _leave_out(rows: list[SiliconRow], store: ScoreStore, progress: Progress) -> list[Scored]:
    frozen = Frozen.of(rows, fit_rows(halves(rows).fit, start(rows), rounds=1).constants)
    known = dict(zip((row.digest for row in frozen.rows), frozen.seen, strict=True))
    scored: list[Scored] = []
    for name, split in leave_one_pair_out(frozen.rows):
        progress(f"without {name}")
        part = Frozen(tuple(split.fit), tuple(known[row.digest] for row in split.fit))
        scored += store.score_all(split.held, _fit_frozen(part, start(rows)).constants, progress)
    return scored


def _fit_frozen(part: Frozen, begin: Constants) -> Fitted:
    return fit(part.equations(), begin, priors=PRIORS)


def _family(fitted: Fitted, fit_half: list[SiliconRow], scored: list[Scored]) -> dict[str, Any]:
    return {
        "constants": fitted.constants.to_dict(),
        "warning": fitted.warning(),
        "fitted_rows": len(fit_half),
        "models": sorted({row.spec.name for row in fit_half}),
        "gpus": sorted({row.gpu.name for row in fit_half}),
        **_errors(scored),
    }


def _errors(scored: list[Scored]) -> dict[str, Any]:
    return {name: error.to_dict() for name, error in errors(scored).items()} if scored else {}


def _reasons(silicon: Silicon) -> dict[str, int]:
    """Refused rows by kind of reason."""
    kinds: dict[str, Callable[[str], bool]] = {
        "the same measurement twice": lambda r: r.startswith("the same"),
        "number of GPUs ambiguous": lambda r: "ambiguous" in r,
        "load unknown": lambda r: "load is unknown" in r,
        "physically impossible": lambda r: "weights of" in r or "peak" in r,
        "no measurement (a length or a time below 1 or 0)": lambda r: r.endswith(
            ("at least 1", "above 0")
        ),
    }
    counts = {
        name: sum(match(refused.reason) for refused in silicon.refused)
        for name, match in kinds.items()
    }
    counts["other"] = len(silicon.refused) - sum(counts.values())
    return counts
