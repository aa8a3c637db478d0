"""The engine against transformers, token for token, over everything the scheduler may do to it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from parity import Pair, assert_idle, assert_same, greedy, prompts, serve

from minilab.core.config import SchedulerConfig
from minilab.core.plan import StepPlan
from minilab.engine.llm import LLM
from minilab.engine.sampling import SamplingParams

TIGHT, ROOMY = 16, 128  # blocks of 4; the longest request alone takes 15
SHORT = 19  # where every order of arrival takes blocks away from someone


def limits(budget: int, seqs: int, blocks: int = ROOMY, **more: Any) -> SchedulerConfig:
    return SchedulerConfig(blocks, 4, max_num_batched_tokens=budget, max_num_seqs=seqs, **more)


LIMITS = {
    "one sequence, one token a step": limits(1, 1),
    "budget of max_num_seqs": limits(4, 4),
    "one token more than that": limits(5, 4),
    "chunks off block boundaries": limits(7, 4),
    "chunks on block boundaries": limits(8, 2),
    "whole prompts": limits(512, 8),
    "preemption": limits(16, 6, SHORT),
    "preemption without cache": limits(16, 6, SHORT, enable_prefix_caching=False),
    "preemption, small budget": limits(6, 6, SHORT),
    "no cache": limits(13, 3, enable_prefix_caching=False),
    "prefill first": limits(16, 6, 24, policy="prefill-first"),
    "decode first": limits(16, 6, 24, policy="decode-first"),
    "blocks of one token": SchedulerConfig(96, 1, max_num_batched_tokens=9, max_num_seqs=4),
    "blocks longer than a prompt": SchedulerConfig(8, 64, max_num_seqs=4),
}


LATENT_LIMITS = [
    "chunks off block boundaries",
    "preemption",
    "preemption without cache",
    "whole prompts",
    "blocks of one token",
]


@pytest.mark.parametrize("arrival", [None, 5], ids=["in order", "shuffled"])
@pytest.mark.parametrize("name", LIMITS)
def test_greedy_text_is_that_of_transformers(pair: Pair, name: str, arrival: int | None) -> None:
    same_as_transformers(pair, name, arrival)


@pytest.mark.parametrize("name", LATENT_LIMITS)
def test_greedy_text_of_a_cache_of_latents_is_that_of_transformers(
    latent_pair: Pair, name: str
) -> None:
    same_as_transformers(latent_pair, name, 5)


@pytest.mark.slow
@pytest.mark.parametrize("arrival", [None, 5], ids=["in order", "shuffled"])
@pytest.mark.parametrize("name", LIMITS)
def test_greedy_text_of_latents_under_all_limits(
    latent_pair: Pair, name: str, arrival: int | None
) -> None:
    same_as_transformers(latent_pair, name, arrival)


def same_as_transformers(pair: Pair, name: str, arrival: int | None) -> None:
    """Also: the case that the limits are there for really comes up."""
    llm = LLM(pair.config, pair.weights, LIMITS[name])
    ends: set[bool] = set()  # whether chunks end on a block boundary
    mixed = False

    def watch(plan: StepPlan) -> None:
        nonlocal mixed
        mixed |= bool(plan.prefills and plan.num_decodes)
        for request, start, count in plan.prefills:
            if start + count < request.num_tokens:
                ends.add((start + count) % llm.scheduler.config.block_size == 0)

    assert_same(serve(llm, pair.jobs, arrival, watch), pair.jobs)
    assert_idle(llm)
    if "preemption" in name:
        assert llm.scheduler.num_preemptions
    if name in ("chunks off block boundaries", "one token more than that"):
        assert ends == {True, False}
    if name == "whole prompts":
        assert not ends
    if LIMITS[name].policy == "mixed" and LIMITS[name].max_num_seqs > 1 and arrival:
        assert mixed, "no step held both prompts and decodes"


GRID = [
    (seqs, budget, blocks, cache)
    for seqs, budget in itertools.product((1, 2, 6), (1, 2, 6, 7, 8, 16, 512))
    for blocks, cache in itertools.product((TIGHT, SHORT, ROOMY), (True, False))
    if budget >= seqs
]


@pytest.mark.slow
@pytest.mark.parametrize("seqs", [1, 2, 6])
def test_greedy_text_over_the_whole_grid(pair: Pair, seqs: int) -> None:
    """Every budget with every pool, cache on and off, each with another order of arrival."""
    preempted = 0
    for number, (count, budget, blocks, cache) in enumerate(GRID):
        if count != seqs:
            continue
        chosen = limits(budget, seqs, blocks, enable_prefix_caching=cache)
        llm = LLM(pair.config, pair.weights, chosen)
        assert_same(serve(llm, pair.jobs, number), pair.jobs)
        assert_idle(llm)
        preempted += llm.scheduler.num_preemptions
    assert (preempted > 10) == (seqs > 1), "one sequence never needs to give its blocks back"


def test_logits_are_those_of_transformers(any_pair: Pair) -> None:
    """To 2e-5, at the end of a prompt in chunks and at every token after it."""
    prompt = prompts(1, seed=3)[0] + prompts(1, seed=4)[0]
    llm = LLM(any_pair.config, any_pair.weights, limits(8, 1, 64))
    seen: list[torch.Tensor] = []
    forward = llm.executor.model.forward

    def watched(batch: Any) -> torch.Tensor:
        seen.append(forward(batch))
        return seen[-1]

    llm.executor.model.forward = watched  # type: ignore[method-assign]
    output = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=8))[0]
    whole = torch.tensor([prompt + output.token_ids[:-1]])
    with torch.inference_mode():
        wanted = any_pair.model(whole).logits[0, len(prompt) - 1 :]
    got = torch.cat([logits for logits in seen if len(logits)])
    torch.testing.assert_close(got, wanted, rtol=0, atol=2e-5)
    assert wanted.std() > 0.5, "flat logits would hide a wrong position"


def test_logits_of_latents_are_those_of_transformers(latent_pair: Pair) -> None:
    """Softmax routing and an undivided query, too (V2)."""
    test_logits_are_those_of_transformers(latent_pair)


def test_cached_prefix_changes_no_token_and_is_really_used(any_pair: Pair) -> None:
    llm = LLM(any_pair.config, any_pair.weights, limits(64, 4, 64))
    prompt = prompts(1, seed=5, shared=16)[0]
    rule = SamplingParams(temperature=0, max_tokens=9)
    first, second = (llm.generate([prompt], rule)[0] for _ in range(2))
    assert first.token_ids == second.token_ids == greedy(any_pair.model, prompt, 9)
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, (len(prompt) - 1) // 4 * 4)


def test_generated_text_is_found_again_as_a_prompt(pair: Pair) -> None:
    """A chat: the answer comes back as part of the next prompt, and its KV is still right."""
    llm = LLM(pair.config, pair.weights, limits(64, 4, 64))
    prompt = prompts(1, seed=6)[0]
    said = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=13))[0].token_ids
    again = prompt + said + [17, 4]
    output = llm.generate([again], SamplingParams(temperature=0, max_tokens=9))[0]
    assert output.token_ids == greedy(pair.model, again, 9)
    assert output.num_cached_tokens == (len(prompt) + 12) // 4 * 4


def test_salts_share_nothing_and_change_no_token(pair: Pair) -> None:
    llm = LLM(pair.config, pair.weights, limits(64, 4, 64))
    prompt = prompts(1, seed=5, shared=16)[0]
    rule = SamplingParams(temperature=0, max_tokens=9)
    cached = {}
    for salt in (None, "a", "b", "", "a", None):
        output = llm.generate([prompt], rule, cache_salt=salt)[0]
        assert output.token_ids == greedy(pair.model, prompt, 9)
        cached.setdefault(salt, []).append(output.num_cached_tokens)
    whole = (len(prompt) - 1) // 4 * 4
    assert cached == {None: [0, whole], "a": [0, whole], "b": [0], "": [0]}
