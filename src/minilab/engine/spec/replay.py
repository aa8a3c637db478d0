"""Replay: what a proposer would have achieved on texts that are known already.

With greedy verification the text is the same whatever is proposed. So one plain run of the target
serves to measure any number of proposers, exactly, without running the target again.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from minilab.core.request import RequestState
from minilab.engine.batch import Piece, StepBatch
from minilab.engine.sampling import SamplingParams
from minilab.engine.spec.metrics import DraftCounts
from minilab.engine.spec.proposer import Drafting, Proposer
from minilab.facts.request import Request

GREEDY = SamplingParams(temperature=0)
PERIOD, TAIL = 16, 40


@dataclass(frozen=True)
class Text:
    """A text that the target wrote greedily.

    Attributes:
        tokens: prompt and output.
        hidden: [len(tokens) - 1 or more, hidden_size], before the final norm; None if no proposer
            reads it.
    """

    tokens: list[int]
    num_prompt_tokens: int
    hidden: torch.Tensor | None = None


def replay(proposer: Proposer, text: Text, k: int) -> DraftCounts:
    """The counts of decoding ``text`` with up to ``k`` drafts a step."""
    counts = DraftCounts()
    end, known = len(text.tokens), text.num_prompt_tokens + 1  # the first token is the prompt's
    show(proposer, text, 0, known - 1)
    while known < end:
        asked = Drafting(0, text.tokens[:known], GREEDY, min(k, end - known - 1))
        draft = proposer.propose([asked]).get(0)
        guesses = draft.tokens if draft else []
        kept = 0
        while kept < len(guesses) and guesses[kept] == text.tokens[known + kept]:
            kept += 1
        counts.count(len(guesses), kept, kept + 1)
        show(proposer, text, known - 1, known + kept)
        known += kept + 1
    proposer.forget(0)
    return counts


def without_loop(tokens: list[int], num_prompt_tokens: int) -> list[int]:
    """``tokens`` up to where the output begins to repeat itself with a short period.

    A greedy small model often ends in a loop, which any look-up foretells: acceptance measured
    there flatters it.
    """
    output = tokens[num_prompt_tokens:]
    for end in range(TAIL, len(output) + 1):
        tail = output[end - TAIL : end]
        if any(tail[period:] == tail[:-period] for period in range(1, PERIOD + 1)):
            return tokens[: num_prompt_tokens + end - TAIL]
    return tokens


def show(proposer: Proposer, text: Text, start: int, end: int) -> None:
    """Let request 0's proposer see the features of tokens ``start`` to ``end``, as a step would."""
    if not proposer.reads_hidden:
        return
    assert text.hidden is not None, "this proposer reads hidden states"
    hidden = text.hidden[start:end]
    piece = Piece(text.tokens[start:end], start, [0], 1)
    request = RequestState(Request(0, 0.0, text.num_prompt_tokens, 1))
    batch = StepBatch.laid_out([piece], 1 << 20, hidden.device, requests=[request])
    proposer.observe(batch, hidden)
