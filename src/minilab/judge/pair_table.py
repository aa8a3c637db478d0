"""PairTable: one (model, GPU) pair's TPOT as a table to fit three constants to, by hand.

By the closed form a TPOT is a sum: seconds at peak bandwidth over ``e_mem``, seconds at peak FLOPs
over ``e_comp``, launches times ``t_layer``, and a rest. The table holds the three sums of work and
the rest under the constants that ship; lab 01 does the fit. Without the measurements a stand-in is
simulated, which says so and says nothing about silicon.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from minilab.facts.cost import Constants
from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu
from minilab.facts.models import get_model
from minilab.judge.closed_form import ClosedForm
from minilab.judge.composition import simulate
from minilab.judge.data import SILICON, data_folder
from minilab.judge.silicon_gate import read_silicon
from minilab.judge.silicon_rows import FILE, SiliconRow
from minilab.judge.split import halves
from minilab.judge.terms import TERMS, Array, matrix, row_values, values

COLUMNS = ("e_mem", "e_comp", "t_layer")
"""The constants of the columns of ``work``; the first two enter as 1 / share."""

FEWEST = 12
"""Rows of a table: half of them must outnumber three constants."""

_NOISE = 0.05  # of a made-up measurement, as a standard deviation of its logarithm
_GRID = {"tp": (2, 8), "isl": (1024, 4096), "osl": (128, 512), "concurrency": (8, 16, 32, 64)}


@dataclass(frozen=True)
class PairTable:
    """``measured`` is near ``known + work @ x`` for some x: 1/e_mem, 1/e_comp, t_layer.

    work: float64[n, 3], seconds at peak bandwidth, seconds at peak FLOPs, launches, each per output
    token. known: float64[n] seconds, the terms that stay as they ship. measured: float64[n]
    seconds, TPOT. held: bool[n], rows that a fit may not see, split by the hash of the row.
    ``real``: measured on silicon; ``source`` says where, or how it was made up.
    """

    pair: str
    work: Array
    known: Array
    measured: Array
    held: NDArray[np.bool_]
    real: bool
    source: str

    @property
    def shipped(self) -> Array:
        """float64[3]: x as the package ships it for this GPU."""
        x = values(Constants.for_gpu(get_gpu(self.pair.rpartition(" ")[2])))
        found: Array = x[_AT]
        return found


_AT = [TERMS.index(name) for name in COLUMNS]


def pair_table(model: str, gpu: str, data: str | None = None) -> PairTable:
    """The table of ``model`` on ``gpu`` from ``data`` (default: $MINILAB_DATA), or a stand-in.

    Raises InputError for a model or a GPU that nobody knows, or a pair with too few measurements.
    """
    get_model(model), get_gpu(gpu)
    try:
        path = data_folder(SILICON, data) / FILE
    except InputError:
        rows, real = _made_up(model, gpu), False
        source = (
            "made up: TPOT simulated under the shipped constants, with noise of "
            f"{_NOISE:.0%}; the real rows are not here (MINILAB_DATA), and these say nothing about "
            "silicon"
        )
    else:
        rows = [r for r in read_silicon(path).rows if r.spec.name == model and r.gpu.name == gpu]
        real, source = True, "AIConfigurator silicon data, vLLM, real"
    if len(rows) < FEWEST:
        raise InputError(
            f"{model} on {gpu}: {len(rows)} measurements, {FEWEST} asked; name another pair"
        )
    return _table(rows, real, source)


def _table(rows: Sequence[SiliconRow], real: bool, source: str) -> PairTable:
    held = {row.digest for row in halves(rows).held}
    work, known = [], []
    for row in rows:
        per_term = ClosedForm.of(row).tpot @ matrix(row)
        rest = row_values(row, values(Constants.for_gpu(row.gpu)))
        rest[_AT] = 0.0
        work.append(per_term[_AT])
        known.append(per_term @ rest)
    return PairTable(
        rows[0].pair,
        np.array(work),
        np.array(known),
        np.array([row.tpot for row in rows]),
        np.array([row.digest in held for row in rows]),
        real,
        f"{source} ({len(rows)} rows of {rows[0].pair})",
    )


def _made_up(model: str, gpu: str) -> list[SiliconRow]:
    """Simulated benchmarks, each off by a random factor."""
    rng = random.Random(f"{model} on {gpu}")
    constants = Constants.for_gpu(get_gpu(gpu))
    spec, card = get_model(model), get_gpu(gpu)
    rows = []
    for at, (tp, isl, osl, concurrency) in enumerate(product(*_GRID.values())):
        row = SiliconRow(
            f"made up {at}", "vllm", "", spec, card, gpu, spec.dtype, tp, isl, osl, concurrency,
            ttft=1.0, tpot=1.0,
        )  # fmt: skip
        noise = rng.lognormvariate(0.0, _NOISE)
        try:
            seen = simulate(row, constants)
        except InputError:  # so few GPUs do not hold the model
            continue
        rows.append(replace(row, ttft=seen.ttft, tpot=seen.tpot * noise))
    return rows
