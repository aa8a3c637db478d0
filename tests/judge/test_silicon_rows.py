"""Reading measured rows: what is refused and why, and what a row leaves unsaid."""

from __future__ import annotations

import math
import re

import pytest

from minilab.facts.errors import InputError
from minilab.judge.silicon_gate import mbu, read_silicon, running, why_impossible
from minilab.judge.silicon_rows import FILE
from minilab.judge.split import by_pair, halves, leave_one_pair_out


def test_a_good_row_is_read(silicon_file):
    """The parts that a table says in other words: seconds, GPUs, formats, clients."""
    (row,) = read_silicon(silicon_file({})).rows
    assert (row.pair, row.family, row.tp, row.concurrency) == (
        "llama-3.1-70b on h100",
        "hopper",
        4,
        8,
    )
    assert (row.ttft, row.tpot) == pytest.approx((0.150, 0.014))
    assert row.spec.weight_dtypes("native") == ("fp8", "fp8")
    assert row.launch.budget == 8192 and not row.launch.exact


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"isl": "-1024"}, "isl is -1024; at least 1"),
        ({"osl": "0"}, "osl is 0; at least 1"),
        ({"silicon_tpot_ms": "-3"}, "tpot is -0.003 s; above 0"),
        ({"silicon_tpot_ms": "nan"}, "tpot is 0.0 s; above 0"),
        ({"tp_size": "1", "moe_tp_size": "1", "precision": ""}, "weights of 131 GiB a GPU exceed"),
        ({"silicon_tpot_ms": "2.0"}, "takes 2..% of peak"),
        (
            {"osl": "16", "isl": "8192", "silicon_ttft_ms": "20", "silicon_tpot_ms": "7"},
            "of the tensor peak; at most 80%",
        ),
        ({"isl": "8192", "silicon_ttft_ms": "20"}, "a prompt in 20.0 ms takes 6..% of the"),
        ({"moe_ep_size": "4.0"}, "experts span 16 GPUs, its tp 4"),
        ({"silicon_data_source": "source_file=x.csv"}, "the load is unknown"),
        ({"model_path": "nobody/knows"}, "no geometry for nobody/knows"),
        ({"tp_size": "four"}, "tp_size is 'four'; give a number"),
    ],
)
def test_a_wrong_row_is_refused_with_its_reason(silicon_file, change, says):
    """A row that no machine could have measured pulls the constants of all others."""
    found = read_silicon(silicon_file({}, change))
    assert [row.id for row in found.rows] == ["row0"]
    (refused,) = found.refused
    assert refused.id == "row1"
    assert re.search(says, refused.reason), refused.reason


def test_twins_are_one_measurement(silicon_file):
    """A measurement listed twice may stand in both halves, and the score then knows the answer."""
    same = {"silicon_ttft_ms": "155.5"}
    twin = {**same, "tp_size": "16.0", "moe_tp_size": "16.0"}
    found = read_silicon(silicon_file(twin, same, {"system": "h200_sxm", **same}))
    assert sorted((row.system, row.tp) for row in found.rows) == [("h100", 4), ("h200", 4)]
    assert [r.reason for r in found.refused] == ["the same measurement as row1"]


def test_other_modes_and_engines_are_left_alone(silicon_file):
    """Disaggregated rows have two kinds of instance; a reader that took them would mix both."""
    path = silicon_file({}, {"mode": "disagg"}, {"backend": "sglang"})
    assert [row.id for row in read_silicon(path).rows] == ["row0"]
    assert len(read_silicon(path, None).rows) == 2


def test_not_a_table(tmp_path):
    """A wrong file is told by its name and by what it lacks."""
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"x\.csv: no rows or no columns id, mode"):
        read_silicon(path)
    with pytest.raises(InputError, match=r"none\.csv: cannot be read"):
        read_silicon(tmp_path / "none.csv")


def test_share_of_bandwidth_by_hand(make_row):
    """8.03 B parameters in bf16, less the embedding that is looked up, in 10 ms of 3.35 TB/s."""
    row = make_row(tpot=0.01)
    assert mbu(row) == pytest.approx((16.06e9 - 1.05e9) / 3.35e12 / 0.01, rel=0.01)
    assert why_impossible(row) is None
    assert "of peak" in (why_impossible(make_row(tpot=0.004)) or "")


def test_running_by_littles_law(make_row):
    """A client that waits 1 s for a stream of 1 s streams half of the time."""
    assert running(make_row(concurrency=10, ttft=1.0, tpot=0.01, osl=100)) == pytest.approx(5.0)


def test_halves_share_no_row_and_no_measurement(make_row):
    """A row in both halves makes the held-back error a fitted one."""
    rows = [make_row(id=str(n), tpot=0.01 + n / 1e4, system=s) for n in range(9) for s in "ab"]
    split = halves(rows)
    fit, held = ({row.digest for row in part} for part in split)
    assert not fit & held and len(fit | held) == 18
    assert [len(group) for group in by_pair(split.fit).values()] == [5, 5]
    assert halves(rows[::-1]) == split  # by hash, not by the order of the file
    renamed = [make_row(id="x", tpot=row.tpot, system=row.system) for row in split.held]
    assert {row.digest for row in renamed} == held  # nor by the row's name


def test_pairs_are_left_out_whole(make_row):
    """One row of the left-out pair in the fit, and it is no new model any more."""
    rows = [make_row(tpot=0.01 + n / 1e4, system=s) for n in range(4) for s in "abc"]
    for _name, split in leave_one_pair_out(rows):
        assert {row.pair for row in split.fit}.isdisjoint({row.pair for row in split.held})
        assert len(split.fit) == 8 and len(split.held) == 4


def test_the_published_table(data_folder):
    """The counts that the page reports; a reader that loses rows in silence changes them."""
    found = read_silicon(data_folder("aiconfigurator-silicon") / FILE)
    assert len(found.rows) == 869
    assert sum("ambiguous" in r.reason for r in found.refused) == 72
    assert all(math.isfinite(row.ttft) and mbu(row) <= 1 for row in found.rows)
    assert len({row.digest for row in found.rows}) == 869
