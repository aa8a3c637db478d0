"""The engine against transformers, token for token, over everything the scheduler may do to it.

Tiny random models with spread logits and distinct prompt tokens: on identical tokens or flat logits
a wrong position or a wrong block passes by accident.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from minilab.core.config import SchedulerConfig
from minilab.engine.config import DecoderConfig
from minilab.engine.llm import LLM
from minilab.engine.sampling import SamplingParams

transformers = pytest.importorskip("transformers", reason="needs transformers")

VOCAB = 160
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "eos_token_id": None,
    "bos_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def reference(family: str) -> Any:
    """A random model of transformers; the same one for the same name."""
    torch.manual_seed(7)
    if family == "qwen2":
        config = transformers.Qwen2Config(**SHAPE, tie_word_embeddings=True)
    elif family == "qwen3":
        config = transformers.Qwen3Config(**SHAPE, head_dim=32)
    else:
        rope = {"rope_parameters": LLAMA3} if family == "llama3" else {}
        config = transformers.LlamaConfig(**SHAPE, **rope)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture(scope="module", params=["llama", "llama3", "qwen2", "qwen3"])
def pair(request: Any) -> tuple[Any, DecoderConfig, dict[str, torch.Tensor]]:
    model = reference(request.param)
    config = DecoderConfig.from_hf(model.config.to_dict())
    return model, config, dict(model.state_dict())


def prompts(count: int, seed: int, shared: int = 0) -> list[list[int]]:
    """Prompts of distinct tokens; the first ``shared`` of each are the same."""
    rng = random.Random(seed)
    head = rng.sample(range(VOCAB), shared)
    return [head + rng.sample(range(VOCAB), rng.randint(3, 40)) for _ in range(count)]


def expected(model: Any, prompt: list[int], count: int) -> list[int]:
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),  # else token 0 is taken for padding
            max_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
        )
    return out[0, len(prompt) :].tolist()


LIMITS = {
    "plenty": SchedulerConfig(256, 16),
    "one at a time": SchedulerConfig(64, 4, max_num_batched_tokens=1, max_num_seqs=1),
    "chunks across blocks": SchedulerConfig(64, 4, max_num_batched_tokens=7, max_num_seqs=4),
    "chunks on blocks": SchedulerConfig(64, 4, max_num_batched_tokens=8, max_num_seqs=4),
    "preemption": SchedulerConfig(22, 4, max_num_batched_tokens=16, max_num_seqs=6),
    "prefill first": SchedulerConfig(
        40, 4, max_num_batched_tokens=16, max_num_seqs=6, policy="prefill-first"
    ),
    "no cache": SchedulerConfig(24, 4, max_num_seqs=6, enable_prefix_caching=False),
}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS.keys())
def test_greedy_text_is_that_of_transformers(pair: Any, limits: SchedulerConfig) -> None:
    model, config, weights = pair
    llm = LLM(config, weights, limits)
    asked = prompts(6, seed=1, shared=9)
    rules = [SamplingParams(temperature=0, max_tokens=6 + 3 * i) for i in range(6)]
    outputs = llm.generate(asked, rules)
    if limits is LIMITS["preemption"]:
        assert llm.scheduler.num_preemptions, "the case did not come up"
    for prompt, rule, output in zip(asked, rules, outputs, strict=True):
        assert output.token_ids == expected(model, prompt, rule.max_tokens)
        assert output.finish_reason == "length"
    llm.scheduler.pool.check([])
    assert not llm.executor.texts


def test_logits_are_those_of_transformers(pair: Any) -> None:
    """To 2e-5, at every position of a prompt in chunks."""
    model, config, weights = pair
    prompt = prompts(1, seed=3)[0] + prompts(1, seed=4)[0]
    llm = LLM(config, weights, SchedulerConfig(64, 4, max_num_batched_tokens=8, max_num_seqs=1))
    seen: list[torch.Tensor] = []
    forward = llm.executor.model.forward

    def watched(batch: Any) -> torch.Tensor:
        seen.append(forward(batch))
        return seen[-1]

    llm.executor.model.forward = watched  # type: ignore[method-assign]
    output = llm.generate([prompt], SamplingParams(temperature=0, max_tokens=8))[0]
    with torch.inference_mode():
        wanted = model(torch.tensor([prompt + output.token_ids[:-1]])).logits[0, len(prompt) - 1 :]
    got = torch.cat([logits for logits in seen if len(logits)])
    torch.testing.assert_close(got, wanted, rtol=0, atol=2e-5)
    assert wanted.std() > 0.5, "flat logits would hide a wrong position"


def test_cached_prefix_changes_no_token_and_is_really_used(pair: Any) -> None:
    _, config, weights = pair
    llm = LLM(config, weights, SchedulerConfig(64, 4, max_num_seqs=4))
    prompt = prompts(1, seed=5, shared=16)[0]
    rule = SamplingParams(temperature=0, max_tokens=9)
    first, second = (llm.generate([prompt], rule)[0] for _ in range(2))
    assert first.token_ids == second.token_ids
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, (len(prompt) - 1) // 4 * 4)
    salted = llm.generate([prompt], rule, cache_salt="tenant")[0]
    assert salted.num_cached_tokens == 0 and salted.token_ids == first.token_ids


MUTANTS = {
    # A shift of all positions would change nothing: rotary angles only count differences.
    "position off by one": ("positions", lambda b: b.positions + (b.positions > 20)),
    "wrong block": ("block_tables", lambda b: b.block_tables.roll(1, 0)),
    "one token too few": ("seq_lens", lambda b: (b.seq_lens - 1).clamp(min=1)),
    "slot of the neighbour": ("slot_mapping", lambda b: b.slot_mapping.roll(1, 0)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_parity_test_can_fail(pair: Any, name: str) -> None:
    """Each planted mistake in the batch must change some token."""
    from dataclasses import replace

    model, config, weights = pair
    llm = LLM(config, weights, SchedulerConfig(64, 4, max_num_batched_tokens=16, max_num_seqs=4))
    field, mutate = MUTANTS[name]
    forward = llm.executor.model.forward
    llm.executor.model.forward = (  # type: ignore[method-assign]
        lambda batch: forward(replace(batch, **{field: mutate(batch)}))
    )
    asked = prompts(4, seed=9)
    try:
        outputs = llm.generate(asked, SamplingParams(temperature=0, max_tokens=8))
    except ValueError as error:
        assert "seq_lens" in str(error)  # the kernel noticed a chunk longer than its context
        return
    texts = [expected(model, prompt, 8) for prompt in asked]
    assert [output.token_ids for output in outputs] != texts
