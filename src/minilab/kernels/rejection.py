"""rejection: which drafts of a speculative step are kept, and what is emitted after them.

Lossless: draft x, proposed with probability q(x), is kept with probability min(1, p(x)/q(x)); after
the first one that is not, a token is drawn from what p has more than q, max(p - q, 0), and the rest
is dropped. If all are kept, the bonus token follows. What comes out is distributed as p, whatever
proposed it (Leviathan et al. 2023, Chen et al. 2023).

Drawing is a race: with E exponential, the largest w/E has index i with probability w_i / sum(w), so
one pass over the vocabulary draws, with no sum and no search. All randomness is an argument.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import torch
from torch.nn.functional import one_hot

from minilab.kernels import checks
from minilab.kernels.device import choose_backend, tl, triton
from minilab.kernels.spec import ARCHS, Config, Spec, config_for


@triton.jit
def _race(p_row, q_row, noise, draft, vocab, MODE: tl.constexpr, BLOCK_V: tl.constexpr):
    """Index and value of the row's largest score, the lowest index among equals.

    MODE 0: p. MODE 1: p / noise. MODE 2: max(p - q, 0) / noise, where no ``q_row`` means that all
    of q is on ``draft``.
    """
    best = tl.full([BLOCK_V], float("-inf"), tl.float32)
    index = tl.full([BLOCK_V], 0, tl.int32)
    for start in range(0, vocab, BLOCK_V):
        at = start + tl.arange(0, BLOCK_V)
        there = at < vocab
        score = tl.load(p_row + at, mask=there, other=0.0)
        if MODE == 2:
            if q_row is None:
                score = tl.where(at == draft, 0.0, score)
            else:
                score = tl.maximum(score - tl.load(q_row + at, mask=there, other=0.0), 0.0)
        if MODE > 0:
            score = tl.div_rn(score, tl.load(noise + at, mask=there, other=1.0))
        score = tl.where(there, score, float("-inf"))
        index = tl.where(score > best, at, index)
        best = tl.maximum(score, best)
    highest = tl.max(best, 0)
    return tl.min(tl.where(best == highest, index, vocab), 0), highest


@triton.jit
def _random_step(p_row, q_row, noise, uniform, draft, vocab, BLOCK_V: tl.constexpr):
    """Whether u < p/q, and a token from the residual where not."""
    q = 1.0 if q_row is None else tl.load(q_row + draft)
    keep = uniform * q < tl.load(p_row + draft)
    token = draft
    if not keep:
        token, highest = _race(p_row, q_row, noise, draft, vocab, 2, BLOCK_V)
        # p has nothing more than q only by rounding: draw from p itself.
        if highest <= 0:
            token, _ = _race(p_row, q_row, noise, draft, vocab, 1, BLOCK_V)
    return keep, token


@triton.jit
def _rejection_kernel(
    out, draft_ids, cu_drafts, draft_probs, target_probs, bonus_ids, uniforms, noise, is_greedy,
    width, vocab, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
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
        p = target_probs + at * vocab
        q = None if draft_probs is None else draft_probs + at * vocab
        if uniforms is None or tl.load(is_greedy + request):
            token, _ = _race(p, None, None, draft, vocab, 0, BLOCK_V)
            keep = token == draft
        else:
            row = noise + request * vocab
            keep, token = _random_step(p, q, row, tl.load(uniforms + at), draft, vocab, BLOCK_V)
        kept += keep.to(tl.int32)
        last = tl.where(keep, last, token)
        going = keep & (kept < drafts)
    column = tl.arange(0, BLOCK_K)
    ids = tl.load(draft_ids + first + column, mask=column < kept, other=-1).to(tl.int32)
    ids = tl.where(column == kept, last, ids)
    tl.store(out + request * width + column, ids, mask=column < width)


def rejection(
    draft_token_ids: torch.Tensor,
    max_spec_len: int,
    cu_num_draft_tokens: torch.Tensor,
    draft_probs: torch.Tensor | None,
    target_probs: torch.Tensor,
    bonus_token_ids: torch.Tensor,
    uniform_probs: torch.Tensor | None = None,
    exponentials: torch.Tensor | None = None,
    is_greedy: torch.Tensor | None = None,
    *,
    config: Config | None = None,
    backend: str = "auto",
    out: torch.Tensor | None = None,
    debug: bool = False,
) -> torch.Tensor:
    """Keep or reject the drafts of a batch (vLLM's rejection_sample, its randomness passed in).

    The drafts of all requests lie one after the other: num_tokens of them.

    Args:
        draft_token_ids: [num_tokens] int32 or int64.
        max_spec_len: the most drafts a request has; decides the width of the result.
        cu_num_draft_tokens: [num_reqs] int32, drafts up to and including each request's; a request
            may have none.
        draft_probs: [num_tokens, vocab_size] fp32, what each draft was drawn from; None for
            proposals that were sure of themselves (n-gram): all of q on the draft.
        target_probs: [num_tokens, vocab_size] fp32, the model's distribution at each draft's place,
            temperature, top-k and top-p applied.
        bonus_token_ids: [num_reqs] int32 or int64, drawn by the caller at the place after the last.
        uniform_probs: [num_tokens] fp32 in [0, 1); with ``exponentials`` None, all are greedy.
        exponentials: [num_reqs, vocab_size] fp32 > 0, from ``Tensor.exponential_``.
        is_greedy: [num_reqs] bool, requests that take the most likely token; None for no request.
            Where all are greedy, target_probs may be logits.
        config, backend: as for paged_decode.
        out: [num_reqs, max_spec_len + 1] int32, to write into.
        debug: also read the ids and counts on a GPU to check them (waits for it).

    Returns:
        ``out`` or a new tensor: the kept drafts, one more token, and -1 from there on.

    Raises:
        ValueError: an argument is not as above; the message names it.
    """
    shapes = checks.Shapes()
    shapes.check("draft_token_ids", draft_token_ids, "num_tokens", checks.INTS)
    shapes.check("cu_num_draft_tokens", cu_num_draft_tokens, "num_reqs", (torch.int32,))
    shapes.check("target_probs", target_probs, "num_tokens vocab_size", (torch.float32,))
    shapes.check("bonus_token_ids", bonus_token_ids, "num_reqs", checks.INTS)
    optional = {
        "draft_probs": (draft_probs, "num_tokens vocab_size", torch.float32),
        "uniform_probs": (uniform_probs, "num_tokens", torch.float32),
        "exponentials": (exponentials, "num_reqs vocab_size", torch.float32),
        "is_greedy": (is_greedy, "num_reqs", torch.bool),
    }
    for name, (tensor, dims, dtype) in optional.items():
        if tensor is not None:
            shapes.check(name, tensor, dims, (dtype,))
    if (uniform_probs is None) != (exponentials is None):
        missing = "uniform_probs" if uniform_probs is None else "exponentials"
        raise ValueError(f"{missing} is None; give both it and the other, or neither (all greedy)")
    checks.at_least("max_spec_len", max_spec_len, 0)
    vocab = shapes["vocab_size"]
    if checks.reads_values(draft_token_ids, debug):
        checks.check_drafts(draft_token_ids, cu_num_draft_tokens, max_spec_len, vocab)
    chosen = choose_backend("rejection", target_probs.device, backend)
    num_reqs, width = shapes["num_reqs"], max_spec_len + 1
    out = checks.output(out, (num_reqs, width), torch.int32, target_probs)
    drafts = (draft_token_ids, max_spec_len, cu_num_draft_tokens, draft_probs, target_probs)
    rest = (bonus_token_ids, uniform_probs, exponentials, is_greedy)
    if chosen.name == "reference":
        return out.copy_(rejection_ref(*drafts, *rest))
    if num_reqs:
        if is_greedy is None and uniform_probs is not None:
            rest = (*rest[:3], torch.zeros(num_reqs, dtype=torch.bool, device=out.device))
        config = config or config_for(CONFIGS, chosen.capability)
        _rejection_kernel[(num_reqs,)](
            out, draft_token_ids, cu_num_draft_tokens, draft_probs, target_probs, *rest,
            width, vocab, triton.next_power_of_2(width), **config.tiles,
            num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    return out


def rejection_ref(
    draft_token_ids: torch.Tensor,
    max_spec_len: int,
    cu_num_draft_tokens: torch.Tensor,
    draft_probs: torch.Tensor | None,
    target_probs: torch.Tensor,
    bonus_token_ids: torch.Tensor,
    uniform_probs: torch.Tensor | None = None,
    exponentials: torch.Tensor | None = None,
    is_greedy: torch.Tensor | None = None,
) -> torch.Tensor:
    """The same in plain torch, request by request; equal to the kernel bit for bit in fp32."""
    ends = cu_num_draft_tokens.tolist()
    out = torch.full((len(ends), max_spec_len + 1), -1, dtype=torch.int32)
    for request, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
        greedy = is_greedy is not None and bool(is_greedy[request])
        row = []
        for at in range(first, end):
            draft, p = int(draft_token_ids[at]), target_probs[at]
            if greedy or uniform_probs is None or exponentials is None:
                row.append(_likeliest(p))
                kept = row[-1] == draft
            else:
                sure = one_hot(torch.tensor(draft), len(p)).to(p)
                q = sure if draft_probs is None else draft_probs[at]
                kept = bool(uniform_probs[at] * q[draft] < p[draft])
                left, noise = (p - q).clamp(min=0), exponentials[request]
                scores = left / noise if bool((left / noise > 0).any()) else p / noise
                row.append(draft if kept else _likeliest(scores))
            if not kept:
                break
        else:
            row.append(int(bonus_token_ids[request]))
        out[request, : len(row)] = torch.tensor(row)
    return out.to(target_probs.device)


def _likeliest(scores: torch.Tensor) -> int:
    """The lowest index of the largest score; argmax does not say which it takes."""
    return int((scores == scores.max()).nonzero()[0])


def cost(num_reqs: int, vocab_size: int, *, ngram: bool = False) -> tuple[int, int]:
    """(bytes, FLOPs) of one rejection a request: its rows of p, q (n-gram drafts have none) and
    noise in fp32, read once; an operation per entry, none of them in matrices."""
    rows = 2 if ngram else 3
    return 4 * rows * num_reqs * vocab_size, rows * num_reqs * vocab_size


CONFIGS = dict.fromkeys(ARCHS, Config({"BLOCK_V": 4096}, warps=8))


def _spec(label: str, absent: tuple[str, ...], fast: bool = False) -> Spec:
    types = {"out": "*i32", "draft_ids": "*i64", "cu_drafts": "*i32", "bonus_ids": "*i64"}
    rows = ("draft_probs", "target_probs", "uniforms", "noise")
    types |= {name: "*fp32" for name in rows if name not in absent}
    types |= {"width": "i32", "vocab": "i32"}
    types |= {} if "is_greedy" in absent else {"is_greedy": "*i1"}
    return Spec(
        f"rejection {label}", _rejection_kernel, types,
        {**dict.fromkeys(absent), "BLOCK_K": 8}, CONFIGS, any_value=("width",), fast=fast,
        case="64 requests, 128,000 tokens of vocabulary", dtype="fp32",
        cost=cost(64, 128_000, ngram="draft_probs" in absent),
    )  # fmt: skip


AOT = (
    _spec("mixed", (), fast=True),
    _spec("n-gram", ("draft_probs",)),
    _spec("greedy", ("draft_probs", "uniforms", "noise", "is_greedy")),
)
