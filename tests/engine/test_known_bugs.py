"""Bugs that users of small public engines have met, each with a real model behind it.

The text must be that of the same request alone in a roomy pool without a prefix cache. The
scheduler's own versions of these tests are in tests/core/test_traps.py.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest
import torch
from parity import Job as ParityJob
from parity import assert_idle, prompts, serve

from minilab.core.config import SchedulerConfig
from minilab.core.request import FINISHED
from minilab.engine.llm import LLM
from minilab.engine.loader import auto_dtype
from minilab.engine.sampling import SamplingParams
from minilab.engine.tiny import TINY, random_weights
from minilab.facts.errors import InputError

WEIGHTS = random_weights(TINY)


def engine(blocks: int = 64, budget: int = 64, seqs: int = 4, **more: object) -> LLM:
    chosen = SchedulerConfig(blocks, 4, budget, seqs, **more)  # type: ignore[arg-type]
    return LLM(TINY, WEIGHTS, chosen)


def greedy(count: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)


@cache
def alone(prompt: tuple[int, ...], count: int) -> list[int]:
    llm = LLM(TINY, WEIGHTS, SchedulerConfig(256, 4, enable_prefix_caching=False))
    return llm.generate([prompt], greedy(count))[0].token_ids


def prompt_of(length: int, seed: int = 0) -> list[int]:
    """Distinct tokens."""
    long = prompts(40, seed, shared=0)
    tokens = list(dict.fromkeys(token for part in long for token in part))
    return tokens[:length]


def test_a_full_prompt_prefix_hit_at_a_block_multiple_still_computes_a_token() -> None:
    """The bug: all 8 tokens are found, nothing is left to compute, and there are no logits."""
    llm = engine()
    prompt = prompt_of(8)
    for cached in (0, 4, 4):
        output = llm.generate([prompt], greedy(6))[0]
        assert (output.num_cached_tokens, output.token_ids) == (cached, alone(tuple(prompt), 6))


def test_a_prefix_hit_that_grows_while_the_request_waits_is_counted_anew() -> None:
    """The bug: blocks are taken for the hit of the first try, not for that of the second."""
    llm = engine(blocks=8, budget=12)
    first = prompt_of(20)
    second = first + prompt_of(40, seed=3)[:12]
    one, two = llm.add(first, greedy(8)), llm.add(second, greedy(1))
    found: list[int] = []
    while two in llm.scheduler.waiting:
        llm.step()
        if llm.scheduler.prefilling or llm.scheduler.batch.requests:
            found.append(4 * len(llm.scheduler.index.match(two)))
    assert 0 < found[0] < found[-1] == two.num_cached_tokens == 20, "the case did not come up"
    while llm.step():
        pass
    assert llm.output(one).token_ids == alone(tuple(first), 8)
    assert llm.output(two).token_ids == alone(tuple(second), 1)


def test_a_prefix_hit_is_not_evicted_by_its_own_allocation() -> None:
    """The bug: room is found by evicting the very blocks that were just matched."""
    llm = engine(blocks=8)
    first = prompt_of(12)
    llm.generate([first], greedy(1))
    longer = first + prompt_of(40, seed=5)[12:28]
    output = llm.generate([longer], greedy(5))[0]
    assert output.num_cached_tokens == 12
    assert output.token_ids == alone(tuple(longer), 5)


def test_a_stale_hash_does_not_serve_the_kv_of_another_text() -> None:
    """The bug: a block is taken for a new text, but its old hash still answers."""
    llm = engine(blocks=10)
    first, other = prompt_of(16), prompt_of(32, seed=8)
    for prompt in (first, other, first):
        output = llm.generate([prompt], greedy(6))[0]
        assert output.num_cached_tokens == 0, "the pool is too small to keep both"
        assert output.token_ids == alone(tuple(prompt), 6)


def test_a_prompt_aborted_half_way_leaves_no_block_that_was_not_computed() -> None:
    """The bug: blocks are published when they are taken, and the abort comes before the KV."""
    llm = engine(budget=8)
    prompt = prompt_of(32)
    state = llm.add(prompt, greedy(4))
    llm.step()
    llm.abort(state)
    output = llm.generate([prompt], greedy(6))[0]
    assert (output.num_cached_tokens, output.token_ids) == (8, alone(tuple(prompt), 6))


@pytest.mark.parametrize("caching", [True, False])
def test_a_preempted_request_goes_on_where_it_was(caching: bool) -> None:
    """The bug: a resumed request draws its last token again, or skips one. Drawn, not greedy."""
    rules = [SamplingParams(max_tokens=30, seed=k, ignore_eos=True) for k in range(3)]
    asked = [prompt_of(10, seed=k) for k in range(3)]
    calm = [engine().generate([p], r)[0].token_ids for p, r in zip(asked, rules, strict=True)]
    llm = engine(blocks=16, enable_prefix_caching=caching)
    outputs = llm.generate(asked, rules)
    assert llm.scheduler.num_preemptions, "the case did not come up"
    assert [output.token_ids for output in outputs] == calm
    assert all(len(output.token_ids) == 30 for output in outputs)


@pytest.mark.parametrize("length", [7, 8, 9, 16, 17])
def test_a_chunk_boundary_on_a_block_boundary(length: int) -> None:
    """The bug: the next chunk opens no block, or one too many."""
    llm = engine(budget=8)
    prompt = prompt_of(length)
    state = llm.add(prompt, greedy(9))
    while llm.step():
        held = len(state.block_table)
        assert state.status == FINISHED or held == -(-llm.scheduler.computed(state) // 4) > 0
    assert llm.output(state).token_ids == alone(tuple(prompt), 9)


def test_pages_are_counted_once_at_idle() -> None:
    """The bug: a cached block that nobody uses is both free and in use."""
    llm = engine(blocks=20)
    for seed in range(6):
        llm.generate([prompt_of(20, seed), prompt_of(20, seed)], greedy(5))
        assert_idle(llm)
        assert llm.scheduler.pool.available == 20


@pytest.mark.parametrize("policy", ["mixed", "prefill-first", "decode-first"])
@pytest.mark.parametrize("budget", [4, 8, 64])
def test_no_setting_livelocks_chunked_prefill(policy: str, budget: int) -> None:
    """The bug: long prompts get half-way in, take each other's blocks, and start again for ever."""
    llm = engine(blocks=16, budget=budget, policy=policy)
    asked = [prompt_of(44, seed) for seed in range(5)]
    states = [llm.add(prompt, greedy(8)) for prompt in asked]
    least = sum(-(-44 // budget) + 7 for _ in asked)
    for _ in range(3 * least):
        if not llm.step():
            break
    assert all(state.status == FINISHED for state in states), f"not done in {3 * least} steps"
    for state, prompt in zip(states, asked, strict=True):
        assert llm.output(state).token_ids == alone(tuple(prompt), 8)


def test_a_request_larger_than_the_pool_is_refused_and_stops_nobody() -> None:
    """The bug: it waits at the head of the queue for ever, and all others behind it."""
    llm = engine(blocks=8)
    fits = llm.add(prompt_of(20), greedy(4))
    with pytest.raises(InputError, match="a request may have 33"):
        llm.add(prompt_of(30), greedy(4))
    behind = llm.add(prompt_of(29, seed=2), greedy(4))  # 33 tokens: the last needs no block
    while llm.step():
        pass
    assert fits.status == behind.status == FINISHED
    assert llm.output(behind).token_ids == alone(tuple(prompt_of(29, seed=2)), 4)


def test_two_requests_with_one_prefix_in_the_same_step() -> None:
    """The bug: the second takes blocks that the first has not computed yet."""
    llm = engine(budget=64)
    head = prompt_of(16)
    asked = [[*head, 200 + k, 210 + k, 220 + k] for k in (0, 1, 2, 0)]
    outputs = llm.generate(asked, greedy(7))
    assert [output.num_cached_tokens for output in outputs] == [0] * 4
    assert [output.token_ids for output in outputs] == [alone(tuple(p), 7) for p in asked]
    assert_idle(llm)
    again = llm.generate(asked, greedy(7))
    assert all(output.num_cached_tokens == 16 for output in again)
    assert [output.token_ids for output in again] == [alone(tuple(p), 7) for p in asked]


def test_greedy_exists_and_draws_nothing() -> None:
    """The bug: temperature 0 divides by zero, or is taken for 1; then nothing can be lossless."""
    llm = engine()
    prompt = prompt_of(12)
    rules = [
        SamplingParams(temperature=0, max_tokens=9, ignore_eos=True, seed=seed, top_k=k, top_p=p)
        for seed, k, p in ((1, 0, 1.0), (2, 5, 0.9), (None, 1, 0.1))
    ]
    outputs = llm.generate([prompt] * 3, rules)
    assert [output.token_ids for output in outputs] == [alone(tuple(prompt), 9)] * 3


def test_an_old_card_gets_float16_and_no_library_that_it_lacks(monkeypatch) -> None:
    """The bug: a T4 (capability 7.5) has no bfloat16, and no flash-attn or flashinfer."""
    card = torch.device("cuda")
    for capability, wanted in (((7, 5), torch.float16), ((8, 0), torch.bfloat16)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, c=capability: c)
        assert auto_dtype(card) == wanted
    code = (
        "import sys, minilab.engine.load; "
        "print([n for n in ('flash_attn', 'flashinfer', 'xformers', 'vllm') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_abort_forgets_the_generator_and_the_text() -> None:
    """The bug: a client goes away, and what was kept for it stays for ever."""
    llm = engine()
    states = [llm.add(prompt_of(12), SamplingParams(max_tokens=20, seed=1)) for _ in range(3)]
    for _ in range(3):
        llm.step()
    assert llm.executor.sampler.num_generators == 3
    for state in states:
        llm.abort(state)
        llm.abort(state)  # twice does no harm
    assert_idle(llm)
    assert not llm.step()


def test_an_interrupted_call_leaves_nothing(monkeypatch) -> None:
    """The bug: after Ctrl-C in a notebook the next call computes the old requests first."""
    llm = engine()
    execute = llm.executor.execute

    def interrupt(plan):
        if llm.num_steps == 4:
            raise KeyboardInterrupt
        return execute(plan)

    monkeypatch.setattr(llm.executor, "execute", interrupt)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([prompt_of(12), prompt_of(9, 2)], greedy(20))
    monkeypatch.setattr(llm.executor, "execute", execute)
    assert_idle(llm)
    assert llm.generate([prompt_of(12)], greedy(5))[0].token_ids == alone(tuple(prompt_of(12)), 5)


def test_the_harness_notices_a_request_that_stays() -> None:
    """A control: ``assert_idle`` must be able to fail."""
    llm = engine()
    serve(llm, [ParityJob(prompt_of(6), [0] * 3)])
    llm.add(prompt_of(6), greedy(3))
    with pytest.raises(AssertionError):
        assert_idle(llm)
