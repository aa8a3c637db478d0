"""How much text fits: KV tokens, blocks, concurrency and context from a memory budget.

    per GPU:  utilization * memory - weights / tp - non-torch - activation peak  = KV bytes
    tokens = floor(KV bytes / (bytes per token * block size)) * block size

as vLLM does it (vllm/v1/core/kv_cache_utils.py; checked against sizes that real engines logged).
All sizes are bytes per GPU, all lengths tokens. Under tensor parallelism the smallest rank decides:
``min`` over ranks is the caller's, for only the caller knows what else lives on each.
"""

from __future__ import annotations

import math

from minilab.facts.errors import InputError
from minilab.facts.hardware import GPU
from minilab.facts.models import ModelSpec

BLOCK_SIZE = 16
"""vLLM's default tokens per KV block."""

NON_TORCH_BYTES = 512 * 2**20
"""CUDA context, NCCL and kernels outside torch's allocator: a prior. vLLM logs 0.2 to 0.5 GiB."""


def kv_tokens(
    avail_bytes: float,
    model: ModelSpec,
    kv_dtype: str = "bf16",
    tp: int = 1,
    block_size: int = BLOCK_SIZE,
) -> int:
    """Tokens of KV that fit in ``avail_bytes`` of one GPU, in whole blocks.

    Every attention layer is charged for every token, as an engine without a hybrid KV manager
    does; for sliding-window models use ``max_sequences`` and ``max_context``, which know better.
    Raises InputError for a model that keeps no KV.
    """
    per_token = model.kv_bytes_per_token(kv_dtype, tp)
    if per_token == 0:
        raise InputError(f"{model.name} keeps no KV per token; its limit is state_bytes a sequence")
    _positive("block_size", block_size)
    return max(0, math.floor(avail_bytes / (per_token * block_size))) * block_size


def budget_bytes(
    total: float, utilization: float, weights: float, non_torch: float, activation: float
) -> float:
    """KV bytes left on one GPU; negative when the rest alone does not fit (vLLM's budget rule)."""
    return total * utilization - weights - non_torch - activation


def activation_bytes(
    model: ModelSpec,
    tp: int = 1,
    max_num_batched_tokens: int = 8192,
    max_num_seqs: int = 256,
) -> int:
    """An estimate of the activation peak that the engine's profiling step sees, in bytes.

    Per token, in 2-byte numbers: the residual stream and its normalised copy (2 * hidden), and the
    widest feed-forward block's gate, up and product (3 * width / tp; ``top_k`` experts of a MoE
    count as one wide block); and the logits of each sequence in bf16 and fp32 (6 bytes * vocab /
    tp). A prior from the shapes, not a measurement: kernels reuse buffers differently.
    """
    width = max(model.ffn, model.top_k * model.expert_ffn + model.shared_ffn)
    per_token = 2 * (2 * model.hidden + 3 * math.ceil(width / tp))
    return max_num_batched_tokens * per_token + max_num_seqs * 6 * math.ceil(model.vocab / tp)


def kv_budget(
    gpu: GPU,
    model: ModelSpec,
    utilization: float = 0.9,
    weight_dtype: str = "bf16",
    tp: int = 1,
    activation: float | None = None,
    non_torch: float = NON_TORCH_BYTES,
) -> float:
    """Bytes for KV on each of ``tp`` GPUs. ``activation`` None: see ``activation_bytes``.

    Raises InputError, with the bytes needed and a way out, when nothing is left.
    """
    if not 0 < utilization <= 1:
        raise InputError(f"utilization is {utilization}; give a share of GPU memory, 0 to 1")
    _positive("tp", tp)
    weights = model.weight_bytes(weight_dtype) / tp
    peak = activation_bytes(model, tp) if activation is None else activation
    left = budget_bytes(gpu.mem_bytes, utilization, weights, non_torch, peak)
    if left > 0:
        return left
    need = weights + non_torch + peak
    have = gpu.mem_bytes * utilization
    raise InputError(
        f"{model.name} in {weight_dtype} on {gpu.name} with tp={tp} needs {_gib(need)} per GPU "
        f"before any KV ({_gib(weights)} of it weights), there are {_gib(have)}; "
        + _way_out(gpu, model, utilization, weight_dtype, tp)
    )


def default_kv_blocks(
    gpu: GPU,
    model: ModelSpec,
    tp: int = 1,
    weight_dtype: str = "bf16",
    kv_dtype: str = "bf16",
    block_size: int = BLOCK_SIZE,
    utilization: float = 0.9,
) -> int:
    """KV blocks an engine would give itself with default settings (``num_gpu_blocks``).

    Raises InputError when not even one block fits.
    """
    avail = kv_budget(gpu, model, utilization, weight_dtype, tp)
    blocks = kv_tokens(avail, model, kv_dtype, tp, block_size) // block_size
    if blocks == 0:
        need = block_size * model.kv_bytes_per_token(kv_dtype, tp)
        raise InputError(
            f"{model.name} on {gpu.name} with tp={tp} leaves {_gib(avail)} for KV, one block of "
            f"{block_size} tokens needs {_gib(need)}; "
            + _way_out(gpu, model, utilization, weight_dtype, tp)
        )
    return blocks


def max_sequences(
    avail_bytes: float,
    model: ModelSpec,
    context: int,
    kv_dtype: str = "bf16",
    tp: int = 1,
    block_size: int = BLOCK_SIZE,
) -> int:
    """How many sequences of ``context`` tokens fit at once (whole blocks each).

    Sliding-window layers stop growing at their window, linear layers keep a constant state:
    a sequence costs ``ModelSpec.kv_bytes``, fixed part plus slope.
    """
    _positive("context", context)
    whole = math.ceil(context / block_size) * block_size
    return max(0, math.floor(avail_bytes / model.kv_bytes(whole, kv_dtype, tp)))


def max_context(
    avail_bytes: float,
    model: ModelSpec,
    sequences: int = 1,
    kv_dtype: str = "bf16",
    tp: int = 1,
    block_size: int = BLOCK_SIZE,
) -> int | None:
    """The longest context, in whole blocks, that ``sequences`` sequences can hold at once.

    0 when not even one block each fits; None when nothing grows with the context (a model whose
    every layer is windowed or linear). The model's own ``max_len`` is not applied.
    """
    _positive("sequences", sequences)
    share = avail_bytes / sequences
    if model.full_kv_bytes_per_token(kv_dtype, tp) == 0:
        horizon = max(model.window, block_size)
        if model.kv_bytes(horizon, kv_dtype, tp) <= share:
            return None
    fits, too_long = 0, 1  # blocks; kv_bytes never falls, so double and then bisect
    while model.kv_bytes(too_long * block_size, kv_dtype, tp) <= share:
        fits, too_long = too_long, too_long * 2
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if model.kv_bytes(middle * block_size, kv_dtype, tp) <= share:
            fits = middle
        else:
            too_long = middle
    return fits * block_size


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise InputError(f"{name} is {value}; give a whole number of 1 or more")


def _gib(size: float) -> str:
    return f"{size / 2**30:.2f} GiB"


def _way_out(gpu: GPU, model: ModelSpec, utilization: float, dtype: str, tp: int) -> str:
    """Names the smallest larger tp (doubling) that leaves a tenth of the memory for KV."""
    room = gpu.mem_bytes * (utilization - 0.1) - NON_TORCH_BYTES
    for more in (tp * 2**power for power in range(1, 8)):
        if model.weight_bytes(dtype) / more + activation_bytes(model, more) < room:
            return f"use tp={more}, quantised weights (fp8, int4) or a bigger GPU"
    return "use quantised weights (fp8, int4) or a bigger GPU"
