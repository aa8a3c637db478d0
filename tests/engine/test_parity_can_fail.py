"""Planted mistakes: each must change some token, else the parity test proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from parity import Pair, serve

from minilab.core.config import SchedulerConfig
from minilab.core.request import RequestState
from minilab.engine.batch import StepBatch
from minilab.engine.llm import LLM

Mutant = Callable[[StepBatch], StepBatch]


def no_mask(batch: StepBatch) -> StepBatch:
    """Each token of a chunk becomes a sequence of its own that sees all of the chunk."""
    count = len(batch.token_ids)
    repeats = torch.tensor(batch.query_lens)
    return replace(
        batch,
        num_prefills=0,
        query_lens=[1] * count,
        cu_seqlens=torch.arange(count + 1, dtype=torch.int32),
        block_tables=batch.block_tables.repeat_interleave(repeats, 0),
        seq_lens=batch.seq_lens.repeat_interleave(repeats),
    )


MUTANTS: dict[str, Mutant] = {
    # A shift of all positions would change nothing: rotary angles only count differences.
    "position off by one": lambda b: replace(b, positions=b.positions + (b.positions > 20).long()),
    "wrong block": lambda b: replace(b, block_tables=b.block_tables.roll(1, 0)),
    "blocks in another order": lambda b: replace(b, block_tables=b.block_tables.flip(1)),
    "dropped mask": no_mask,
    "context one token short": lambda b: replace(b, seq_lens=(b.seq_lens - 1).clamp(min=1)),
    "slot of the neighbour": lambda b: replace(b, slot_mapping=b.slot_mapping.roll(1, 0)),
    "token of the neighbour": lambda b: replace(b, sampled=(b.sampled - 1).clamp(min=0)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_mistake_changes_the_text(any_pair: Pair, name: str) -> None:
    mutate = MUTANTS[name]
    llm = LLM(any_pair.config, any_pair.weights, SchedulerConfig(128, 4, 16, 4))
    forward = llm.executor.model.forward

    def mutated(batch: Any) -> torch.Tensor:
        return forward(mutate(batch))

    llm.executor.model.forward = mutated  # type: ignore[method-assign]
    try:
        outputs = serve(llm, any_pair.jobs)
    except ValueError as error:
        assert "seq_lens" in str(error)  # noticed: a chunk longer than its context
        return
    wrong = [o.token_ids != job.wanted for o, job in zip(outputs, any_pair.jobs, strict=True)]
    assert sum(wrong) >= 3, wrong


def test_without_a_mistake_the_same_harness_passes(any_pair: Pair) -> None:
    """The control of the experiment above."""
    llm = LLM(any_pair.config, any_pair.weights, SchedulerConfig(128, 4, 16, 4))
    outputs = serve(llm, any_pair.jobs)
    assert [output.token_ids for output in outputs] == [job.wanted for job in any_pair.jobs]


def test_a_stale_hash_changes_the_text(any_pair: Pair) -> None:
    """Hashes that know only where a block lies: every prompt finds the KV of the one before it."""

    class Stale:
        def extend(self, request: RequestState, num_tokens: int) -> None:
            request.block_hashes[:] = range(1, num_tokens // 4 + 1)

    llm = LLM(any_pair.config, any_pair.weights, SchedulerConfig(128, 4, 512, 8))
    llm.scheduler.index._hasher = Stale()
    other, job = any_pair.jobs[7], any_pair.jobs[0]
    assert llm.generate([other.prompt], other.rule)[0].token_ids == other.wanted
    output = llm.generate([job.prompt], job.rule)[0]
    assert output.num_cached_tokens > 0 and output.token_ids != job.wanted
