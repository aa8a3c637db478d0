"""rejection: which drafts of a speculative step are kept, and what is emitted after them.

Lossless: draft x, proposed with probability q(x), is kept with probability min(1, p(x)/q(x)); after
the first one that is not, a token is drawn from what p has more than q, max(p - q, 0), and the rest
is dropped. If all are kept, the bonus token follows. What comes out is distributed as p, whatever
proposed it (Leviathan et al. 2023, Chen et al. 2023).

Drawing is a race: with E exponential, the largest w/E has index i with probability w_i / sum(w), so
one pass over the vocabulary draws, with no sum and no search. All randomness is an argument.
"""
# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import torch

from minilab.kernels import checks
from minilab.kernels.device import choose_backend, tl, triton
from minilab.kernels.spec import ARCHS, Config, Spec, config_for

PLACEHOLDER = -1


@triton.jit
def _race(p_row, q_row, noise, draft, vocab, MODE: tl.constexpr, BLOCK_V: tl.constexpr):
    """Index and value of the row's largest score, the lowest index among equals.

    MODE 0: p. MODE 1: p / noise. MODE 2: max(p - q, 0) / noise, where no ``q_row`` means that all
    of q is on ``draft``.
    """
    best = tl.full([BLOCK_V], -1.0, tl.float32)
    index = tl.full([BLOCK_V], 0, tl.int32)
    for start in range(0, vocab, BLOCK_V):
        at = start + tl.arange(0, BLOCK_V)
        there = at < vocab
        score = tl.load(p_row + at, mask=there, other=-1.0)
        if MODE == 2:
            if q_row is None:
                score = tl.where(at == draft, 0.0, score)
            else:
                score = tl.maximum(score - tl.load(q_row + at, mask=there, other=0.0), 0.0)
        if MODE > 0:
            score = tl.div_rn(score, tl.load(noise + at, mask=there, other=1.0))
        score = tl.where(there, score, -1.0)
        index = tl.where(score > best, at, index)
        best = tl.maximum(score, best)
    highest = tl.max(best, 0)
    return tl.min(tl.where(best == highest, index, vocab), 0), highest


@triton.jit
def _rejection_kernel(
    out, draft_ids, cu_drafts, draft_probs, target_probs, bonus_ids, uniforms, noise, is_greedy,
    stride_out, vocab, ALL_GREEDY: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """One program: one request, its drafts one after the other."""
    request = tl.program_id(0).to(tl.int64)
    first = tl.load(cu_drafts + request - 1, mask=request > 0, other=0)
    drafts = tl.load(cu_drafts + request) - first
    kept = 0
    last = tl.load(bonus_ids + request).to(tl.int32)
    going = drafts > 0
    while going:
        at = (first + kept).to(tl.int64)
        draft = tl.load(draft_ids + at).to(tl.int32)
        p_row = target_probs + at * vocab
