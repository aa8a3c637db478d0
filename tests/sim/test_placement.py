"""The search finds what trying everything finds, and goes on where it was killed."""

from __future__ import annotations

import json

import pytest

from minilab.facts.errors import InputError
from minilab.sim.experiment import Experiment
from minilab.sim.knee import find_knee
from minilab.sim.pd_experiment import PdExperiment
from minilab.sim.placement import Placement, placements, search

BASE = Experiment().with_(trace="synthetic", limit=60, prompt_tokens=2000, output_tokens=40)
SLO = "ttft=0.4,itl=0.03"
FEW = [Placement(0, 1, 1, 1), Placement(1, 1, 1, 1), Placement(2, 1, 1, 1)]
HOW = {"rel_tol": 0.2, "lo_per_gpu": 0.5, "hi_per_gpu": 30.0, "progress": False}


def test_every_placement_once_and_none_that_is_a_multiple() -> None:
    found = placements(4, (1, 2))
    assert len(found) == len(set(found))
    assert all(placement.gpus <= 4 for placement in found)
    assert Placement(1, 1, 1, 1) in found and Placement(2, 1, 2, 1) not in found
    assert Placement(1, 2, 1, 2) in found and Placement(3, 1, 1, 1) in found
    assert {p.decode_tp for p in found if not p.prefill} == {1, 2}


def test_the_best_comes_first_and_has_the_rate_that_bisection_finds() -> None:
    found = search(BASE, FEW, SLO, **HOW)
    rates = [placed.rate_per_gpu for placed in found]
    assert rates == sorted(rates, reverse=True) and rates[-1] > 0
    split = next(placed for placed in found if str(placed.placement) == "1 x tp1 + 1 x tp1")
    alone = find_knee(PdExperiment.split(BASE), SLO, lo=1.0, hi=60.0, seeds=(0,), rel_tol=0.2)
    assert split.rate_per_gpu == alone.rate_per_gpu


def test_a_search_goes_on_where_it_was_killed(tmp_path) -> None:
    store = tmp_path / "search.jsonl"
    whole = search(BASE, FEW, SLO, out=store, **HOW)
    lines = store.read_text().splitlines()
    store.write_text("\n".join(lines[:5]) + "\n" + lines[5][:20])  # killed while it wrote
    again = search(BASE, FEW, SLO, out=store, **HOW)
    assert [p.row() for p in again] == [p.row() for p in whole]
    after = [json.loads(line) for line in store.read_text().splitlines()]
    assert len(after) == len(lines) and after[:5] == [json.loads(line) for line in lines[:5]]


def test_loads_of_another_slo_are_not_taken_for_ours(tmp_path) -> None:
    store = tmp_path / "search.jsonl"
    search(BASE, FEW[:1], SLO, out=store, **HOW)
    strict = search(BASE, FEW[:1], "ttft=0.001", out=store, **HOW)
    assert strict[0].rate_per_gpu == 0


def test_what_does_not_fit_is_named_not_dropped() -> None:
    base = BASE.with_(model="llama-3.1-70b", gpu="h100")
    found = search(base, [Placement(1, 1, 1, 4), Placement(0, 1, 1, 4)], SLO, **HOW)
    misfit = next(placed for placed in found if placed.placement.prefill)
    assert misfit.result is None and "prefill side" in misfit.reason


@pytest.mark.parametrize("text", ["{}\n", "rate,seed\n1,2\n"])
def test_another_file_is_not_overwritten(tmp_path, text) -> None:
    store = tmp_path / "notes.jsonl"
    store.write_text(text)
    with pytest.raises(InputError, match=r"notes.jsonl:1: not a line of a placement search"):
        search(BASE, FEW[:1], SLO, out=store, **HOW)
    assert store.read_text() == text


def test_no_candidates_are_refused() -> None:
    with pytest.raises(InputError, match="no candidates"):
        search(BASE, [], SLO)
    with pytest.raises(InputError, match="at least 1"):
        placements(0)
