"""All published runs, replayed: as shipped, unfitted, fitted, and with another card's constants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from minilab.facts.cost import Constants
from minilab.judge import replay as one
from minilab.judge.replay_run import RUNS, PublishedRun
from minilab.judge.scores import Error


def replay_all(folder: str | Path, names: tuple[str, ...] = RUNS) -> list[dict[str, Any]]:
    """One row per run of ``folder`` as plain JSON values (see ``one_run``)."""
    return replays([PublishedRun.read(Path(folder) / name) for name in names])


def replays(runs: list[PublishedRun]) -> list[dict[str, Any]]:
    """One row per run; each also under the others' constants."""
    rows = [one_run(run) for run in runs]
    for run, row in zip(runs, rows, strict=True):
        row["carried"] = [
            {"from": other["run"], **one.report(run, _carry(other, run), ())}
            for other in rows
            if other["run"] != run.name
        ]
    return rows


def one_run(run: PublishedRun) -> dict[str, Any]:
    """A run unfitted, as shipped, fitted on two and on four terms, and what would ship from it.

    ``points``: measured and simulated TTFT of each request, in order of arrival (seconds).
    """
    start = one.start_of(run)
    terms = one.terms_of(run)
    fitted = one.fit_run(run, start, terms)
    four = (*terms, "t_layer", "t_seq")
    ships = replace(Constants.for_gpu(run.gpu), t_req=0.0)
    seen = one.replay(run, fitted.constants).requests
    shipped = replace(fitted.constants, t_req=Constants().t_req)
    return {
        "run": run.name,
        "model": run.spec.name,
        "gpu": run.gpu.name,
        "tp": run.tp,
        "engine": f"vLLM {run.version}",
        "fitted": list(terms),
        "shipped": shipped.to_dict(),
        "warning": fitted.warning(),
        "cases": {
            "nothing fitted": one.report(run, start, ()),
            "as the package ships": one.report(run, ships, ()),
            "two terms fitted": one.report(run, fitted.constants, terms),
            "four terms fitted": one.report(run, one.fit_run(run, start, four).constants, four),
        },
        "requests": {
            "tpot": _errors(seen.tpot, run.tpot[seen.ids]),
            "ttft": _errors(seen.ttft, run.ttft[seen.ids]),
        },
        "points": [
            [request.arrival, float(run.ttft[at]), float(made)]
            for at, made in zip(seen.ids, seen.ttft, strict=True)
            for request in (run.requests[at],)
        ],
    }


def _errors(made: np.ndarray, measured: np.ndarray) -> dict[str, Any]:
    known = np.isfinite(made) & (measured > 0)
    return Error.of(list(zip(made[known], measured[known], strict=True))).to_dict()


def _carry(other: dict[str, Any], run: PublishedRun) -> Constants:
    """The efficiencies of another run, on this run's card and link."""
    values = other["cases"]["two terms fitted"]["constants"]
    return replace(one.start_of(run), e_mem=values["e_mem"], e_comp=values["e_comp"])
