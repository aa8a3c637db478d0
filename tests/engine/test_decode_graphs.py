"""Replayed decode steps give the same text; on a CPU, replaying is running the same batch again."""

from __future__ import annotations

import pytest
import torch

from minilab.core.config import SchedulerConfig
from minilab.engine.attention import KernelAttention
from minilab.engine.decode_graphs import DecodeGraphs, LaunchShare
from minilab.engine.llm import LLM
from minilab.engine.load import load_llm
from minilab.engine.sampling import SamplingParams
from minilab.engine.tiny import TINY, random_weights
from minilab.facts.errors import InputError

BLOCKS = 9
PROMPTS = [[3, 141, 59], [26, 53, 58, 97, 93, 23, 84, 62, 64], [3, 141, 60], [33, 83, 27, 95, 2]]
RULES = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in (22, 9, 14, 3)]


def engine() -> LLM:
    llm = LLM(TINY, random_weights(TINY), SchedulerConfig(BLOCKS, 4, 8, 4))
    llm.executor.model.attention = KernelAttention()
    return llm


def texts(llm: LLM) -> list[list[int]]:
    return [output.token_ids for output in llm.generate(PROMPTS, RULES)]


@pytest.mark.parametrize("sizes", [(1, 2, 4), (4,), (2,)], ids=str)
def test_padded_batches_give_the_same_text(sizes: tuple[int, ...]) -> None:
    """Three of four sequences in a graph of four; mixed steps, and batches too large, run as ever.

    Stale entries of an earlier step would write into blocks that belong to others by now.
    """
    wanted = texts(engine())
    llm = engine()
    graphs = DecodeGraphs(llm.executor.model, BLOCKS, sizes, capture=lambda run: run)
    llm.executor.graphs = graphs
    assert texts(llm) == wanted and texts(llm) == wanted
    assert 0 < graphs.num_replays < llm.num_steps
    assert llm.scheduler.num_preemptions, "blocks should change hands"


def test_what_is_left_of_a_larger_step_is_padding_again() -> None:
    """The bug: only the used rows are filled, and the rows behind them write again."""
    llm = engine()
    stale: list[bool] = []

    def capture(run):
        def replay():
            still = graphs._recorded[4][0]
            used = int((still.seq_lens > 0).sum())
            stale.append(bool((still.slot_mapping[used:] != -1).any()))
            return run()

        return replay

    graphs = DecodeGraphs(llm.executor.model, BLOCKS, (4,), capture=capture)
    llm.executor.graphs = graphs
    texts(llm)
    assert stale and not any(stale)


def test_graphs_without_a_gpu_are_refused() -> None:
    with pytest.raises(InputError, match="CUDA graphs need a GPU that runs the Triton kernels"):
        load_llm("tiny", device="cpu").use_decode_graphs()


def test_the_launch_share_by_hand() -> None:
    """8 ms launched one by one, 2 ms as a graph: three quarters were launches."""
    told = LaunchShare(4, 0.008, 0.002)
    assert told.share == 0.75 and "launch share 75% of a decode step of 4" in str(told)
    assert LaunchShare(4, 0.002, 0.0021).share == 0.0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_graphs_on_a_gpu() -> None:
    wanted = texts(load_llm("tiny", device="cuda", dtype="float32"))
    llm = load_llm("tiny", device="cuda", dtype="float32")
    graphs = llm.use_decode_graphs()
    assert texts(llm) == wanted and graphs.num_replays
    assert 0 <= graphs.launch_share().share < 1
