"""The cases of the kernels that attend over pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from minilab.kernels import mla_decode, paged_decode, paged_prefill

from .measure import TOLERANCE, Case, Inputs, World, bits, relative, stored, width

BLOCK = 16


def cases(world: World) -> Iterator[Case]:
    """From the most to the least interesting."""
    for storage in world.storages:
        yield decode(world, storage)
    yield prefill(world, 2048, 4, "prefill")
    yield prefill(world, 5, 64, "verify")
    for storage in world.storages:
        yield mla(world, storage, 128)
    yield mla(world, "16 bit", 16)


def tables(world: World, seqs: int, tokens: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Blocks dealt out in random order, and lengths."""
    width = -(-tokens // BLOCK)
    order = torch.randperm(seqs * width, generator=torch.Generator().manual_seed(seed))
    lens = torch.full((seqs,), tokens, dtype=torch.int32)
    return order.view(seqs, width).int().to(world.device), lens.to(world.device)


def paged(world: World, storage: str, seqs: int, tokens: int, heads: int, kv: int, head: int):
    """Inputs of the attention kernels, and the same tokens laid out for torch."""

    def make(seed: int, q_len: int = 1) -> Inputs:
        block_tables, lens = tables(world, seqs, tokens, seed)
        shape = (block_tables.numel(), BLOCK, kv, head)
        caches = [world.randn(*shape, seed=seed + i) for i in (1, 2)]
        flat = [c[block_tables.long()].flatten(1, 2)[:, :tokens].transpose(1, 2) for c in caches]
        query = world.randn(seqs * q_len, heads, head, seed=seed + 3)
        pages = (*(stored(c, storage) for c in caches), block_tables, lens)
        return {"query": query, "pages": pages, "keys": flat[0], "values": flat[1]}

    return make


def first(inputs: Inputs, count: int) -> tuple[Any, ...]:
    """Caches, tables and lengths of the first ``count`` sequences, for a reference."""
    keys, values, block_tables, lens = inputs["pages"]
    return bits(keys), bits(values), block_tables[:count], lens[:count]


def decode(world: World, storage: str) -> Case:
    seqs, tokens, heads, kv, head = world.sizes((64, 4096, 32, 8, 128), (2, 40, 4, 2, 64))
    scale = head**-0.5

    def error(inputs: Inputs, out: torch.Tensor) -> float:
        query = inputs["query"][:2].double()
        return relative(out[:2], paged_decode.paged_decode_ref(query, *first(inputs, 2), scale))

    def reference(inputs: Inputs) -> torch.Tensor:
        return paged_decode.paged_decode_ref(inputs["query"], *first(inputs, seqs), scale)

    def own(inputs: Inputs) -> torch.Tensor:
        query = inputs["query"][:, :, None]
        return sdpa(query, inputs["keys"], inputs["values"], scale=scale, enable_gqa=True)

    return Case(
        "paged_decode", f"{storage}, {seqs} x {tokens} tokens, {heads}/{kv} heads", world.half_name,
        paged_decode.cost([tokens] * seqs, heads, kv, head, kv_bytes=width(storage)),
        paged(world, storage, seqs, tokens, heads, kv, head),
        lambda inputs: paged_decode.paged_decode(inputs["query"], *inputs["pages"]),
        error, TOLERANCE[world.half_name], reference, ("SDPA, 16 bit, no pages", own), goal=0.85,
    )  # fmt: skip


def prefill(world: World, q_len: int, seqs: int, name: str) -> Case:
    sizes = world.sizes((seqs, 4096, q_len, 32, 8, 128), (2, 40, min(q_len, 20), 4, 2, 64))
    seqs, tokens, q_len, heads, kv, head = sizes
    pages, scale = paged(world, "16 bit", seqs, tokens, heads, kv, head), head**-0.5
    starts = torch.arange(seqs + 1, dtype=torch.int32, device=world.device) * q_len

    def error(inputs: Inputs, out: torch.Tensor) -> float:
        """Of the first and the last queries of a sequence; all at once would not fit a T4."""
        count = min(64, q_len)
        worst = 0.0
        for begin in (0, q_len - count):
            query = inputs["query"][begin : begin + count].double()
            *caches, block_tables, lens = first(inputs, 1)
            arrays = (
                *caches,
                block_tables,
                lens - q_len + begin + count,
                starts[:2].clamp(max=count),
            )
            wanted = paged_prefill.paged_prefill_ref(query, *arrays, scale)
            worst = max(worst, relative(out[begin : begin + count], wanted))
        return worst

    def reference(inputs: Inputs) -> torch.Tensor:
        arrays = (*first(inputs, seqs), starts)
        return paged_prefill.paged_prefill_ref(inputs["query"], *arrays, scale)

    def own(inputs: Inputs) -> torch.Tensor:
        from torch.nn.attention.bias import causal_lower_right

        query = inputs["query"].unflatten(0, (seqs, q_len)).transpose(1, 2)
        mask = causal_lower_right(q_len, tokens)
        arrays = (query, inputs["keys"], inputs["values"])
        return sdpa(*arrays, attn_mask=mask, scale=scale, enable_gqa=True).transpose(1, 2)

    return Case(
        "paged_prefill", f"{name}: {seqs} x {q_len} of {tokens} tokens, {heads}/{kv} heads",
        world.half_name, paged_prefill.cost([q_len] * seqs, [tokens] * seqs, heads, kv, head),
        lambda seed: pages(seed, q_len),
        lambda inputs: paged_prefill.paged_prefill(
            inputs["query"], *inputs["pages"], starts, q_len
        ),
        error, TOLERANCE[world.half_name], reference, ("SDPA, no pages", own),
        goal=0.5, or_torch=True,
    )  # fmt: skip


def mla(world: World, storage: str, heads: int) -> Case:
    seqs, tokens, heads, latent, rope = world.sizes((64, 4096, heads, 512, 64), (2, 40, 4, 64, 16))
    scale, options = 192**-0.5, {"kv_lora_rank": latent}

    def make(seed: int) -> Inputs:
        block_tables, lens = tables(world, seqs, tokens, seed)
        cache = world.randn(block_tables.numel(), BLOCK, latent + rope, seed=seed + 1)
        flat = cache[block_tables.long()].flatten(1, 2)[:, :tokens].contiguous()
        query = world.randn(seqs, heads, latent + rope, seed=seed + 2)
        return {"query": query, "pages": (stored(cache, storage), block_tables, lens), "flat": flat}

    def check(inputs: Inputs, count: int, dtype: torch.dtype) -> torch.Tensor:
        cache, block_tables, lens = inputs["pages"]
        arrays = (bits(cache), block_tables[:count], lens[:count], scale)
        return mla_decode.mla_decode_ref(inputs["query"][:count].to(dtype), *arrays, **options)

    def own(inputs: Inputs) -> torch.Tensor:
        scores = torch.bmm(inputs["query"], inputs["flat"].mT) * scale
        return torch.bmm(scores.softmax(2), inputs["flat"][:, :, :latent])

    return Case(
        "mla_decode", f"{storage}, {seqs} x {tokens} tokens, {heads} heads", world.half_name,
        mla_decode.cost([tokens] * seqs, heads, latent, rope, kv_bytes=width(storage)),
        make,
        lambda inputs: mla_decode.mla_decode(inputs["query"], *inputs["pages"], scale, **options),
        lambda inputs, out: relative(out[:1], check(inputs, 1, torch.float64)),
        TOLERANCE[world.half_name], lambda inputs: check(inputs, seqs, world.half),
        ("two bmm, 16 bit, no pages", own), goal=0.5, or_torch=True,
    )  # fmt: skip
