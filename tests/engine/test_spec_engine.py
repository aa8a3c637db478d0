"""Speculation changes how many steps a text takes, and not one token of it.

A rejected draft leaves KV, blocks and counts behind; each case here is one way to trip over them.
"""

from __future__ import annotations

import random

import pytest
import torch
from driving import check
from spec_worlds import TINY, WEIGHTS, Oracle, engine, greedy, plain, prompts

from minilab.core.config import SchedulerConfig
from minilab.core.request import RequestState
from minilab.engine.attention import KernelAttention
from minilab.engine.llm import LLM
from minilab.engine.sampling import SamplingParams
from minilab.engine.spec.draft_table import DraftTable
from minilab.engine.spec.ngram import NGram
from minilab.engine.spec.speculation import Speculation

TOKENS = 24
LIMITS = {
    "plenty": SchedulerConfig(512, 16, max_num_seqs=8),
    "alone": SchedulerConfig(64, 4, max_num_seqs=1),
    "chunks across blocks": SchedulerConfig(128, 4, max_num_batched_tokens=11, max_num_seqs=8),
    "budget without room for drafts": SchedulerConfig(
        128, 4, max_num_batched_tokens=6, max_num_seqs=6
    ),
    "preemption": SchedulerConfig(40, 4, max_num_batched_tokens=32, max_num_seqs=8),
    "prefill first": SchedulerConfig(
        64, 4, max_num_batched_tokens=32, max_num_seqs=8, policy="prefill-first"
    ),
    "no cache": SchedulerConfig(48, 4, max_num_seqs=8, enable_prefix_caching=False),
}


@pytest.fixture(scope="module")
def asked() -> list[list[int]]:
    return prompts(12, seed=1, shared=9)


@pytest.fixture(scope="module")
def wanted(asked: list[list[int]]) -> list[list[int]]:
    return plain(asked, TOKENS)


def oracle(asked: list[list[int]], wanted: list[list[int]], wrong: float = 0.3) -> Oracle:
    texts = {tuple(prompt): text for prompt, text in zip(asked, wanted, strict=True)}
    return Oracle(texts, wrong, seed=3)


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS.keys())
@pytest.mark.parametrize("kernels", [False, True], ids=["groups", "kernels"])
def test_texts_are_those_of_plain_decoding(
    asked: list[list[int]], wanted: list[list[int]], limits: SchedulerConfig, kernels: bool
) -> None:
    """Guesses right and wrong, of 0 to 4 tokens, over everything the scheduler may do."""
    llm = engine(limits, oracle(asked, wanted))
    if kernels:
        llm.executor.model.attention = KernelAttention()
    states = [llm.add(prompt, greedy(TOKENS)) for prompt in asked]
    while llm.step():
        check(llm.scheduler)
    assert [llm.output(state).token_ids for state in states] == wanted
    counts = llm.executor.speculation.counts  # type: ignore[union-attr]
    if limits is LIMITS["preemption"]:
        assert llm.scheduler.num_preemptions, "the case did not come up"
    assert counts.num_accepted_tokens > 20
    assert counts.num_draft_tokens > counts.num_accepted_tokens, "nothing was rolled back"
    assert llm.scheduler.pool.used == 0


def test_right_guesses_save_steps(asked: list[list[int]], wanted: list[list[int]]) -> None:
    """Without mistakes 24 tokens take far fewer steps than 24, and the counters add up."""
    limits = SchedulerConfig(512, 16, max_num_seqs=16)
    without = engine(limits)
    without.generate(asked, greedy(TOKENS))
    llm = engine(limits, oracle(asked, wanted, wrong=0.0))
    llm.generate(asked, greedy(TOKENS))
    assert llm.num_steps < 0.6 * without.num_steps
    counts = llm.executor.speculation.counts  # type: ignore[union-attr]
    assert counts.acceptance_rate == 1.0 and counts.num_draft_tokens > 100
    assert counts.num_emitted_tokens == 12 * (TOKENS - 1), "the first token is the prompt's"
    assert counts.num_emitted_tokens == counts.num_steps + counts.num_accepted_tokens
    assert counts.acceptance_length > counts.tokens_per_step > 1


def test_a_stop_inside_accepted_drafts_ends_the_text_there() -> None:
    """What was accepted behind the token that ends a text must not come out."""
    asked = prompts(6, seed=8)
    wanted = plain(asked, TOKENS)
    rules = [
        SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, stop_token_ids=[text[9]])
        for text in wanted
    ]
    limits = SchedulerConfig(512, 4, max_num_seqs=8)
    alone = [output.token_ids for output in engine(limits).generate(asked, rules)]
    llm = engine(limits, oracle(asked, wanted, wrong=0.1), k=6)
    outputs = llm.generate(asked, rules)
    assert [output.token_ids for output in outputs] == alone
    assert all(output.finish_reason == "stop" for output in outputs)
    llm.scheduler.pool.check([])


def test_published_blocks_hold_no_rejected_draft() -> None:
    """A later request that hits the generated text's blocks must read what a clean one computes."""
    asked = prompts(4, seed=5)
    wanted = plain(asked, TOKENS)
    llm = engine(SchedulerConfig(512, 4, max_num_seqs=4), oracle(asked, wanted, wrong=0.5))
    llm.generate(asked, greedy(TOKENS))
    longer = [prompt + text for prompt, text in zip(asked, wanted, strict=True)]
    outputs = llm.generate(longer, greedy(1))
    assert all(o.num_cached_tokens >= len(p) - 5 for o, p in zip(outputs, longer, strict=True))
    clean = engine(SchedulerConfig(512, 4, enable_prefix_caching=False))
    assert [o.token_ids for o in outputs] == [
        o.token_ids for o in clean.generate(longer, greedy(1))
    ]
    seen = [_kv(engine, prompt) for engine in (llm, clean) for prompt in longer]
    for cached, fresh in zip(seen[:4], seen[4:], strict=True):
        torch.testing.assert_close(cached, fresh, rtol=0, atol=1e-5)


def _kv(llm: LLM, prompt: list[int]) -> torch.Tensor:
    """All KV of a prompt, through the block table of a request that reads it."""
    state = llm.add(prompt, greedy(1))
    plan = llm.scheduler.schedule()
    table = list(state.block_table)
    llm.scheduler.update(plan, llm.executor.execute(plan))
    llm.executor.texts.pop(state.id)
    return llm.executor.model.kv_cache[:, :, table].flatten(2, 3)[:, :, : len(prompt)].clone()


def test_a_stress_with_aborts_leaves_nothing_behind() -> None:
    """Random arrivals, temperatures, aborts, a tiny pool; the house rules hold at every step."""
    rng = random.Random(0)
    llm = LLM(
        TINY,
        WEIGHTS,
        SchedulerConfig(32, 4, max_num_batched_tokens=24, max_num_seqs=6),
        speculation=Speculation(NGram(3, 1), DraftTable([(1, 2, 5), (3, 5, 2)])),
    )
    alive: list[RequestState] = []
    for _ in range(300):
        if rng.random() < 0.3:
            prompt = rng.choices(range(40), k=rng.randint(1, 20))
            rule = SamplingParams(rng.choice([0.0, 1.0]), max_tokens=rng.randint(1, 20), seed=1)
            alive.append(llm.add(prompt, rule, rng.choice([None, "a"])))
        if alive and rng.random() < 0.1:
            llm.abort(alive.pop(rng.randrange(len(alive))))
        llm.step()
        check(llm.scheduler)
    while llm.step():
        pass
    speculation = llm.executor.speculation
    assert speculation is not None and speculation.counts.num_draft_tokens > 100
    assert llm.scheduler.pool.used == 0 and not llm.scheduler.num_running
    assert not speculation.drafts and not speculation.proposer._index  # type: ignore[attr-defined]


def test_the_record_counts_the_tokens_of_a_step() -> None:
    """A step that yields k tokens is one gap and k - 1 zeros; none may be lost."""
    asked = prompts(6, seed=4)
    llm = engine(SchedulerConfig(512, 16, max_num_seqs=8), oracle(asked, plain(asked, TOKENS)))
    llm.generate(asked, greedy(TOKENS))
    log = llm.record.to_runlog(data={"name": "test", "kind": "synthetic"})
    assert log.gaps is not None
    assert (log.gaps.counts() == TOKENS - 1).all()
    assert (log.requests["output_tokens"] == TOKENS).all()


def test_drafts_follow_the_table() -> None:
    """No request gets more drafts than the table says for the batch it is in."""
    asked = prompts(8, seed=6)
    llm = engine(SchedulerConfig(512, 16, max_num_seqs=8), oracle(asked, plain(asked, TOKENS)))
    assert llm.executor.speculation is not None
    llm.executor.speculation.table = DraftTable([(1, 2, 4), (3, 8, 1)])
    for number, prompt in enumerate(asked):
        llm.add(prompt, greedy(6 if number else TOKENS))
    seen: dict[int, int] = {}
    while True:
        plan = llm.scheduler.schedule()
        if not plan:
            break
        most = max(plan.drafts.values(), default=0)
        seen[plan.num_decodes] = max(seen.get(plan.num_decodes, 0), most)
        llm.scheduler.update(plan, llm.executor.execute(plan))
    assert seen[8] == 1 and 1 < seen[1] <= 4
