"""The knee against queueing theory, and repeats of a trace that are repeats indeed.

Failures these tests exist for: a knee that is not where theory puts it, an interval of width zero
because a seed changes nothing in a trace, a window that drops, doubles or reorders requests.
"""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest

from minilab.facts.errors import InputError
from minilab.facts.workload import sessions
from minilab.sim.experiment import Experiment
from minilab.sim.knee import find_knee, load_curve
from minilab.sim.repeats import Repeat, repeats, shifted, window
from minilab.sim.sweep import sweep
from minilab.sim.workload_spec import WorkloadSpec

SERVICE = 0.1  # s, whatever the request
ONE_BY_ONE = Experiment(
    cost=json.dumps({"w": SERVICE, "f": 0.0, "k": 0.0, "s": 0.0}),
    kv_blocks=64,
    max_num_seqs=1,
    max_num_batched_tokens=2048,
).with_(trace="synthetic", prompt_tokens=16, output_tokens=1, limit=1500)
CHAT = Experiment(
    cost=json.dumps({"w": 0.005, "f": 1e-4, "k": 1e-7, "s": 1e-5}), kv_blocks=4000
).with_(trace="azure-conv-2023", limit=200)


def md1_attainment(rate: float, limit: float) -> float:
    """P(wait + service <= limit) in M/D/1 (Erlang 1909)."""
    load, left = rate * SERVICE, limit - SERVICE
    terms = (
        (x := rate * (k * SERVICE - left)) ** k / math.factorial(k) * math.exp(-x)
        for k in range(int(left / SERVICE) + 1)
    )
    return (1 - load) * math.fsum(terms)


# --- the knee ------------------------------------------------------------------------------------


@pytest.mark.parametrize("instances", [1, 2])
def test_the_knee_is_where_queueing_theory_puts_it(instances: int) -> None:
    """Round robin over two servers gives each Erlang-2 arrivals, which wait less than Poisson."""
    limit, target = 0.4, 0.9
    theory = next(r / 100 for r in range(999, 0, -1) if md1_attainment(r / 100, limit) >= target)
    base = ONE_BY_ONE.with_(instances=instances)
    found = find_knee(base, f"ttft={limit}", target, lo=1, hi=20 * instances, seeds=(0, 1, 2, 3))
    assert found.verdict == "found" and len(set(found.per_seed.values())) > 1
    assert found.low is not None and found.high is not None
    if instances == 1:
        assert found.low < theory < found.high
        assert found.rate_per_gpu == pytest.approx(theory, rel=0.05)
    else:
        assert theory * 1.05 < found.rate_per_gpu < 1 / SERVICE  # per GPU, not in all


def test_a_load_curve_follows_the_theory_and_bounds_it() -> None:
    rates = [2.0, 5.0, 7.0, 8.0]
    points = load_curve(ONE_BY_ONE, rates, "ttft=0.3", seeds=range(4))
    assert [point["rate"] for point in points] == rates
    for point in points:
        theory = md1_attainment(point["rate"], 0.3)
        assert point["attainment"] == pytest.approx(theory, abs=0.05)
        low, high = point["attainment_low"], point["attainment_high"]
        assert 0 <= low <= theory <= high <= 1
        assert point["goodput_per_gpu"] == pytest.approx(
            point["attainment"] * point["throughput_per_gpu"], rel=0.02
        )
    assert points[0]["attainment"] > points[-1]["attainment"] + 0.1
    json.dumps(points, allow_nan=False)


def test_rates_and_goodput_are_per_gpu_and_one_seed_has_no_interval() -> None:
    (point,) = load_curve(ONE_BY_ONE.with_(instances=4, limit=400), [20], "ttft=1", seeds=[5])
    assert point["rate_per_gpu"] == 5.0
    assert point["goodput_per_gpu"] == pytest.approx(5, rel=0.1)
    assert (point["goodput_per_gpu_low"], point["attainment_high"]) == (None, None)


def test_a_load_curve_goes_on_from_its_store(tmp_path: Path) -> None:
    out, base = tmp_path / "curve.jsonl", ONE_BY_ONE.with_(limit=30)
    once = load_curve(base, [2, 4], "ttft=0.3", out=out)
    size = out.stat().st_size
    assert load_curve(base, [2, 4], "ttft=0.3", out=out) == once
    assert out.stat().st_size == size and len(out.read_text().splitlines()) == 6


def test_what_has_no_rate_or_no_order_is_refused() -> None:
    closed = ONE_BY_ONE.with_(concurrency=8)
    for refused in (
        lambda: load_curve(closed, [1, 2], "ttft=1"),
        lambda: find_knee(closed, "ttft=1"),
    ):
        with pytest.raises(InputError, match="concurrency=8: in a closed loop the server sets"):
            refused()
    for rates in ([2, 1], [1, 1], [], [0, 1]):
        with pytest.raises(InputError, match="must rise and be above 0"):
            load_curve(ONE_BY_ONE, rates, "ttft=1")
    for seeds in ([], [1, 1], [0.5], [-1]):
        with pytest.raises(InputError, match="seed"):
            load_curve(ONE_BY_ONE, [1], "ttft=1", seeds=seeds)


# --- repeats -------------------------------------------------------------------------------------


def test_seeds_of_a_trace_replay_different_stretches_at_the_same_rate() -> None:
    """With the seed alone, three repeats of a trace are one run: an interval of width zero."""
    base = CHAT.with_(rate=6.0)
    curve = load_curve(base, [6.0], "ttft=0.5")[0]
    assert curve["attainment_low"] < curve["attainment"] < curve["attainment_high"]
    alike = sweep([base.with_(seed=seed) for seed in (0, 1, 2)], "ttft=0.5", progress=False)
    assert len({row["attainment"] for row in alike}) == 1
    for repeat in repeats(base, (0, 1, 2)):
        work = shifted(repeat.experiment.workload, repeat.shift)
        assert work.stats()["rate"] == pytest.approx(6.0) and len(work.requests) == 200
    assert [r.run().meta.get("shift") for r in repeats(base, (0, 2))] == [None, 2]


def test_window_0_is_the_trace_as_it_is() -> None:
    for spec in (
        CHAT.workload,
        WorkloadSpec(limit=50, rate=3.0, speedup=2.0, concurrency=4),
        WorkloadSpec(limit=50, speedup=10.0),
    ):
        assert shifted(spec, 0) == spec.load()


@pytest.mark.parametrize("shift", [1, 2, 5])
def test_a_window_over_the_end_goes_on_at_the_start_and_loses_nobody(shift: int) -> None:
    whole = WorkloadSpec(limit=97).load()
    moved = window(whole, shift).validate()
    start = int(97 * (shift * 0.6180339887498949 % 1))
    assert 0 < start < 97
    turned = [*whole.requests[start:], *whole.requests[:start]]
    lengths = [(r.prompt_tokens, r.output_tokens) for r in moved.requests]
    assert lengths == [(r.prompt_tokens, r.output_tokens) for r in turned]
    assert moved.requests[0].arrival == 0.0
    gaps = [b.arrival - a.arrival for a, b in pairwise(moved.requests)]
    mean = whole.requests[-1].arrival / 96
    assert gaps[96 - start] == pytest.approx(mean), "the seam is an average gap"
    told = [b.arrival - a.arrival for a, b in pairwise(turned)]
    del gaps[96 - start], told[96 - start]
    assert gaps == pytest.approx(told)


def test_keys_tell_windows_apart_and_synthetic_seeds_stay_plain_experiments() -> None:
    assert len({repeat.key for repeat in repeats(CHAT, (0, 1, 2))}) == 3
    assert repeats(CHAT, [0]) == [Repeat(CHAT)]
    assert repeats(ONE_BY_ONE, [7]) == [Repeat(ONE_BY_ONE.with_(seed=7))]


def test_sessions_cannot_be_cut_in_two() -> None:
    with pytest.raises(InputError, match="a window would cut sessions"):
        window(sessions(1.0, 5), 1)


def test_a_gpu_file_with_other_numbers_is_another_input(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    found = []
    for text in ("{}", '{"a": 1}'):
        file.write_text(text)
        found.append(Repeat(ONE_BY_ONE.with_(gpu_file=str(file))).inputs()["inputs"])
    assert found[0] != found[1]
    file.unlink()
    with pytest.raises(InputError, match=r"gpu\.json: cannot be read"):
        Repeat(ONE_BY_ONE.with_(gpu_file=str(file))).inputs()
