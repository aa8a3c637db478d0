"""Two processes of the engine against one: the same tokens, and nothing hangs when one dies.

Failures this exists for: an answer that changes because its KV was moved, cut into chunks, found in
a cache or lost to preemption; a client that waits for ever for a process that is gone; blocks that
stay held for a decode side that will never ask.
"""

from __future__ import annotations

import importlib.util
import signal
import time

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from minilab.engine.load import load_llm  # noqa: E402
from minilab.engine.pd.settings import PdSettings  # noqa: E402
from minilab.engine.pd.split import SplitEngine  # noqa: E402
from minilab.engine.pd.trial import (  # noqa: E402
    OUTPUT,
    TIGHT,
    Asked,
    plain_answers,
    requests,
    split_answers,
)
from minilab.engine.sampling import SamplingParams  # noqa: E402
from minilab.engine.tiny import TINY  # noqa: E402
from minilab.facts.errors import InputError  # noqa: E402

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="needs torch.distributed"
)


def settings(**more: object) -> PdSettings:
    return PdSettings(**{"prefill": TIGHT, "decode": TIGHT, "timeout": 60.0, **more})  # type: ignore[arg-type]


def assert_idle(split: SplitEngine, *roles: str, within: float = 0.0) -> None:
    """No block is in use, or not after ``within`` seconds: a process may be asked before it has
    noticed that the other one is gone. It has checked its pool before it says so."""
    deadline = time.monotonic() + within
    status = split.status()
    while any(found["used_blocks"] for found in status.values()) and time.monotonic() < deadline:
        split.turn()
        status = split.status()
    assert [*status] == [*roles]
    for found in status.values():
        assert found["used_blocks"] == found["held"] == 0
        assert found["free_blocks"] == found["num_blocks"] == TIGHT.num_blocks


def assert_equal(asked: list[Asked], split: SplitEngine) -> None:
    outputs = split_answers(asked, split)
    for number, (output, wanted) in enumerate(
        zip(outputs, plain_answers(asked, split.settings), strict=True)
    ):
        assert output.token_ids == wanted, f"request {number} {output.error}"
    assert len({tuple(output.token_ids) for output in outputs}) > len(asked) * 0.8
    assert {output.finish_reason for output in outputs} == {"stop", "length"}


def test_100_answers_are_those_of_one_engine() -> None:
    """With chunks, prefix cache and preemption on, and each of them really happening."""
    asked = requests(100, TINY.vocab_size, seed=3)
    with SplitEngine(settings()) as split:
        assert_equal(asked, split)
        prefill, decode = split.status().values()
        assert_idle(split, "prefill", "decode")
        assert all(child.process.poll() is None for child in split.children.values())
    assert all(child.process.returncode == 0 for child in split.children.values())
    assert prefill["chunked"] > 50 and decode["preemptions"] > 10
    assert prefill["cached_tokens"] > 100 and decode["cached_tokens"] > 100
    sent, received = prefill["moved"], decode["moved"]
    for name in ("transfers", "blocks", "pieces", "nbytes"):
        assert sent[name] == received[name]
    assert 80 < sent["transfers"] == sent["pieces"] < 100, "answers of one token stay"
    block = 2 * TINY.num_layers * TIGHT.block_size * TINY.num_kv_heads * TINY.head_dim * 4
    assert sent["nbytes"] == sent["blocks"] * block


def test_a_killed_decode_process_gives_its_requests_an_error_and_frees_the_other_side() -> None:
    long = SamplingParams(temperature=0.0, max_tokens=OUTPUT, ignore_eos=True)
    asked = [Asked(one.prompt, long) for one in requests(60, TINY.vocab_size, seed=4)]
    with SplitEngine(settings(timeout=20.0)) as split:
        ids = [split.submit(one.prompt, one.params) for one in asked]
        while len(split.outputs) < 6:
            split.turn()
        split.children["decode"].process.send_signal(signal.SIGKILL)
        begin = time.monotonic()
        while len(split.outputs) < len(ids):
            split.turn()
        assert time.monotonic() - begin < split.settings.timeout
        lost = [split.outputs[i] for i in ids if split.outputs[i].finish_reason == "error"]
        assert all(one.error.startswith("the decode process ") for one in lost)
        assert any("SIGKILL" in one.error for one in lost)
        assert any(one.handed_over for one in lost) and any(not one.handed_over for one in lost)
        while split.status()["prefill"]["used_blocks"]:
            assert time.monotonic() - begin < split.settings.timeout
        assert_idle(split, "prefill", within=20)
        (after,) = split.generate([asked[0].prompt], long)
        assert after.finish_reason == "error", "at once, and not after a timeout"
    assert split.children["prefill"].process.returncode == 0


@pytest.mark.slow
def test_what_cannot_be_loaded_is_said_in_one_line() -> None:
    with pytest.raises(InputError, match="no such folder or file"):
        SplitEngine(settings(model="nowhere/at-all"))


@pytest.mark.slow
@pytest.mark.parametrize("first_token", ["prefill", "decode"])
@pytest.mark.parametrize("gather", [True, False])
def test_every_way_of_handing_over_says_the_same(gather: bool, first_token: str) -> None:
    asked = requests(100, TINY.vocab_size, seed=5)
    with SplitEngine(settings(gather=gather, first_token=first_token)) as split:
        assert_equal(asked, split)
        moved = split.status()["decode"]["moved"]
        assert_idle(split, "prefill", "decode")
    planes = 2 * TINY.num_layers
    assert moved["pieces"] == (moved["transfers"] if gather else moved["blocks"] * planes)


def test_nixl_says_the_same() -> None:
    if importlib.util.find_spec("nixl") is None:
        pytest.skip("needs nixl")
    asked = requests(30, TINY.vocab_size, seed=6)
    with SplitEngine(settings(transport="nixl")) as split:
        assert_equal(asked, split)
        assert split.status()["decode"]["moved"]["blocks"] > 100
        assert_idle(split, "prefill", "decode")


def test_nixl_is_named_where_it_is_missing() -> None:
    if importlib.util.find_spec("nixl") is not None:
        pytest.skip("needs an environment without nixl")
    from minilab.engine.pd.nixl import new_agent

    with pytest.raises(InputError, match="needs nixl; pip install"):
        new_agent("prefill")


@pytest.mark.slow
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_process_that_hangs_is_ended_after_the_timeout(role: str) -> None:
    """It answers nothing and closes nothing: only silence tells."""
    asked = requests(40, TINY.vocab_size, seed=7)
    with SplitEngine(settings(timeout=8.0)) as split:
        ids = [split.submit(one.prompt, one.params) for one in asked]
        while len(split.outputs) < 5:
            split.turn()
        split.children[role].process.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        while len(split.outputs) < len(ids):
            split.turn()
            assert time.monotonic() - begin < 120
        assert any(split.outputs[i].finish_reason == "error" for i in ids)
        (other,) = {"prefill", "decode"} - {role}
        assert_idle(split, other, within=20)


@pytest.mark.slow
def test_what_a_killed_prefill_process_had_handed_over_is_computed_again() -> None:
    asked = requests(60, TINY.vocab_size, seed=8)
    plain = plain_answers(asked, settings())
    with SplitEngine(settings(on_failure="recompute", timeout=20.0)) as split:
        ids = [split.submit(one.prompt, one.params) for one in asked]
        while len(split.outputs) < 10:
            split.turn()
        split.children["prefill"].process.send_signal(signal.SIGKILL)
        while len(split.outputs) < len(ids):
            split.turn()
        ended = [split.outputs[i] for i in ids]
        assert_idle(split, "decode", within=20)
    for output, wanted in zip(ended, plain, strict=True):
        assert output.token_ids == wanted or (output.error and not output.handed_over)
    assert 10 < sum(not output.error for output in ended) < 60


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_two_processes_on_one_gpu_send_through_host_memory() -> None:
    asked = requests(100, TINY.vocab_size, seed=9)
    with SplitEngine(settings(device="cuda:0")) as split:
        assert_equal(asked, split)
        assert_idle(split, "prefill", "decode")


def test_a_request_that_cannot_be_served_is_refused_before_anything_is_queued() -> None:
    """Checked on the proxy's side alone, so no process is needed."""
    split = SplitEngine.__new__(SplitEngine)
    split._ready = {
        role: {"max_model_len": 161, "vocab_size": 259} for role in ("prefill", "decode")
    }
    rule = SamplingParams(max_tokens=30)
    split.check([1] * 131, rule)
    with pytest.raises(InputError, match="the decode process holds 161"):
        split.check([1] * 132, rule)
    with pytest.raises(InputError, match=r"token id in 0\.\.258"):
        split.check([259], rule)
    with pytest.raises(InputError, match="at least one token"):
        split.check([], rule)
    assert load_llm("tiny", TIGHT).max_model_len == 161
