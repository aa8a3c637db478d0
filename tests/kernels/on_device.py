"""What the cases need: the device of this process, pages full of traps, and measures of error."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from minilab.kernels import e4m3
from minilab.kernels.device import INTERPRETED

DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
# Named, so that nothing is quietly compared with itself by falling back to the reference.
BACKEND = "interpreter" if INTERPRETED else "triton"
TOLERANCE = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}
NATIVE = torch.float8_e4m3fn


@dataclass
class Pages:
    """A cache whose blocks are dealt out in random order, everything unused poisoned with NaN."""

    key_cache: torch.Tensor
    value_cache: torch.Tensor
    block_tables: torch.Tensor
    seq_lens: torch.Tensor


def random_like(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Standard normal, float64, on the CPU: the same numbers on every device."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make_pages(
    lengths: list[int],
    *,
    block_size: int = 16,
    kv_heads: int = 2,
    head: int = 64,
    storage: torch.dtype = torch.float32,
    seed: int = 0,
    guards: int = 3,
    together: bool = False,
    device: torch.device | str = DEVICE,
) -> Pages:
    """Pages for sequences of ``lengths``; ``together`` lays a block's keys and values side by side.

    Guard blocks and slots past a sequence's end hold NaN; table entries past its last block are -1
    or name a guard block. A kernel that looks there shows it.
    """
    used = [-(-length // block_size) for length in lengths]
    num_blocks = sum(used) + guards
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(num_blocks, generator=generator).tolist()
    width = max([*used, 1]) + 2
    tables = torch.full((len(lengths), width), -1, dtype=torch.int32)
    tables[:, 1::2] = order[-1]
    caches = torch.full((num_blocks, 2, block_size, kv_heads, head), float("nan"))
    dealt = iter(order)
    for seq, length in enumerate(lengths):
        blocks = [next(dealt) for _ in range(used[seq])]
        tables[seq, : used[seq]] = torch.tensor(blocks, dtype=torch.int32)
        tokens = random_like((length, 2, kv_heads, head), seed + 1 + seq).float()
        for token in range(length):
            caches[blocks[token // block_size], :, token % block_size] = tokens[token]
    if storage == torch.uint8:
        caches = e4m3.encode(caches)
    elif storage == NATIVE:
        # NaN codes decode wrongly in the interpreter: the largest number is poison enough.
        codes = e4m3.encode(caches)
        caches = torch.where(codes == e4m3.NAN_CODE, 0x7E, codes).view(NATIVE)
    else:
        caches = caches.to(storage)
    caches = caches.to(device)
    keys, values = caches[:, 0], caches[:, 1]
    if not together:
        keys, values = keys.contiguous(), values.contiguous()
    lens = torch.tensor(lengths, dtype=torch.int32, device=device)
    return Pages(keys, values, tables.to(device), lens)


def relative_error(got: torch.Tensor, wanted: torch.Tensor, rows: list[int]) -> float:
    """Largest relative L2 error of any part, where ``rows`` are the parts' lengths along dim 0."""
    worst = 0.0
    for part, true in zip(got.double().split(rows), wanted.double().split(rows), strict=True):
        if part.numel():
            assert torch.isfinite(part).all()
            scale = max(float(true.norm()), 1e-30)
            worst = max(worst, float((part - true).norm()) / scale)
    return worst
