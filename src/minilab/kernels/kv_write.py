"""kv_write: put the keys and values of new tokens into their pages, quantising on the way.

The step that fills the cache, once per layer and token: read once, write once, nothing computed but
the rounding to FP8. Where a token goes is one number, its slot: block id * block_size + offset.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import torch

from minilab.kernels import checks, e4m3, paged_checks
from minilab.kernels.device import Backend, check_native_fp8, choose_backend, tl, triton
from minilab.kernels.spec import ARCHS, Config, Spec, config_for


@triton.jit
def _store(where, values, there):
    """Store fp32 ``values`` as what the cache holds; uint8 is portable FP8."""
    if where.dtype.element_ty == tl.uint8:
        tl.store(where, e4m3.encode_tile(values), mask=there)
    elif where.dtype.element_ty == tl.float8e4nv:
        within = tl.clamp(values, -448.0, 448.0, propagate_nan=tl.PropagateNan.ALL)
        tl.store(where, within.to(tl.float8e4nv), mask=there)
    else:
        tl.store(where, values.to(where.dtype.element_ty), mask=there)


@triton.jit
def _kv_write_kernel(
    key, value, key_cache, value_cache, slots, k_scale, v_scale, stride_key, stride_value,
    stride_block, BLOCK_SIZE: tl.constexpr, HEAD: tl.constexpr, ROW: tl.constexpr,
    K_STEP: tl.constexpr, V_STEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program: one token, the ROW = num_kv_heads · HEAD numbers of its key and of its value."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token)
    if slot >= 0:
        at = tl.arange(0, BLOCK)
        there = at < ROW
        row = slot // BLOCK_SIZE * stride_block + slot % BLOCK_SIZE * ROW
        k = tl.load(key + token * stride_key + at, mask=there, other=0.0).to(tl.float32)
        v = tl.load(value + token * stride_value + at, mask=there, other=0.0).to(tl.float32)
        head = at // HEAD
        # Rounded to nearest, as torch divides; the plain / of a GPU may be off in the last bit.
        if k_scale is not None:
            k = tl.div_rn(k, tl.load(k_scale + head * K_STEP, mask=there, other=1.0))
        if v_scale is not None:
            v = tl.div_rn(v, tl.load(v_scale + head * V_STEP, mask=there, other=1.0))
        _store(key_cache + row + at, k, there)
        _store(value_cache + row + at, v, there)


def kv_write(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    k_scale: paged_checks.Scale = None,
    v_scale: paged_checks.Scale = None,
    config: Config | None = None,
    backend: str = "auto",
    debug: bool = False,
) -> None:
    """Write ``key`` and ``value`` into the caches, in place (vLLM's reshape_and_cache_flash).

    Args:
        key, value: [num_tokens, num_kv_heads, head_size], fp16, bf16 or fp32; rows may have any
            stride, so slices of a fused projection will do.
        key_cache, value_cache: [num_blocks, block_size, num_kv_heads, head_size], equal strides,
            blocks dense; key's dtype, or FP8 e4m3 as uint8 (portable codec, rounded to nearest
            even, saturating) or float8_e4m3fn (hardware conversion, capability 8.9 and up).
        slot_mapping: [num_tokens] int64, block id * block_size + offset; -1 (padding) is skipped.
            Two tokens must not name the same slot.
        k_scale, v_scale: FP8 stores value / scale: a number, or fp32 [1] or [num_kv_heads].
        config: tiles to use instead of CONFIGS.
        backend: "auto", "triton", "interpreter" or "reference".
        debug: also read slot_mapping on a GPU to check it (waits for it).

    Raises:
        ValueError: an argument is not as above; the message names it.
    """
    shapes = checks.Shapes()
    for name, tensor in (("key", key), ("value", value)):
        dims = "num_tokens num_kv_heads head_size"
        shapes.check(name, tensor, dims, checks.FLOATS, dense_from=1)
    if value.dtype != key.dtype:
        raise ValueError(
            f"value is {checks.short(value.dtype)}; it must be {checks.short(key.dtype)} like key"
        )
    shapes.check("slot_mapping", slot_mapping, "num_tokens", (torch.int64,))
    paged_checks.check_caches(shapes, key_cache, value_cache, key.dtype)
    k_scale, k_step = paged_checks.head_scale("k_scale", k_scale, key_cache, shapes)
    v_scale, v_step = paged_checks.head_scale("v_scale", v_scale, value_cache, shapes)
    block_size, row = shapes["block_size"], shapes["num_kv_heads"] * shapes["head_size"]
    if checks.reads_values(slot_mapping, debug):
        _check_slots(slot_mapping, shapes["num_blocks"] * block_size)
    check_native_fp8("key_cache", key_cache, backend)
    chosen = choose_backend("kv_write", key.device, backend)
    _check_rounding(key_cache, chosen)
    if chosen.name == "reference":
        kv_write_ref(
            key, value, key_cache, value_cache, slot_mapping, k_scale=k_scale, v_scale=v_scale
        )
    elif slot_mapping.numel():
        config = config or config_for(CONFIGS, chosen.capability)
        _kv_write_kernel[(slot_mapping.numel(),)](
            key, value, key_cache, value_cache, slot_mapping, k_scale, v_scale,
            key.stride(0), value.stride(0), key_cache.stride(0), block_size,
            shapes["head_size"], row, k_step, v_step, triton.next_power_of_2(row),
            num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip


def kv_write_ref(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    k_scale: paged_checks.Scale = None,
    v_scale: paged_checks.Scale = None,
) -> None:
    """The same in plain torch. The caches may be float64 too, which keeps what is written exact."""
    wanted = slot_mapping >= 0
    slots = slot_mapping[wanted]
    for new, cache, scale in ((key, key_cache, k_scale), (value, value_cache, v_scale)):
        block, offset = slots // cache.shape[1], slots % cache.shape[1]
        tokens = new[wanted]
        if cache.dtype not in paged_checks.FP8:
            cache[block, offset] = tokens.to(cache.dtype)
            continue
        factor = torch.as_tensor(1.0 if scale is None else scale, dtype=torch.float32)
        scaled = tokens.to(torch.float32) / factor.to(tokens.device).reshape(-1, 1)
        cache.view(torch.uint8)[block, offset] = e4m3.encode(scaled)


def _check_rounding(cache: torch.Tensor, chosen: Backend) -> None:
    if cache.dtype == torch.float8_e4m3fn and chosen.name == "interpreter":
        raise ValueError(
            "key_cache is float8_e4m3fn, which Triton's interpreter rounds wrongly:"
            " pass key_cache.view(torch.uint8), the same bits, which the portable codec writes"
        )


def _check_slots(slots: torch.Tensor, num_slots: int) -> None:
    checks.check_range("slot_mapping", slots, -1, num_slots - 1, "num_blocks * block_size - 1")
    real = slots[slots >= 0]
    if real.unique().numel() != real.numel():
        raise ValueError("slot_mapping names a slot twice; each token must have its own")


def cost(
    num_tokens: int, num_kv_heads: int, head_size: int, *, new_bytes: int = 2, kv_bytes: int = 2
) -> tuple[int, int]:
    """(bytes, FLOPs): each key and value read in new_bytes a number and written in kv_bytes, and
    a slot of 8 bytes. A division per number where it is quantised; none is a matrix product."""
    numbers = 2 * num_tokens * num_kv_heads * head_size
    return numbers * (new_bytes + kv_bytes) + 8 * num_tokens, numbers if kv_bytes == 1 else 0


CONFIGS = dict.fromkeys(ARCHS, Config({}, warps=4))


def _spec(label: str, element: str, cache: str, **more: Any) -> Spec:
    """8 KV heads of 128, pages of 16 tokens."""
    scaled = cache != element
    types = {"key": f"*{element}", "value": f"*{element}", "slots": "*i64"}
    types |= {"key_cache": f"*{cache}", "value_cache": f"*{cache}"}
    types |= dict.fromkeys(("k_scale", "v_scale"), "*fp32") if scaled else {}
    types |= dict.fromkeys(("stride_key", "stride_value", "stride_block"), "i32")
    constexprs = {
        "BLOCK_SIZE": 16, "HEAD": 128, "ROW": 1024, "BLOCK": 1024, "K_STEP": 1, "V_STEP": 1,
        **({} if scaled else {"k_scale": None, "v_scale": None}),
    }  # fmt: skip
    return Spec(
        f"kv_write {label}", _kv_write_kernel, types, constexprs, CONFIGS,
        case="8192 tokens, 8 heads of 128", dtype=element,
        cost=cost(8192, 8, 128, kv_bytes=1 if scaled else 2), **more,
    )  # fmt: skip


AOT = (
    _spec("fp16", "fp16", "fp16"),
    _spec("bf16", "bf16", "bf16"),
    _spec("fp8 portable", "bf16", "u8", fast=True),
    _spec("fp8 native", "bf16", "fp8e4nv", refused=(75, 80)),
)
