"""MoeExperiment: the MoE cost under the real scheduler, alone and as several ranks."""

import numpy as np
import pytest

from minilab.facts.errors import InputError
from minilab.facts.slo import goodput, summary
from minilab.sim.experiment import Experiment
from minilab.sim.moe_experiment import MoeExperiment
from minilab.sim.regime_map import regime_map

BASE = Experiment(model="deepseek-v3", gpu="h200", weight_dtype="native", prefix_cache=False).with_(
    trace="synthetic", limit=60, prompt_tokens=800, output_tokens=60, jitter=0.2, rate=8.0
)


def moe(**changes):
    return MoeExperiment.of(BASE, **changes)


def test_sliced_experts_run_as_the_plain_experiment_does():
    plain, ours = BASE.with_(tp=8).run(), moe(tp=8, expert_parallel=False).run()
    assert ours.meta["num_blocks"] == plain.meta["num_blocks"]
    for name in ("first_token", "finish"):
        np.testing.assert_array_equal(ours.requests[name], plain.requests[name])


@pytest.mark.parametrize("changes", [{}, {"overlap": True}, {"expert_load": "lognormal:0.6"}])
def test_skipping_steps_changes_nothing(changes):
    """Runs of equal steps in one go, with eight ranks: the same times to the last bit."""
    experiment = moe(dp=8, **changes)
    fast, slow = experiment.run(), experiment.run(skip=False)
    for name in ("scheduled", "first_token", "finish"):
        np.testing.assert_array_equal(fast.requests[name], slow.requests[name])


def test_ranks_keep_a_latent_each_and_slices_keep_eight_copies():
    """KV pool of DP attention over that of TP, same GPUs and model: TP does not split MLA."""
    ranks = moe(dp=8).run().meta["num_blocks"]
    sliced = moe(tp=8).run().meta["num_blocks"]
    assert ranks > 4 * sliced
    assert moe(dp=8).gpus == moe(tp=8).gpus == 8


def test_every_request_is_served_and_time_adds_up():
    log = moe(dp=8, expert_load="zipf:0.5", eplb=True).run()
    assert log.finished.all()
    assert (log.requests["first_token"] > log.requests["arrival"]).all()


def test_few_requests_favour_slices_and_many_favour_ranks():
    """Mean TPOT at 1 request/s; capacity at 40."""
    layouts = ({"tp": 8, "expert_parallel": False}, {"dp": 8})
    few = [summary(moe(**x, rate=0.5).run())["tpot"]["p50"] for x in layouts]
    many = [summary(moe(**x, rate=60.0, limit=240).run())["ttft"]["p90"] for x in layouts]
    assert few[0] < few[1] and many[1] < many[0]


def test_a_slow_network_shows_in_goodput():
    pair = moe(dp=16, rate=20.0, limit=100)
    slos = "ttft=2,tpot=0.09"
    fast = goodput(pair.run(), slos)
    slow = goodput(pair.with_(link="roce-100", congestion=0.5).run(), slos)
    assert slow.goodput < fast.goodput


def test_hot_experts_lengthen_prefill_and_eplb_shortens_it():
    def ttft(**changes):
        return summary(moe(dp=8, rate=20.0, **changes).run())["ttft"]["p50"]

    hot = ttft(expert_load="lognormal:1.0")
    placed = ttft(expert_load="lognormal:1.0", redundant_experts=16, eplb=True)
    assert ttft() < placed < hot


def test_it_stands_in_a_regime_map_and_reads_back():
    experiment = moe(dp=8, redundant_experts=8, eplb=True)
    assert MoeExperiment.from_dict(experiment.to_dict()) == experiment
    found = regime_map(
        ("rate", [2.0, 40.0]),
        ("context", [800]),
        lambda rate, prompt: moe(dp=8, rate=rate, prompt_tokens=prompt),
        lambda rate, prompt: moe(tp=8, expert_parallel=False, rate=rate, prompt_tokens=prompt),
        "ttft=1,tpot=0.04",
        seeds=(0,),
        progress=False,
    )
    assert len(found.cells[0]) == 2


def test_speculation_runs_on_ranks():
    plain, mtp = moe(dp=8).run(), moe(dp=8, num_speculative_tokens=1, acceptance_rate=0.87).run()
    assert summary(mtp)["tpot"]["p50"] < summary(plain)["tpot"]["p50"]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"dp": 8, "cost": '{"w":1,"f":1,"k":1,"s":1}'}, "computes its own"),
        ({"dp": 8, "tiers": "cpu:gib=1"}, "tiers"),
        ({"dp": 8, "policy": "prefill-first"}, "mixed"),
        ({"dp": 2}, "no room for KV"),
        ({"dp": 3}, "do not divide"),
        ({"dp": 8, "expert_load": "odd"}, "expert load"),
        ({"dp": 8, "model": "qwen3-8b"}, "no experts"),
        ({"dp": 8, "link": "string"}, "link"),
    ],
)
def test_what_cannot_run_is_refused_in_one_line(changes, word):
    with pytest.raises(InputError, match=word) as caught:
        moe(**changes).run()
    assert "\n" not in str(caught.value)
