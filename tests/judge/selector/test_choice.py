"""What the selector says: transitions where the arithmetic has them, and honest advice."""

from __future__ import annotations

import math

import pytest

from minilab.facts.errors import InputError
from minilab.judge.selector.choose import choose, deployment
from minilab.judge.selector.levers import ALL
from minilab.judge.selector.parameters import parameters, parse, settings_of
from minilab.judge.selector.pool import emitted_per_step
from minilab.judge.selector.report import flips, report
from minilab.judge.selector.stack import candidates
from minilab.judge.selector.step import Step
from minilab.judge.selector.tables import tables

MOVING = {"gpus": 2, "layout": "split", "rate": 2}


def told(**given):
    return report(tables(), settings_of(given))


def bar(found, name):
    return dict(found["bars"])[name]


def test_prefill_turns_into_decode():
    """Short answers to long prompts are prefill; long answers to short prompts are decode."""
    assert told(rate=4, prompt=8000, output=8)["bottleneck"] == "prefill_compute"
    assert told(rate=4, prompt=64, output=1000)["bottleneck"] == "decode_bandwidth"
    bars = [told(rate=2, prompt=4000, output=output) for output in (8, 64, 512, 2048)]
    assert [bar(row, "decode_bandwidth") for row in bars] == sorted(
        bar(row, "decode_bandwidth") for row in bars
    )


def test_compute_turns_into_transfer():
    """After a split a slower link makes the transfer the bottleneck, where bytes/bandwidth says.

    131,072 bytes per token of Llama-3.1-8B, 8,000 tokens: 1.05 GB, 0.84 s at 1.25 GB/s.
    """
    fast = told(prompt=8000, output=100, link="nvlink-4", **MOVING)
    slow = told(prompt=8000, output=100, link="ethernet-10", **MOVING)
    assert fast["bottleneck"] != "kv_transfer" and slow["bottleneck"] == "kv_transfer"
    moved = 8000 * 131072 / tables()["links"]["ethernet-10"]["bandwidth"]
    assert bar(slow, "kv_transfer") == pytest.approx(max(2 * moved, moved), rel=1e-3)


def test_compute_turns_into_capacity():
    """Sequences in flight fill the pool: B = r * O * step, against room / held tokens."""
    given = {"prompt": 12000, "output": 1000, "itl": 0.2, "ttft": 20}
    low, high = told(rate=0.4, **given), told(rate=3, **given)
    assert low["bottleneck"] == "decode_bandwidth" and high["bottleneck"] == "kv_capacity"
    assert bar(high, "kv_capacity") > bar(low, "kv_capacity")


def test_queueing_only_where_no_resource_is_the_cause():
    for rate in (0.5, 2, 8, 32):
        for prompt in (200, 2000, 20000):
            found = told(rate=rate, prompt=prompt, output=100, ttft=0.3)
            bars = dict(found["bars"])
            wait = bars.pop("queueing")
            if found["bottleneck"] == "queueing":
                assert max(bars.values()) < 0.7 and wait > max(bars.values())


def test_at_most_32_stacks():
    for several in (False, True):
        for shared in (False, True):
            names = [stack.name() for stack in candidates(several, shared)]
            assert len(names) == len(set(names)) <= 32


def test_the_recommendation_is_never_worse_than_doing_nothing():
    for given in (
        {"rate": 20, "prompt": 4000},
        {"rate": 4, "prompt": 32000, "gpus": 4},
        {"rate": 4, "prompt": 1000, "output": 500, "itl": 0.007},
        {"model": "llama-3.1-70b", "rate": 3, "gpus": 8},
        {"rate": 100, "prompt": 300, "output": 300, "gpus": 4, "prefix_share": 0.5},
    ):
        found = choose(tables(), settings_of(given))
        top = max(verdict.goodput_per_gpu for verdict in found.all)
        assert found.best.goodput_per_gpu >= 0.97 * top
        assert found.best.goodput_per_gpu >= 0.97 * found.plain.goodput_per_gpu


def test_nothing_is_recommended_where_the_defaults_do():
    found = told(rate=1, prompt=500, output=100)
    assert found["stack"] == [] and found["attainment"] == pytest.approx(1, abs=1e-3)


def test_a_low_acceptance_drops_speculation():
    """The flip point of the outline, and both of its sides."""
    given = {"rate": 4, "prompt": 1000, "output": 500, "itl": 0.007}
    points = {(name, lever): at for name, lever, at, _ in flips(tables(), settings_of(given))}
    at = points["acceptance", "spec_decode"]
    used = [
        "spec_decode" in [row[0] for row in told(**given, acceptance=value)["stack"]]
        for value in (at - 0.05, at + 0.05)
    ]
    assert used == [False, True]


def test_tenants_need_a_salt_and_pay_for_it():
    """With a salt each tenant warms its own copy, so a full pool keeps fewer of them."""
    given = {"rate": 1, "prompt": 8000, "prefix_share": 0.9, "groups": 5}
    one, many = told(**given, tenants=1), told(**given, tenants=50)
    assert "cache_salt" in [row[0] for row in many["stack"]]
    assert "cache_salt" not in [row[0] for row in one["stack"]]
    assert many["ttft"] > one["ttft"]


def test_every_lever_is_used_or_left_somewhere():
    seen = set()
    for given in (
        {"rate": 4, "prompt": 32000, "output": 100, "gpus": 4},
        {"rate": 40, "prompt": 4000, "prefix_share": 0.9, "gpus": 4, "groups": 900, "tenants": 3},
        {"model": "deepseek-v3", "gpu": "h200", "gpus": 16, "rate": 2},
        {"rate": 0.1, "prompt": 100, "output": 10},
    ):
        found = told(**given)
        seen |= {row[0] for row in found["stack"] + found["avoid"]}
    assert seen == set(ALL)


def test_expected_tokens_of_a_verify_step():
    """FACTS row 1: 3.689 at acceptance 0.8 and 5 drafts."""
    assert emitted_per_step(0.8, 5) == pytest.approx(3.689, abs=1e-3)
    assert emitted_per_step(1.0, 3) == 4 and emitted_per_step(0.5, 0) == 1


def test_a_model_that_fits_nowhere():
    found = told(model="deepseek-v3", gpu="l4")
    assert not found["fits"] and found["weights_gb"] > 600


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rate"], "is no name=value"),
        (["rate=0"], "give 0.1 to 200 requests/s"),
        (["rate=nan"], "give 0.1 to 200"),
        (["speed=3"], "unknown parameter 'speed'"),
        (["gpu=h101"], "h100"),
        (["rate=1", "rate=2"], "twice"),
    ],
)
def test_refusals(words, says):
    with pytest.raises(InputError, match=says):
        parse(words)


def test_parameters_are_complete():
    """Both faces draw their sliders from them."""
    for parameter in parameters():
        assert parameter["name"] and parameter["label"] and parameter["help"].endswith(".")
        assert ("min" in parameter) != ("kind" in parameter)
    assert sum(bool(parameter.get("first")) for parameter in parameters()) == 6
    defaults = parse([])
    assert defaults.rate == 4 and math.isclose(defaults.itl, 0.1)


def test_the_deployment_fits_its_request():
    tp, instances = deployment(tables(), settings_of({"model": "llama-3.1-70b", "gpus": 8}))
    assert tp >= 2 and tp * instances <= 8


def test_speculation_that_wins_at_a_high_rate_is_no_loss_at_a_low_one():
    """The zeros of a step that emits several tokens are gaps too, so a hundredth of all tokens may
    be late; once only the steps were counted, and a quicker stack looked worse at rate 3."""
    given = {"prompt": 4000, "output": 1500, "itl": 0.012, "acceptance": 0.8, "gpus": 4}
    for rate in (1, 3, 6, 12):
        found = choose(tables(), settings_of({**given, "rate": rate}))
        drafted = {v.stack.name(): v.attainment for v in found.all}
        for name, share in drafted.items():
            if "/k4" in name and name.startswith("mixed-8192"):
                assert share >= drafted[name.replace("/k4", "/k0")] - 0.01, (rate, name)


def test_each_chunk_reads_the_experts_anew():
    """A prompt in eight pieces costs seven more reads of the experts, and no more for a dense
    model."""
    names = {"qwen3-30b-a3b": 7, "llama-3.1-8b": 0}
    for model, reads in names.items():
        step = Step(tables(), model, "h100", 1, "bf16", "bf16")
        whole, pieces = step.prompt(4096, 0, 0), step.prompt(4096, 0, 0, 8)
        expected = reads * step.expert_read + 7 * step.per_seq
        assert pieces - whole == pytest.approx(expected, rel=1e-3)
