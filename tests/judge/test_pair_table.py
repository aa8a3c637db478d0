"""Lab 01's table: the sums are the closed form's, the split is honest, a stand-in says so."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from minilab.facts.cost import Constants
from minilab.facts.errors import InputError
from minilab.facts.hardware import get_gpu
from minilab.judge import pair_table as module
from minilab.judge.closed_form import predict
from minilab.judge.pair_table import pair_table
from minilab.judge.split import halves


@pytest.fixture(name="made")
def made_up(monkeypatch):
    """A stand-in of one dense pair on a machine without data."""
    monkeypatch.delenv("MINILAB_DATA", raising=False)
    return pair_table("llama-3.1-8b", "h100")


@pytest.fixture(name="rows")
def caught_rows(monkeypatch, made):
    """The rows that stand-in was made of."""
    monkeypatch.delenv("MINILAB_DATA", raising=False)
    return module._made_up("llama-3.1-8b", "h100")


def test_shipped_constants_give_the_closed_form(made, rows):
    """A term left out of `known`, or counted in both, and no x would explain anything."""
    wanted = [predict(row, Constants.for_gpu(get_gpu("h100"))).tpot for row in rows]
    assert made.known + made.work @ made.shipped == pytest.approx(np.array(wanted), rel=1e-9)


def test_held_rows_are_those_of_the_hash(made, rows):
    """A half that somebody chose is no test."""
    held = {row.digest for row in halves(rows).held}
    assert [row.digest in held for row in rows] == made.held.tolist()
    assert made.held.sum() == len(rows) // 2


def test_stand_in_says_so(made):
    """A made-up number that looks measured would be a lie."""
    assert not made.real and made.source.startswith("made up: ")
    again = pair_table("llama-3.1-8b", "h100")
    assert np.array_equal(again.measured, made.measured), "the same in every session"
    off = made.measured / (made.known + made.work @ made.shipped)
    assert 0.02 < np.std(np.log(off)) < 0.2, "without noise the held half would be no test"


def test_real_rows_where_they_are(silicon_file, tmp_path):
    """From the folder that is named, with the model and the GPU that were asked for."""
    loads = [
        {"silicon_data_source": f"silicon_concurrency={c}", "silicon_tpot_ms": f"{14 + c / 8}"}
        for c in range(1, 15)
    ]
    path = silicon_file(*loads, {"system": "h200_sxm"})
    folder = tmp_path / "data" / "aiconfigurator-silicon"
    folder.mkdir(parents=True)
    (folder / "silicon_sample.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    found = pair_table("llama-3.1-70b", "h100", str(folder.parent))
    assert found.real and "real (14 rows of llama-3.1-70b on h100)" in found.source
    assert sorted(found.measured) == pytest.approx([(14 + c / 8) / 1e3 for c in range(1, 15)])
    with pytest.raises(InputError, match="on h200: 1 measurements, 12 asked"):
        pair_table("llama-3.1-70b", "h200", str(folder.parent))


def test_unknown_names_are_refused(monkeypatch):
    """Before anything is simulated."""
    monkeypatch.delenv("MINILAB_DATA", raising=False)
    with pytest.raises(InputError, match="llama-9"):
        pair_table("llama-9", "h100")
    with pytest.raises(InputError, match="h1000"):
        pair_table("llama-3.1-8b", "h1000")
