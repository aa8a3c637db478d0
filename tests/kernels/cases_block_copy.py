"""block_copy's kernel: exact, and nothing else touched, on the interpreter or a GPU."""

from __future__ import annotations

import pytest
import torch
from on_device import BACKEND, DEVICE

from minilab.kernels.block_copy import gather_blocks, scatter_blocks
from minilab.kernels.spec import Config

SMALL = Config({"BLOCK": 64})
# name: dtype, shape of the cache, dimension of the blocks
CACHES = {
    "one layer": (torch.float16, (9, 4, 2, 16), 0),
    "all layers": (torch.bfloat16, (3, 2, 9, 4, 2, 8), 2),
    "fp8": (torch.float8_e4m3fn, (2, 9, 4, 24), 1),
    "odd bytes": (torch.uint8, (9, 3, 7), 0),
    "many words": (torch.float32, (9, 1000), 0),
    "int64": (torch.int64, (9, 5), 0),
}
IDS = [7, 0, 8, 3]


def make(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """Every bit pattern, NaN among them: bytes are moved, not numbers."""
    generator = torch.Generator().manual_seed(seed)
    wide = (*shape[:-1], shape[-1] * dtype.itemsize)
    return torch.randint(256, wide, generator=generator, dtype=torch.uint8).to(DEVICE).view(dtype)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """As bytes, which compare equal where NaN does not."""
    return tensor.contiguous().view(torch.uint8)


@pytest.mark.parametrize("ids_dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("config", [None, SMALL], ids=["own", "small"])
@pytest.mark.parametrize("name", CACHES)
def test_there_and_back(name, config, ids_dtype):
    """Gathered in the order asked for; scattered into another cache, whose other blocks stay."""
    dtype, shape, dim = CACHES[name]
    cache, other = make(dtype, shape), make(dtype, shape, seed=1)
    ids = torch.tensor(IDS, dtype=ids_dtype, device=DEVICE)
    to = torch.tensor([2, 5, 1, 8], dtype=ids_dtype, device=DEVICE)
    expected = other.clone()
    options = {"config": config, "backend": BACKEND}
    staging = gather_blocks(cache, ids, dim, **options)
    assert scatter_blocks(staging, other, to, dim, **options) is other
    for position, (source, target) in enumerate(zip(IDS, to.tolist(), strict=True)):
        block = cache.select(dim, source)
        assert torch.equal(bits(staging.select(dim, position)), bits(block))
        expected.view(torch.uint8).select(dim, target).copy_(block.view(torch.uint8))
    assert torch.equal(bits(other), bits(expected))


def test_into_a_staging_buffer():
    """`out` is filled, and named blocks may repeat when gathering."""
    cache = make(torch.float16, (9, 4, 32))
    out = torch.full((3, 4, 32), float("nan"), dtype=torch.float16, device=DEVICE)
    ids = torch.tensor([4, 4, 1], device=DEVICE)
    assert gather_blocks(cache, ids, backend=BACKEND, out=out) is out
    assert torch.equal(bits(out), bits(cache[[4, 4, 1]]))


def test_cache_that_begins_inside_a_word():
    """A view two bytes off: words would be misaligned, so bytes are moved."""
    storage = make(torch.float16, (9 * 8 + 1,))
    cache = storage[1:].view(9, 8)
    ids = torch.tensor(IDS, device=DEVICE)
    assert torch.equal(bits(gather_blocks(cache, ids, backend=BACKEND)), bits(cache[IDS]))


def test_no_blocks():
    """Nothing to launch."""
    cache = make(torch.float16, (9, 8))
    none = torch.empty(0, dtype=torch.int32, device=DEVICE)
    staging = gather_blocks(cache, none, backend=BACKEND)
    assert staging.shape == (0, 8)
    assert scatter_blocks(staging, cache, none, backend=BACKEND) is cache
