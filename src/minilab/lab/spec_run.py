"""spec_run: guesses on the real engine, for the lab: a learner's function as a proposer, and times.

Counts hold on any machine. Times are CPU seconds of this process: with one torch thread they are
what a wall clock shows on a core of its own, whatever else the machine does. The lab needs of them
how a wide step compares with a narrow one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minilab.core.config import SchedulerConfig
from minilab.lab.spec_texts import Propose

if TYPE_CHECKING:
    from minilab.engine.config import DecoderConfig
    from minilab.engine.paged_model import Weights
    from minilab.engine.spec.metrics import DraftCounts
    from minilab.engine.spec.proposer import Drafting
    from minilab.engine.spec.speculation import Speculation

    Checkpoint = tuple[DecoderConfig, Weights]


def guessing(propose: Propose, k: int) -> Speculation:
    """What the engine needs to guess with a plain function of (tokens so far, most guesses)."""
    from minilab.engine.spec.proposer import TextProposer
    from minilab.engine.spec.speculation import Speculation

    class Guessing(TextProposer):
        def continuation(self, asked: Drafting) -> list[int]:
            return [int(token) for token in propose(asked.tokens, asked.most)][: asked.most]

    return Speculation.of(Guessing(), k)


@dataclass(frozen=True)
class Ran:
    """One answer: its tokens, the time (s) of each decode step, and what became of the guesses."""

    tokens: list[int]
    steps: list[float]
    counts: DraftCounts | None

    @property
    def per_token(self) -> float:
        """Seconds per token after the first."""
        return sum(self.steps) / max(1, len(self.tokens) - 1)


def run(
    checkpoint: Checkpoint,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    propose: Propose | None = None,
    k: int = 4,
) -> list[Ran]:
    """Greedy answers to prompts of token ids, all in one batch; the steps' times are shared."""
    from minilab.engine.llm import LLM
    from minilab.engine.sampling import SamplingParams

    blocks = sum(-(-(len(prompt) + max_tokens) // 16) + 1 for prompt in prompts)
    limits = SchedulerConfig(
        blocks, 16, max_num_batched_tokens=2048, max_num_seqs=len(prompts),
        enable_prefix_caching=False,
    )  # fmt: skip
    speculation = guessing(propose, k) if propose else None
    llm = LLM(*checkpoint, limits, speculation=speculation)
    rule = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    states = [llm.add(prompt, rule) for prompt in prompts]
    while llm.scheduler.waiting or llm.scheduler.prefilling:
        llm.step()
    steps = []
    while True:
        began = time.process_time()
        if not llm.step():
            break
        steps.append(time.process_time() - began)
    counts = speculation.counts if speculation else None
    return [Ran(llm.output(state).token_ids, steps, counts) for state in states]


def step_seconds(
    checkpoint: Checkpoint,
    widths: Sequence[int],
    batch: int = 1,
    context: int = 256,
    repeats: int = 3,
) -> dict[int, float]:
    """Shortest time (s) of a step of ``batch`` sequences with ``width`` positions each, by width.

    Widths take turns, so that a neighbour on the machine disturbs all alike.
    """
    from minilab.engine.batch import Piece, StepBatch
    from minilab.engine.model import Decoder

    blocks = -(-(context + max(widths)) // 16)
    model = Decoder(*checkpoint, blocks * batch, 16)
    laid = {}
    for width in widths:
        pieces = [
            Piece([7] * width, context, range(row * blocks, (row + 1) * blocks), width)
            for row in range(batch)
        ]
        laid[width] = StepBatch.laid_out(pieces, 16, model.device)
    found = dict.fromkeys(widths, float("inf"))
    for _ in range(1 + repeats):
        for width, one in laid.items():
            began = time.process_time()
            model.forward(one)
            found[width] = min(found[width], time.process_time() - began)
    return found
