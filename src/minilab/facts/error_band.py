"""How far a simulated latency may be off: what the fit behind it missed where it had not looked.

A band is no confidence interval of theory. It says where four of five held-back measurements lay,
as multiples of their prediction: of models that were among the fitted ones, or, for a model that
was not, of (model, GPU) pairs left out whole.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from minilab.facts.cost_constants import Constants, fit_for
from minilab.facts.hardware import GPU

COVERAGE = 0.8
NEW_MODEL = "error on (model, GPU) pairs left out of the fit whole"


class ErrorBand(NamedTuple):
    """``factors``: metric to (low, high), multiples of a prediction. ``basis``: in words."""

    basis: str
    factors: dict[str, tuple[float, float]]

    def around(self, metric: str, value: float | None) -> list[float] | None:
        """[low, high] around a predicted ``value``; None where either is unknown."""
        if value is None or metric not in self.factors:
            return None
        low, high = self.factors[metric]
        return [low * value, high * value]


def error_band(gpu: GPU, model: str, constants: Constants) -> ErrorBand | None:
    """The band of ``model`` on ``gpu`` under ``constants``; None where nobody measured one.

    Constants that somebody changed have no known error, nor has a card without a fit, nor another
    model on a card on which one model was measured.
    """
    entry = fit_for(gpu)
    if entry is None or constants != Constants.for_gpu(gpu):
        return None
    known = model in entry["models"]
    error: dict[str, Any] | None = entry["error"] if known else entry.get("new_model")
    if error is None:
        return None
    basis = entry["error_of"].partition(",")[0] if known else NEW_MODEL
    factors = {name: (e["low"], e["high"]) for name, e in error.items()}
    return ErrorBand(basis, factors)


def why_none(gpu: GPU, model: str, constants: Constants) -> str:
    """Why there is no band, in one line."""
    entry = fit_for(gpu)
    if entry is None:
        return f"no measurement of {gpu.name} was at hand to fit or to check its constants"
    if constants != Constants.for_gpu(gpu):
        return "constants of your own: their error is yours to measure"
    return f"{model} was not measured on {gpu.name}; only {', '.join(entry['models'])} was"
