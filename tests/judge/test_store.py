"""An interrupted pass goes on where it was, and never mixes scores of different constants."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minilab.facts.cost import Constants
from minilab.judge import store as module
from minilab.judge.scores import Error, errors, spread
from minilab.judge.store import ScoreStore


def test_scores_are_kept(make_row, tmp_path, monkeypatch):
    """A long pass that starts anew after each interruption never ends."""
    path = tmp_path / "scores.jsonl"
    rows = [make_row(), make_row(concurrency=2)]
    first = ScoreStore(path).score_all(rows, Constants())
    path.write_text(path.read_text() + '["cut off')
    monkeypatch.setattr(module, "score", None)  # asking again would fail
    assert ScoreStore(path).score_all(rows, Constants()) == first
    assert len(first) == 2 and all(one.tpot > 0 for one in first)


def test_other_constants_are_other_scores(make_row, tmp_path):
    """A stale score under new constants would report an error that nobody has."""
    store = ScoreStore(tmp_path / "scores.jsonl")
    (one,) = store.score_all([make_row()], Constants())
    (two,) = store.score_all([make_row()], replace(Constants(), t_layer=80e-6))
    assert two.tpot > one.tpot


def test_error_by_hand(make_row):
    """Predicted 10 % high and 50 % low: signs and the way round of the band."""
    error = Error.of([(1.1, 1.0), (0.5, 1.0)])
    assert (error.median, error.bias) == pytest.approx((0.3, -0.2))
    assert error.low == pytest.approx(1 / 1.1 + 0.1 * (2 - 1 / 1.1))  # measured / predicted
    assert error.high == pytest.approx(2 - 0.1 * (2 - 1 / 1.1))
    (scored,) = ScoreStore().score_all([make_row()], Constants())
    assert errors([scored])["tpot"].median == abs(scored.tpot / 0.01 - 1)


def test_spread_of_repeats(make_row):
    """Two builds of one experiment apart by 10 %: nobody should tune below that."""
    rows = [make_row(tpot=0.010), make_row(tpot=0.011, version="0.19.0"), make_row(isl=64)]
    found = spread(rows)
    assert found["repeated"] == 1
    assert abs(found["tpot"]["median"] - 0.1) < 1e-9
