"""A split experiment is an experiment: hashable, JSON-able, swept, refused in one line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from minilab.facts.errors import InputError
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment
from minilab.sim.sweep import sweep

WHOLE = Experiment().with_(
    trace="synthetic", limit=120, rate=6.0, prompt_tokens=2000, output_tokens=60
)
SPLIT = PdExperiment.split(WHOLE)


def test_it_comes_back_from_json_the_same() -> None:
    made = SPLIT.with_(prefill_tp=2, link="ethernet-25", rate=3.0)
    back = PdExperiment.from_dict(json.loads(json.dumps(made.to_dict())))
    assert back == made and back.key == made.key and hash(back) == hash(made)
    assert made.key != SPLIT.key


def test_both_pools_are_counted_and_described() -> None:
    made = SPLIT.with_(prefill_instances=3, prefill_tp=2, instances=2, tp=4, prefill_gpu="a100-80g")
    assert made.gpus == 3 * 2 + 2 * 4
    prefill, decode = made.prefill_side(), made.decode_side()
    assert (prefill.gpu, prefill.tp, prefill.instances) == ("a100-80g", 2, 3)
    assert (decode.gpu, decode.tp, decode.instances) == ("h100", 4, 2)


def test_the_prefill_pool_of_a_smaller_gpu_has_its_own_number_of_blocks() -> None:
    made = SPLIT.with_(prefill_gpu="a100-40g")
    ours = made.scheduler_config().num_blocks
    assert made.prefill_side().scheduler_config().num_blocks < ours


def test_a_run_says_what_was_sent() -> None:
    log = SPLIT.run().check()
    assert log.finished.all() and log.meta["transfers"] == 120 and log.meta["gpus"] == 2
    assert 0 < log.meta["wire_seconds"] < log.duration
    never = SPLIT.with_(pd_mode="never").run()
    assert never.meta["transfers"] == 0 and np.isnan(never.requests["transfer"]).all()


def test_never_split_is_the_decode_pool_alone() -> None:
    """The same requests on one plain instance: every time the same."""
    alone = WHOLE.run().requests
    never = SPLIT.with_(pd_mode="never").run().requests
    for name in ("scheduled", "first_token", "finish"):
        assert (alone[name] == never[name]).all()


def test_a_broken_transfer_costs_time_and_no_tokens() -> None:
    good, bad = SPLIT.run(), SPLIT.with_(failure_rate=0.5).run().check()
    failing = SPLIT.with_(failure_rate=0.5, on_failure="fail").run().check()
    assert 20 < bad.meta["failed_transfers"] < 100 and bad.finished.all()
    assert (bad.requests["output_tokens"] == good.requests["output_tokens"]).all()
    assert bad.requests["finish"].mean() > good.requests["finish"].mean()
    lost = failing.requests["status"] == "failed"
    assert lost.sum() == failing.meta["failed_transfers"]


def test_a_split_stands_in_a_sweep_beside_a_whole(tmp_path: object) -> None:
    rows = sweep(
        [SPLIT.with_(link=link) for link in ("ethernet-10", "infiniband-400")],
        "ttft=1,itl=0.05",
        progress=False,
    )
    assert [row["link"] for row in rows] == ["ethernet-10", "infiniband-400"]
    assert rows[0]["e2e_mean"] > rows[1]["e2e_mean"] and rows[0]["gpus"] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"link": "infiniband-4000"}, "link"),
        ({"overlap": True}, "overlap needs reserve='arrival'"),
        ({"reserve": "later"}, "reserve"),
        ({"pd_mode": "sometimes"}, "pd_mode is 'sometimes'"),
        ({"prefill_instances": 0}, "prefill side: instances is 0"),
        ({"failure_rate": 1.5}, "failure_rate is 1.5"),
        ({"link_bandwidth": 0.0}, "link_bandwidth is 0.0"),
        ({"prefill_gpu": "t4"}, "prefill side: "),
        ({"max_transfers": 0}, "max_transfers is 0"),
    ],
)
def test_what_can_not_be_is_refused_before_it_runs(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SPLIT.with_(**change).build()
