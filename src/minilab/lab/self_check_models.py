"""Questions on chapters 4 to 6: speculation, fewer bits, models shaped for serving."""

from __future__ import annotations

from minilab.facts.capacity import kv_tokens
from minilab.facts.expert_layout import ExpertLayout
from minilab.facts.kv_speed import break_even, gain, published
from minilab.facts.models import get_model
from minilab.facts.speculation import acceptance_length, emitted, speedup
from minilab.lab.self_check import Question

MODEL = get_model("llama-3.1-8b")
LATENT = get_model("deepseek-v3")
LARGE = get_model("llama-3.1-405b")


def _published_break_even() -> float:
    (found,) = [row for row in published() if (row.gpu, row.model) == ("h100", MODEL.name)]
    return break_even(found.bf16, found.fp8)


def _kept() -> float:
    target, draft = (0.5, 0.3, 0.2), (0.6, 0.2, 0.2)
    return sum(min(p, q) for p, q in zip(target, draft, strict=True))


def _dispatch_bytes() -> float:
    row = LATENT.hidden + LATENT.hidden / 128 * 4
    return LATENT.top_k * row


SPECULATION = (
    Question(
        "emitted",
        "I can compute tokens per step from an acceptance rate.",
        "Each of 5 drafts is kept with probability 0.8, given that those before it were. How many "
        "tokens does a step give on average?",
        lambda: emitted(0.8, 5),
        "tokens",
        "1 + 0.8 + 0.64 + 0.512 + 0.41 + 0.328 = {answer}. Five drafts do not give six tokens.",
    ),
    Question(
        "positions",
        "I can do the same from a per-position vector, as engines export it.",
        "The draft at position 1 is kept in 74 % of the steps, at position 2 in 48 %, at position "
        "3 in 26 %. Tokens per step?",
        lambda: acceptance_length((0.74, 0.48, 0.26)),
        "tokens",
        "1 + 0.74 + 0.48 + 0.26 = {answer}. Their mean, 49 %, would hide where it falls.",
    ),
    Question(
        "loses",
        "I can name a load at which a good drafter loses.",
        "A step with 4 drafts gives 3.0 tokens. A draft takes a tenth of a plain step, and in this "
        "full batch verifying 5 positions takes 4 plain steps. How many times as fast is it?",
        lambda: speedup(3.0, 4, 0.1, 4.0),
        "times",
        "3.0 / (4 × 0.1 + 4) = {answer}: slower than without. With verifying at 1.0 the same "
        "drafter is 2.1 times as fast.",
    ),
    Question(
        "kept",
        "I can say how often a draft is kept, from the two distributions.",
        "Target: 0.5, 0.3, 0.2. Draft: 0.6, 0.2, 0.2. With which probability is a draft accepted?",
        _kept,
        "",
        "The sum of the smaller of each pair: 0.5 + 0.2 + 0.2 = {answer}. What is missing to 1 is "
        "drawn again from the rest of the target, and the law stays the target's.",
    ),
    Question(
        "mtp",
        "I can say what a single MTP draft brings.",
        "An MTP module's draft is kept in 85 % of the steps, and the step takes 5 % longer. How "
        "many times as fast is decoding?",
        lambda: emitted(0.85, 1) / 1.05,
        "times",
        "(1 + 0.85) / 1.05 = {answer}.",
    ),
)

BITS = (
    Question(
        "fp8-break-even",
        "I can say from which context on FP8 KV is faster.",
        "Measured on an H100 with Llama-3.1-8B: a step takes 6.44 ms + 4.37e-5 ms per token of "
        "context in bf16, 6.58 ms + 2.37e-5 ms in FP8. At how many tokens are they equal?",
        _published_break_even,
        "tokens",
        "0.14 / 2.0e-5 = {answer}. Below that, FP8 KV buys room and no speed.",
        digits=2,
    ),
    Question(
        "fp8-gain",
        "I can say how much faster it can be at all.",
        "Weights 16.06 GB, KV 131,072 bytes a token. One sequence with 32,768 tokens: by how many "
        "percent do fewer bytes speed up its decode step, at most?",
        lambda: 100 * gain(MODEL, 32768),
        "%",
        "(16.06 + 4.29) / (16.06 + 2.15) − 1 = {answer}. The weights are still read.",
    ),
    Question(
        "fp8-tokens",
        "I can say what FP8 KV buys in room.",
        "40 GB are left for KV. How many tokens fit in FP8?",
        lambda: float(kv_tokens(40e9, MODEL, "fp8")),
        "tokens",
        "40 GB / 65,536 bytes = {answer}, twice as many as in bf16. INT4 weights would not change "
        "the bytes of a token.",
    ),
)

EXPERTS = (
    Question(
        "mla-bytes",
        "I can compute KV bytes per token of a model with latent attention.",
        "DeepSeek-V3: 61 layers, a latent of 512 and a rotary part of 64 numbers each, 2 bytes. "
        "Bytes per token?",
        lambda: float(LATENT.kv_bytes_per_token()),
        "bytes",
        "61 × (512 + 64) × 2 = {answer}. There is one latent and no heads, so tensor parallelism "
        "copies it to each GPU.",
    ),
    Question(
        "mla-ratio",
        "I can say what that saves.",
        "Llama-3.1-405B: 126 layers, 8 KV heads of 128, 2 bytes. How many times the bytes of "
        "DeepSeek-V3?",
        lambda: LARGE.kv_bytes_per_token() / LATENT.kv_bytes_per_token(),
        "times",
        "516,096 / 70,272 = {answer}.",
    ),
    Question(
        "experts-per-gpu",
        "I can lay out experts on GPUs.",
        "256 routed experts and 32 redundant copies on 144 GPUs. How many routed experts per GPU?",
        lambda: float(ExpertLayout(dp=144, redundant=32).experts_per_gpu(LATENT)),
        "experts",
        "(256 + 32) / 144 = {answer}.",
        tolerance=0.0,
    ),
    Question(
        "dispatch",
        "I can compute what a token sends to its experts.",
        "8 experts, 7,168 numbers in FP8 and a 4-byte scale per 128 of them. Bytes of dispatch per "
        "token and layer?",
        _dispatch_bytes,
        "bytes",
        "8 × (7,168 + 56 × 4) = {answer}. The way back is in bf16 and nearly twice as much.",
    ),
)

CHAPTERS = {"spec-decode": SPECULATION, "quantisation": BITS, "moe-mla-mtp": EXPERTS}
"""Questions by page."""
