"""The cases of the kernels for experts and for quantised weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.functional import silu

from minilab.kernels import moe, moe_align, moe_router, quant_gemm, quant_gemm_int4, quant_pack

from .measure import FP8, TOLERANCE, Case, Inputs, World, relative, scaled

ROWS = 64  # of a result that are compared with float64


def cases(world: World) -> Iterator[Case]:
    """From the most to the least interesting."""
    yield experts(world, 64)
    yield experts(world, 4096)
    yield router(world, grouped=False)
    yield router(world, grouped=True)
    yield align(world)
    for storage in ("portable", *(["native"] if world.native_fp8 else [])):
        yield fp8(world, 16, storage)
        yield fp8(world, 8192, storage)
    for layout in quant_pack.LAYOUTS:
        yield int4(world, 16, layout)
    yield int4(world, 4096, "awq")


def choice(world: World, tokens: int, num: int, top_k: int, seed: int) -> tuple[torch.Tensor, ...]:
    """Weights and ids of a router that prefers nobody."""
    logits = world.randn(tokens, num, seed=seed, dtype=torch.float32)
    return moe_router.moe_router_ref(logits, top_k)


def experts(world: World, tokens: int) -> Case:
    full, tiny = (tokens, 128, 8, 2048, 768), (min(tokens, 70), 6, 2, 64, 48)
    tokens, num, top_k, hidden, inner = world.sizes(full, tiny)

    def make(seed: int) -> Inputs:
        x = world.randn(tokens, hidden, seed=seed)
        w1 = world.randn(num, 2 * inner, hidden, seed=seed + 1) / hidden**0.5
        w2 = world.randn(num, hidden, inner, seed=seed + 2) / inner**0.5
        return {"all": (x, w1, w2, *choice(world, tokens, num, top_k, seed + 3))}

    def error(inputs: Inputs, out: torch.Tensor) -> float:
        x, w1, w2, weights, ids = inputs["all"]
        rows = (weights[:ROWS], ids[:ROWS])
        return relative(out[:ROWS], moe.fused_experts_ref(x[:ROWS].double(), w1, w2, *rows))

    def own(inputs: Inputs) -> torch.Tensor:
        x, w1, w2, weights, ids = inputs["all"]
        flat = ids.flatten()
        order = flat.argsort(stable=True)
        every = torch.arange(num, device=flat.device)
        ends = (flat[:, None] == every).sum(0).cumsum(0).to(torch.int32)
        gate, up = torch._grouped_mm(x[order // top_k], w1.mT, offs=ends).chunk(2, dim=1)
        y = torch._grouped_mm(silu(gate) * up, w2.mT, offs=ends)
        y = y * weights.flatten()[order, None].to(y.dtype)
        return torch.zeros_like(x).index_add_(0, order // top_k, y)

    return Case(
        "fused_experts", f"{tokens} tokens, top {top_k} of {num}, {hidden} x {inner}",
        world.half_name, moe.cost(tokens, num, top_k, hidden, inner), make,
        lambda inputs: moe.fused_experts(*inputs["all"]), error, TOLERANCE[world.half_name],
        lambda inputs: moe.fused_experts_ref(*inputs["all"]), ("two _grouped_mm", own),
    )  # fmt: skip


def router(world: World, grouped: bool) -> Case:
    tokens, num, top_k = world.sizes((4096, 256 if grouped else 128, 8), (9, 32, 4))
    options: dict[str, Any] = {}
    if grouped:
        options = {"scoring_func": "sigmoid", "num_expert_group": 8, "topk_group": 4}

    def make(seed: int) -> Inputs:
        bias = world.randn(num, seed=seed + 1, dtype=torch.float32) * 0.1 if grouped else None
        logits = world.randn(tokens, num, seed=seed, dtype=torch.float32)
        return {"logits": logits, "options": {**options, "e_score_correction_bias": bias}}

    def run(inputs: Inputs) -> Any:
        return moe_router.moe_router(inputs["logits"], top_k, **inputs["options"])

    def reference(inputs: Inputs) -> Any:
        return moe_router.moe_router_ref(inputs["logits"], top_k, **inputs["options"])

    def error(inputs: Inputs, out: Any) -> float:
        weights, ids = reference(inputs)
        # A near tie may go either way in fp32: a handful of ids may differ, their weights hardly.
        same = (ids == out[1]).float().mean()
        return relative(out[0], weights) if same > 0.999 else 1.0

    def own(inputs: Inputs) -> Any:
        return inputs["logits"].softmax(1).topk(top_k)

    kind = "grouped sigmoid" if grouped else "softmax"
    return Case(
        "moe_router", f"{kind}, {tokens} tokens, top {top_k} of {num}", "fp32",
        moe_router.cost(tokens, num, top_k), make, run, error, 1e-4, reference,
        None if grouped else ("softmax, topk", own),
    )  # fmt: skip


def align(world: World) -> Case:
    tokens, num, top_k = world.sizes((4096, 128, 8), (30, 6, 2))

    def make(seed: int) -> Inputs:
        return {"ids": choice(world, tokens, num, top_k, seed)[1]}

    def reference(inputs: Inputs) -> Any:
        return moe_align.moe_align_block_size_ref(inputs["ids"], 64, num)

    def error(inputs: Inputs, out: Any) -> float:
        pairs = zip(out, reference(inputs), strict=True)
        return float(not all(torch.equal(mine, its) for mine, its in pairs))

    return Case(
        "moe_align", f"{tokens} tokens, top {top_k} of {num}", "fp32",
        moe_align.cost(tokens * top_k, num, 64), make,
        lambda inputs: moe_align.moe_align_block_size(inputs["ids"], 64, num), error, 0.0,
        reference, ("argsort", lambda inputs: inputs["ids"].flatten().argsort(stable=True)),
    )  # fmt: skip


def fp8(world: World, m: int, storage: str) -> Case:
    m, n, k = world.sizes((m, 8192, 8192), (min(m, 40), 48, 96))
    dtype = FP8 if storage == "native" else torch.uint8

    def make(seed: int) -> Inputs:
        (a, scale_a), (b, scale_b) = (
            quant_pack.quantize_rows(world.randn(rows, k, seed=seed + i))
            for i, rows in enumerate((m, n))
        )
        return {"all": (a.view(dtype), b.view(dtype).t(), scale_a, scale_b.t())}

    def rows(inputs: Inputs, count: int) -> tuple[torch.Tensor, ...]:
        a, b, scale_a, scale_b = inputs["all"]
        return a[:count], b, scale_a[:count], scale_b

    def own(inputs: Inputs) -> torch.Tensor:
        a, b, *scales = inputs["all"]
        return scaled(a.view(FP8), b.t().view(FP8).t(), *scales)

    return Case(
        "scaled_mm", f"{storage}, {m} x {n} x {k}",
        "fp8" if storage == "native" else world.half_name,
        quant_gemm.cost(m, n, k), make,
        lambda inputs: quant_gemm.scaled_mm(*inputs["all"], world.half),
        lambda inputs, out: relative(
            out[:ROWS], quant_gemm.scaled_mm_ref(*rows(inputs, ROWS), torch.float64)
        ),
        TOLERANCE[world.half_name],
        lambda inputs: quant_gemm.scaled_mm_ref(*inputs["all"], world.half), ("_scaled_mm", own),
    )  # fmt: skip


def int4(world: World, m: int, layout: str) -> Case:
    m, n, k = world.sizes((m, 8192, 8192), (min(m, 40), 48, 256))

    def make(seed: int) -> Inputs:
        weight = world.randn(n, k, seed=seed)
        return {
            "x": world.randn(m, k, seed=seed + 1),
            "packed": quant_pack.pack_int4(weight, 128, layout),
            "weight": weight,
        }

    def wanted(inputs: Inputs, rows: int, dtype: torch.dtype) -> torch.Tensor:
        x = inputs["x"][:rows].to(dtype)
        return quant_gemm_int4.w4a16_gemm_ref(x, *inputs["packed"], layout=layout)

    return Case(
        "w4a16_gemm", f"{layout}, {m} x {n} x {k}", world.half_name, quant_gemm_int4.cost(m, n, k),
        make,
        lambda inputs: quant_gemm_int4.w4a16_gemm(inputs["x"], *inputs["packed"], layout=layout),
        lambda inputs, out: relative(out[:ROWS], wanted(inputs, ROWS, torch.float64)),
        TOLERANCE[world.half_name], lambda inputs: wanted(inputs, m, world.half),
        ("16-bit matmul", lambda inputs: inputs["x"] @ inputs["weight"].T),
    )  # fmt: skip
