"""Regime maps on servers whose answer is known, and the rule of the verdicts.

Failures these tests exist for: a side that wins by luck, by less than the margin or with nobody
served; A and B confused; a boundary that is off by a cell; a map that cannot be resumed or stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minilab.facts.errors import InputError
from minilab.sim import sweep_tasks
from minilab.sim.experiment import Experiment
from minilab.sim.regime_cell import Judge
from minilab.sim.regime_map import RegimeMap, regime_map

W, F = 0.005, 1e-4  # s per step, s per token of a step
BUDGET = 512
LIMIT = 0.15  # s, on the largest gap
# A gap with a prompt of p tokens in it is that prompt's step and the decode step after it, of at
# most 10 requests: W + p*F + W + 10*F. So p = (LIMIT - 2*W) / F - 10 = 1390 tokens is the longest.
BASE = Experiment(
    cost=json.dumps({"w": W, "f": F, "k": 0.0, "s": 0.0}), kv_blocks=8192, max_num_seqs=64
).with_(trace="synthetic", limit=40, output_tokens=200, arrivals="gamma", cv=0.15)
PROMPTS = ("prompt length (tokens)", [500, 1000, 1350, 1450, 3000])
RATES = ("rate (requests/s)", [0.05, 2.0])
SLO = f"stall={LIMIT}"


def mixed(prompt: int, rate: float) -> Experiment:
    """Cuts prompts into chunks: no step is longer than W + BUDGET * F."""
    return BASE.with_(prompt_tokens=prompt, rate=rate, max_num_batched_tokens=BUDGET)


def prefill_first(prompt: int, rate: float) -> Experiment:
    """Computes a whole prompt while everybody waits."""
    whole = BASE.with_(policy="prefill-first", max_num_batched_tokens=prompt)
    return whole.with_(prompt_tokens=prompt, rate=rate)


def compare(a: Any, b: Any, **more: Any) -> RegimeMap:
    return regime_map(PROMPTS, RATES, a, b, SLO, **{"seeds": (0, 1, 2), "progress": False, **more})


@pytest.fixture(scope="module")
def known() -> RegimeMap:
    return compare(mixed, prefill_first, names=("mixed", "prefill-first"))


def test_the_boundary_is_where_a_prompt_takes_as_long_as_the_slo_allows(known: RegimeMap) -> None:
    alone, busy = known.verdicts
    assert set(alone) == {"no difference"}, "20 s apart: nobody decodes while a prompt is computed"
    assert busy == ["no difference"] * 3 + ["wins"] * 2
    assert known.stretches(1) == [(1450, 3000)] and known.stretches(0) == []
    assert known.counts() == {"wins": 2, "loses": 0, "no difference": 8, "neither serves": 0}
    assert {cell.attainment_a for row in known.cells for cell in row} == {1.0}


def test_seen_from_the_other_side_wins_are_losses(known: RegimeMap) -> None:
    other = compare(prefill_first, mixed)
    flip = {"wins": "loses", "loses": "wins"}
    assert other.verdicts == [[flip.get(v, v) for v in row] for row in known.verdicts]
    here, there = known.cells[1][4], other.cells[1][4]
    assert here.difference is not None and there.difference is not None
    assert here.difference.value == -there.difference.value > 0.3
    assert (here.a, here.b) == (there.b, there.a)


def test_an_slo_may_depend_on_the_point_and_so_may_who_can_be_built() -> None:
    """The SLO as an axis: with a limit on the gap that a whole prompt meets, nothing is gained."""
    found = regime_map(
        ("limit on a gap (s)", [0.15, 0.25]),
        ("side B", ["there", "missing"]),
        lambda limit, side: mixed(2000, 2.0),
        lambda limit, side: prefill_first(2000, 2.0) if side == "there" else None,
        lambda limit, side: f"stall={limit}",
        seeds=[0],
        progress=False,
    )
    assert found.verdicts == [["wins", "no difference"], ["wins", "wins"]]
    assert found.cells[1][0].b is None and found.cells[1][0].difference is None
    assert found.slos == "different at each point"


# --- the rule ------------------------------------------------------------------------------------


def rows(goodput: list[float | None], attainment: float = 0.9, **more: Any) -> list[dict[str, Any]]:
    common = {"attainment": attainment, "completed": 10, **more}
    return [{"goodput_per_gpu": value, "itl_p99": value, **common} for value in goodput]


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([4.0, 4.1, 3.9], [3.0, 3.1, 2.9], "wins"),
        ([3.0, 3.1, 2.9], [4.0, 4.1, 3.9], "loses"),
        ([4.0, 4.1, 3.9], [3.9, 4.0, 3.8], "no difference"),  # 2.5 %: within the margin
        ([9.0, 3.0, 3.0], [3.0, 3.0, 3.0], "no difference"),  # one lucky seed
        ([9.0, 1.0, 5.0], [8.0, 0.2, 4.1], "wins"),  # the seeds differ, the pairs agree
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], "no difference"),
        ([4.0], [3.0], "wins"),  # one seed: the margin alone
    ],
)
def test_a_win_needs_more_than_the_margin_and_more_than_luck(
    a: list[float | None], b: list[float | None], verdict: str
) -> None:
    assert Judge("goodput_per_gpu", 0.05, 0.5).cell(rows(a), rows(b)).verdict == verdict


def test_where_most_requests_fail_on_both_sides_nobody_wins() -> None:
    judge = Judge("goodput_per_gpu", 0.05, 0.5)
    a, b = [4.0, 4.1, 3.9], [1.0, 1.1, 0.9]
    assert judge.cell(rows(a, 0.4), rows(b, 0.1)).verdict == "neither serves"
    assert judge.cell(rows(a, 0.6), rows(b, 0.1)).verdict == "wins"
    assert judge.cell(rows(b, 0.1), rows(a, 0.6)).verdict == "loses"
    nothing = rows([None] * 3, 0.0, completed=0)
    assert judge.cell(nothing, nothing).verdict == "neither serves"
    assert judge.cell(nothing, rows(b)).verdict == "loses"
    assert judge.cell([], []).verdict == "neither serves"


def test_of_times_less_is_better() -> None:
    judge = Judge("itl_p99", 0.05, 0.5)
    assert judge.cell(rows([0.02] * 3), rows([0.05] * 3)).verdict == "wins"
    cell = judge.cell(rows([0.05] * 3), rows([0.02] * 3))
    assert cell.verdict == "loses" and cell.difference is not None
    assert cell.difference.value == pytest.approx(-0.6)


def test_an_unavailable_metric_is_said_and_decides_nothing() -> None:
    with pytest.raises(InputError, match="itl_p99 is unavailable although 10 requests finished"):
        Judge("itl_p99", 0.05, 0.5).cell(rows([0.1, None]), rows([0.1, 0.1]))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"metric": "goodput_per_gp"}, "did you mean goodput-per-gpu|goodput_per_gpu"),
        ({"metric": "key"}, "unknown metric of a regime map"),
        ({"margin": 5}, "margin 5; a share"),
        ({"least_attainment": 90}, "least_attainment 90; a share"),
        ({"x": ("rate", [])}, "axis 'rate' has values"),
        ({"y": ("policy", "mixed")}, "axis 'policy' has values 'mixed'"),
    ],
)
def test_bad_input_is_told_before_anything_runs(
    change: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_tasks, "_measure", lambda *_: pytest.fail("it ran"))
    arguments = {"x": PROMPTS, "y": RATES, "a": mixed, "b": mixed, "slos": SLO}
    with pytest.raises(InputError, match=told):
        regime_map(**{**arguments, "progress": False, **change})


# --- kept and shown ------------------------------------------------------------------------------


def test_a_stopped_map_goes_on_and_comes_out_the_same(
    known: RegimeMap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, measure, runs = tmp_path / "map.jsonl", sweep_tasks._measure, []

    def until(stop: int) -> Callable[..., Any]:
        def counted(identity: Any, task: Any) -> Any:
            if len(runs) == stop:
                raise KeyboardInterrupt
            runs.append(identity)
            return measure(identity, task)

        return counted

    names = ("mixed", "prefill-first")
    monkeypatch.setattr(sweep_tasks, "_measure", until(25))
    with pytest.raises(KeyboardInterrupt):
        compare(mixed, prefill_first, names=names, out=out)
    monkeypatch.setattr(sweep_tasks, "_measure", until(1000))
    assert compare(mixed, prefill_first, names=names, out=out) == known
    assert len(runs) == 60 == len(set(runs)), "2 sides, 10 points, 3 seeds, each once"


def test_json_keeps_the_whole_map(known: RegimeMap) -> None:
    text = json.dumps(known.to_dict(), allow_nan=False)
    assert RegimeMap.from_dict(json.loads(text)) == known


def test_table_and_rows_say_what_the_cells_say(known: RegimeMap) -> None:
    lines = known.table().splitlines()
    assert (
        lines[0]
        == "| rate (requests/s) \\ prompt length (tokens) | 500 | 1000 | 1350 | 1450 | 3000 |"
    )
    cell = known.cells[1][4]
    assert cell.difference is not None
    gain = round(100 * cell.difference.value)
    assert lines[2].startswith("| 2.0 | no difference 0 % |") and lines[2].endswith(
        f"| wins +{gain} % |"
    )
    assert lines[3].startswith("| 0.05 |") and len(lines) == 4
    last = known.rows()[-1]
    assert (last["prompt length (tokens)"], last["rate (requests/s)"]) == (3000, 2.0)
    assert (last["verdict"], last["a"]) == ("wins", cell.a.value if cell.a else None)
    assert last["difference_low"] > 0.05
