"""The cases of the kernels that move what is in pages, and of rejection."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from minilab.kernels import block_copy, kv_write, rejection

from .measure import Case, Inputs, World, bits, stored, width

BLOCK = 16


def cases(world: World) -> Iterator[Case]:
    """Writing, copying, rejecting."""
    for storage in world.storages:
        yield write(world, storage)
    yield copy(world, gather=True)
    yield copy(world, gather=False)
    yield reject(world)


def write(world: World, storage: str) -> Case:
    tokens, kv, head, blocks = world.sizes((16_384, 8, 128, 8192), (9, 2, 64, 4))

    def make(seed: int) -> Inputs:
        new = [world.randn(tokens, kv, head, seed=seed + i) for i in (1, 2)]
        empty = torch.zeros(blocks, BLOCK, kv, head, dtype=world.half, device=world.device)
        slots = torch.randperm(blocks * BLOCK, generator=torch.Generator().manual_seed(seed))
        caches = [stored(empty, storage).clone() for _ in range(2)]
        return {"new": new, "caches": caches, "slots": slots[:tokens].to(world.device)}

    def run(inputs: Inputs) -> list[torch.Tensor]:
        kv_write.kv_write(*inputs["new"], *inputs["caches"], inputs["slots"])
        return inputs["caches"]

    def reference(inputs: Inputs) -> list[torch.Tensor]:
        caches = [torch.zeros_like(bits(cache)) for cache in inputs["caches"]]
        kv_write.kv_write_ref(*inputs["new"], *caches, inputs["slots"])
        return caches

    def error(inputs: Inputs, out: list[torch.Tensor]) -> float:
        pairs = zip(out, reference(inputs), strict=True)
        return float(not all(torch.equal(bits(mine), its) for mine, its in pairs))

    def own(inputs: Inputs) -> None:
        for cache, new in zip(inputs["caches"], inputs["new"], strict=True):
            cache.view(-1, kv, head)[inputs["slots"]] = new

    return Case(
        "kv_write", f"{storage}, {tokens} tokens, {kv} heads of {head}", world.half_name,
        kv_write.cost(tokens, kv, head, kv_bytes=width(storage)), make, run, error, 0.0, reference,
        ("index_put", own) if storage == "16 bit" else None, goal=0.8,
    )  # fmt: skip


def copy(world: World, gather: bool) -> Case:
    blocks, size, count = world.sizes((4096, 32_768, 1024), (9, 24, 4))

    def make(seed: int) -> Inputs:
        order = torch.randperm(blocks, generator=torch.Generator().manual_seed(seed))
        cache = world.randn(blocks, size, seed=seed)
        ids = order[:count].int().to(world.device)
        return {"cache": cache, "ids": ids, "staging": world.randn(count, size, seed=seed + 1)}

    def run(inputs: Inputs) -> torch.Tensor:
        cache, ids, staging = inputs["cache"], inputs["ids"], inputs["staging"]
        if gather:
            return block_copy.gather_blocks(cache, ids)
        return block_copy.scatter_blocks(staging, cache, ids)

    def reference(inputs: Inputs) -> torch.Tensor:
        cache, ids, staging = inputs["cache"], inputs["ids"], inputs["staging"]
        if gather:
            return block_copy.gather_blocks_ref(cache, ids)
        return block_copy.scatter_blocks_ref(staging, cache, ids)

    def error(inputs: Inputs, out: torch.Tensor) -> float:
        cache, ids, staging = inputs["cache"], inputs["ids"].long(), inputs["staging"]
        return float(not torch.equal(cache[ids], out if gather else staging))

    return Case(
        "gather_blocks" if gather else "scatter_blocks",
        f"{count} of {blocks} blocks of {2 * size} B", world.half_name,
        block_copy.cost(count, 2 * size), make, run, error, 0.0, reference,
        ("index_select" if gather else "index_copy_", reference), goal=0.8,
    )  # fmt: skip


def reject(world: World) -> Case:
    requests, vocab = world.sizes((64, 128_000), (4, 50))

    def make(seed: int) -> Inputs:
        p, q = (world.randn(requests, vocab, seed=seed + i, dtype=torch.float32) for i in (1, 2))
        p, q = p.softmax(1), q.softmax(1)
        ids = torch.zeros(requests, dtype=torch.int64, device=world.device)
        p[:, 0] = 0  # the draft is impossible: each request rejects it and draws anew
        noise = torch.rand((requests, vocab), device=world.device).clamp(min=1e-6)
        drafts = (ids, 1, torch.arange(1, requests + 1, device=world.device).int(), q, p)
        return {"arguments": (*drafts, ids, torch.full_like(p[:, 0], 0.5), -noise.log())}

    def error(inputs: Inputs, out: torch.Tensor) -> float:
        return float(not torch.equal(out, rejection.rejection_ref(*inputs["arguments"])))

    return Case(
        "rejection", f"{requests} requests, vocabulary {vocab}", "fp32",
        rejection.cost(requests, vocab), make,
        lambda inputs: rejection.rejection(*inputs["arguments"]), error, 0.0,
        lambda inputs: rejection.rejection_ref(*inputs["arguments"]),
    )  # fmt: skip
