"""The fit finds what made the numbers, says when it cannot, and simulation agrees with algebra."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from minilab.facts.cost import Constants
from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu
from minilab.facts.models import get_model
from minilab.judge.closed_form import predict
from minilab.judge.composition import simulate
from minilab.judge.fit import Equation, fit
from minilab.judge.launches import Launch
from minilab.judge.silicon_fit import Frozen, fit_rows
from minilab.judge.terms import FITTED, TERMS, matrix, moe_launches, row_values, values

TRUTH = Constants(0.7, 0.6, 0.2, 30e-6, 20e-6, 15e-3)


def a_few(make_row):
    """Rows that tell the constants apart: both loads, both lengths, one GPU and two."""
    return [
        make_row(concurrency=c, isl=isl, osl=32, tp=tp, spec=get_model(name))
        for c, isl in ((1, 128), (4, 2048), (16, 128), (16, 1024))
        for tp in (1, 2)
        for name in ("llama-3.1-8b", "qwen3-30b-a3b")
    ]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(
    ("model", "gpu", "tp"),
    [("llama-3.1-8b", "h100", 1), ("gpt-oss-20b", "b200", 2), ("qwen3-30b-a3b", "h100", 2)],
)
def test_frozen_composition_is_the_simulation(make_row, model, gpu, tp, fused):
    """If features times constants is not what the clock showed, the fit fits something else."""
    launch = Launch(fused=fused)
    row = make_row(spec=get_model(model), gpu=get_gpu(gpu), tp=tp, concurrency=6, launch=launch)
    constants = replace(TRUTH, moe_launches=moe_launches(row.gpu))
    seen = simulate(row, constants)
    seconds = matrix(row) @ row_values(row, values(constants))
    assert seen.tpot_features @ seconds == pytest.approx(seen.tpot, rel=1e-6)
    assert seen.ttft_features @ seconds == pytest.approx(seen.ttft, rel=1e-6)
    assert seen.unserved == 0


def test_fit_finds_the_constants_that_made_the_rows(make_row):
    """A sign or a unit wrong in the slopes, and it stops somewhere else."""
    rows = []
    for row in a_few(make_row):
        made = simulate(row, TRUTH)
        rows.append(replace(row, ttft=made.ttft, tpot=made.tpot))
    start = Constants(0.9, 0.9, 0.12, 50e-6, 10e-6, 25e-3)
    found = fit_rows(rows, start, rounds=3).constants
    for name in ("e_mem", "e_comp", "t_layer", "t_req"):
        assert getattr(found, name) == pytest.approx(getattr(TRUTH, name), rel=0.05), name
    again = [simulate(row, found) for row in rows]
    assert max(abs(s.tpot / row.tpot - 1) for s, row in zip(again, rows, strict=True)) < 0.02


def test_a_fit_that_leaves_its_range_says_so():
    """A constant stopped by its bound looks like an estimate if nobody says otherwise."""
    features = np.zeros(len(TERMS))
    features[TERMS.index("e_mem")] = 1e-3
    rows = [Equation(features, 1e-4)] * 3  # ten times faster than the peak allows
    found = fit(rows, Constants(), ["e_mem"])
    assert found.constants.e_mem == pytest.approx(1.2)
    assert "e_mem at 1.2; the number is a bound" in (found.warning() or "")
    fine = fit([Equation(features, 1e-3 / 0.7)] * 300, Constants(), ["e_mem"])
    assert fine.warning() is None and fine.constants.e_mem == pytest.approx(0.7, rel=0.01)


def test_priors_hold_what_rows_do_not_tell():
    """Without them, a constant no row mentions would end anywhere."""
    features = np.zeros(len(TERMS))
    features[TERMS.index("e_mem")] = 1e-3
    found = fit([Equation(features, 2e-3)] * 50, Constants(), FITTED, {"e_moe": 0.2})
    assert found.constants.e_moe == pytest.approx(0.2, rel=1e-3)
    assert found.constants.e_mem == pytest.approx(0.5, rel=0.02)


def test_an_odd_row_does_not_pull():
    """Squared errors would let one wrong row decide."""
    features = np.zeros(len(TERMS))
    features[TERMS.index("t_req")] = 1.0
    rows = [Equation(features, 0.02)] * 20 + [Equation(features, 2.0)]
    assert fit(rows, Constants(), ["t_req"]).constants.t_req == pytest.approx(0.02, rel=0.06)


def test_too_few_rows_are_refused():
    """Six constants through three points fit anything."""
    rows = [Equation(np.ones(len(TERMS)), 1.0)] * 3
    with pytest.raises(InputError, match="3 measurements for 6 constants"):
        fit(rows, Constants())


@pytest.mark.parametrize("concurrency", [1, 16, 64])
@pytest.mark.parametrize("isl", [256, 4096])
def test_closed_form_is_near_the_simulation(make_row, concurrency, isl):
    """The selector shows the closed form; it may not live in another world than the simulator."""
    row = make_row(concurrency=concurrency, isl=isl, osl=256)
    seen, closed = simulate(row, TRUTH), predict(row, TRUTH)
    assert closed.tpot == pytest.approx(seen.tpot, rel=0.1)
    assert closed.ttft == pytest.approx(seen.ttft, rel=0.45)


def test_prefill_of_others_is_in_the_closed_form(make_row):
    """TPOT as a decode step alone misses half of it at long prompts and short outputs."""
    alone = predict(make_row(concurrency=1, isl=4096, osl=64), TRUTH).tpot
    shared = predict(make_row(concurrency=32, isl=4096, osl=64), TRUTH).tpot
    assert shared > 2 * alone


def test_frozen_leaves_out_what_cannot_run(make_row):
    """A model that does not fit would end the whole calibration."""
    large = make_row(spec=get_model("llama-3.1-405b"))
    assert len(Frozen.of([large, make_row()], TRUTH).rows) == 1
