"""What a choice does to a fit: a planted truth shows on which side of it the figures fall."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from minilab.facts.cost import Constants
from minilab.judge.closed_form import predict
from minilab.judge.sensitivity import link_shares, pair_weights, pairs_alike, rows_alike

TRUTH = Constants(0.9, 0.7, 0.2, 40e-6, 14e-6, 20e-3, e_link=0.30)
RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "calibration.json"


def measured(make_row, constants=TRUTH, **changes):
    """Rows on several GPUs under many loads, as ``constants`` would have it."""
    rows = [
        make_row(tp=tp, isl=isl, osl=osl, concurrency=c, **changes)
        for tp in (2, 4)
        for isl, osl in ((512, 128), (4096, 64), (4096, 512))
        for c in (2, 8, 32)
    ]
    seen = [(row, predict(row, constants)) for row in rows]
    return [replace(row, ttft=made.ttft, tpot=made.tpot) for row, made in seen]


def test_a_link_share_too_low_is_made_up_by_compute(make_row):
    """The oddity that the page explains: at the true share the true compute share comes out."""
    found = {row["e_link"]: row for row in link_shares(measured(make_row))}
    assert found[0.30]["e_comp"] == pytest.approx(0.7, rel=0.05)
    assert found[0.15]["e_comp"] > 0.8 > 0.65 > found[0.40]["e_comp"]
    assert found[0.30]["tpot"]["median"] < 0.01 < found[0.10]["tpot"]["median"]


def test_each_pair_weighs_the_same(make_row):
    """However many rows it has; the mean weight stays 1, or the priors would weigh more."""
    rows = [make_row()] * 6 + [make_row(system="h200")] * 2
    total = Counter()
    for row, weight in zip(rows, pairs_alike(rows), strict=True):
        total[row.pair] += weight
    assert list(total.values()) == pytest.approx([4.0, 4.0])
    assert sum(rows_alike(rows)) == sum(pairs_alike(rows)) == pytest.approx(8)


def test_the_most_measured_pair_pulls_where_rows_weigh_the_same(make_row):
    """Two quick pairs, and a slow one with four times the rows: left out, a quick one is predicted
    from the other and the slow one, and comes out slower where that one has four votes of five."""
    slow = replace(TRUTH, e_mem=0.6, e_comp=0.47, t_layer=60e-6)
    rows = measured(make_row) + measured(make_row, system="h200")
    rows += [
        replace(row, version=str(again))
        for again in range(4)
        for row in measured(make_row, slow, system="slow h100")
    ]
    found = {row["alike"]: row["tpot"] for row in pair_weights(rows)}
    assert {one["n"] for one in found.values()} == {len(rows)}
    assert found["each row"]["p90"] > 1.05 * found["each pair"]["p90"]


def test_page_and_result_tell_of_the_same_rows():
    """The choices are judged on the rows of the table beside which they stand."""
    known = json.loads(RESULT.read_text())
    hopper = known["silicon"]["left_out"]["hopper"]["tpot"]["n"]
    assert {row["tpot"]["n"] for row in known["choices"]["weights"]} == {hopper}
    fixed = known["silicon"]["families"]["hopper"]["constants"]["e_link"]
    assert fixed in [row["e_link"] for row in known["choices"]["link"]]
