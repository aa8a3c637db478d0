"""Attention in groups on a CPU equals the kernels' references, whatever lies in one step."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch

from minilab.core.config import SchedulerConfig
from minilab.engine import linear as linear_module
from minilab.engine.attention import KernelAttention
from minilab.engine.batch import StepBatch
from minilab.engine.batched_attention import BatchedAttention
from minilab.engine.linear import Linear
from minilab.engine.llm import LLM
from minilab.engine.sampling import SamplingParams
from minilab.engine.tiny import TINY, random_weights

KV_HEADS, SHARE, SIZE, BLOCK, BLOCKS = 2, 3, 16, 4, 80

STEPS: dict[str, tuple[Sequence[tuple[int, int]], int]] = {
    # (new tokens, tokens of the sequence) and how many of them are prompt chunks
    "decodes": ([(1, 1), (1, 4), (1, 5), (1, 30), (1, 31)], 0),
    "drafts of different length": ([(5, 9), (1, 9), (3, 3), (2, 17), (4, 40)], 0),
    "prompt from its beginning": ([(19, 19)], 1),
    "later chunks of a prompt": ([(20, 33), (3, 12), (17, 18)], 3),
    "everything": ([(18, 25), (2, 2), (1, 26), (4, 11), (1, 3)], 2),
}


def batch_of(lengths: Sequence[tuple[int, int]], prefills: int, seed: int) -> StepBatch:
    """A step over shuffled pages."""
    rng = random.Random(seed)
    pages = rng.sample(range(BLOCKS), BLOCKS)
    tables = [[pages.pop() for _ in range(-(-length // BLOCK))] for _, length in lengths]
    spots = [range(length - new, length) for new, length in lengths]
    slots = [
        t[p // BLOCK] * BLOCK + p % BLOCK for t, s in zip(tables, spots, strict=True) for p in s
    ]
    widest = max(map(len, tables))
    starts = [0]
    for new, _ in lengths:
        starts.append(starts[-1] + new)
    return StepBatch(
        requests=[],
        num_prefills=prefills,
        query_lens=[new for new, _ in lengths],
        block_size=BLOCK,
        token_ids=torch.zeros(starts[-1], dtype=torch.int64),
        positions=torch.tensor([p for s in spots for p in s]),
        slot_mapping=torch.tensor(slots),
        block_tables=torch.tensor([t + [0] * (widest - len(t)) for t in tables], dtype=torch.int32),
        seq_lens=torch.tensor([length for _, length in lengths], dtype=torch.int32),
        cu_seqlens=torch.tensor(starts, dtype=torch.int32),
        sampled=torch.zeros(0, dtype=torch.int64),
        sampling=[],
        num_sampled=[],
    )


@pytest.mark.parametrize("name", STEPS)
def test_groups_equal_the_references(name: str) -> None:
    lengths, prefills = STEPS[name]
    batch = batch_of(lengths, prefills, seed=len(name))
    torch.manual_seed(1)
    tokens = len(batch.positions)
    query = torch.randn(tokens, KV_HEADS * SHARE, SIZE)
    key, value = torch.randn(2, tokens, KV_HEADS, SIZE)
    cache = torch.randn(2, BLOCKS, BLOCK, KV_HEADS, SIZE)
    caches = [cache.clone(), cache.clone()]
    steps = KernelAttention()(batch), BatchedAttention(SHARE, torch.float32)(batch)
    wanted, got = (step(query, key, value, own) for step, own in zip(steps, caches, strict=True))
    torch.testing.assert_close(got, wanted, rtol=0, atol=2e-6)
    assert torch.equal(*caches) and not torch.equal(caches[0], cache)
    assert wanted.std() > 0.1, "flat outputs would hide a wrong page"


def test_an_engine_on_the_references_says_the_same() -> None:
    """Whole texts, with chunks, a prefix hit and preemption on the way."""
    texts = []
    for attention in (None, KernelAttention()):
        limits = SchedulerConfig(22, 4, max_num_batched_tokens=16, max_num_seqs=6)
        llm = LLM(TINY, random_weights(TINY), limits)
        llm.executor.model.attention = attention or llm.executor.model.attention
        rng = random.Random(2)
        head = rng.choices(range(200), k=9)
        prompts = [head + rng.choices(range(200), k=rng.randint(3, 20)) for _ in range(6)]
        rule = SamplingParams(temperature=0, max_tokens=15, ignore_eos=True)
        texts.append([output.token_ids for output in llm.generate(prompts, rule)])
        assert llm.scheduler.num_preemptions
    assert texts[0] == texts[1]


@pytest.mark.parametrize("rows", [1, 5, 16, 17, 100])
def test_a_packed_weight_multiplies_as_before(rows: int) -> None:
    torch.manual_seed(3)
    weight, bias, x = torch.randn(96, 64), torch.randn(96), torch.randn(rows, 64)
    for added in (None, bias):
        wanted = torch.nn.functional.linear(
            x.double(), weight.double(), None if added is None else added.double()
        )
        got = Linear(weight, added)(x)
        torch.testing.assert_close(got.double(), wanted, rtol=0, atol=2e-5)


def test_a_cpu_without_bfloat16_still_multiplies_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN raises when it is asked to pack bfloat16 on a CPU without AVX-512."""
    monkeypatch.setattr(linear_module, "_has_bfloat16", lambda: False)
    weight, x = torch.randn(96, 64).bfloat16(), torch.randn(3, 64).bfloat16()
    layer = Linear(weight)
    assert not layer.packed
    assert torch.equal(layer(x), torch.nn.functional.linear(x, weight))


def test_bfloat16_is_packed_only_where_the_cpu_has_it() -> None:
    """Failed on every CPU without AVX-512: the engine could not even be loaded in bfloat16."""
    weight = torch.randn(32, 16).bfloat16()
    assert Linear(weight).packed in (False, linear_module._has_bfloat16())
