"""kv_write's kernel: every bit of the cache, written and untouched, on the interpreter or a GPU."""

from __future__ import annotations

import pytest
import torch
from on_device import BACKEND, DEVICE, NATIVE, random_like

from minilab.kernels.device import INTERPRETED
from minilab.kernels.kv_write import kv_write, kv_write_ref

BLOCK_SIZE, BLOCKS = 4, 5
# Out of order, at both ends of a page and of the cache, with padding first, between and last.
SLOTS = [-1, 7, 0, 19, -1, 8, 3, 12, -1]
SCALES = {
    "no scale": (None, None),
    "per tensor": (0.5, 0.037),
    "per head": ([0.3, 2.0, 0.011], [1.0, 0.2, 7.0]),
}


def make(dtype: torch.dtype, heads: int = 3, head: int = 64, spread: float = 30.0):
    """New keys and values as slices of one fused projection; some saturate, some are tiny."""
    fused = random_like((len(SLOTS), 2 * heads * head), 3) * spread
    fused[:, ::7] *= 1e-3
    fused = fused.to(DEVICE, dtype)
    key, value = (part.view(len(SLOTS), heads, head) for part in fused.chunk(2, dim=1))
    return key, value, torch.tensor(SLOTS, device=DEVICE)


def poisoned(dtype: torch.dtype, heads: int = 3, head: int = 64) -> torch.Tensor:
    """A cache of every bit pattern, NaN among them."""
    shape = (BLOCKS, BLOCK_SIZE, heads, head * dtype.itemsize)
    generator = torch.Generator().manual_seed(1)
    return torch.randint(256, shape, generator=generator, dtype=torch.uint8).to(DEVICE).view(dtype)


def compare(dtype: torch.dtype, storage: torch.dtype, scales=(None, None), **shape: int) -> None:
    """Kernel and reference from the same poison; bits must be equal everywhere."""
    key, value, slots = make(dtype, **shape)
    options = {
        name: torch.tensor(scale, device=DEVICE) if isinstance(scale, list) else scale
        for name, scale in zip(("k_scale", "v_scale"), scales, strict=True)
    }
    got = [poisoned(storage, **shape), poisoned(storage, **shape)]
    wanted = [cache.clone() for cache in got]
    kv_write(key, value, *got, slots, backend=BACKEND, **options)
    kv_write_ref(key, value, *wanted, slots, **options)
    for one, other in zip(got, wanted, strict=True):
        assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_same_type(dtype):
    """Copied bit for bit; padding and all other slots stay as they were."""
    compare(dtype, dtype)


@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_fp8_portable(dtype, scales):
    """Divided, rounded and saturated exactly as the reference does."""
    compare(dtype, torch.uint8, scales)


if INTERPRETED:

    def test_native_is_refused():
        """The interpreter rounds wrongly, without saturation: a wrong cache is worse than none."""
        key, value, slots = make(torch.float32)
        caches = [poisoned(NATIVE), poisoned(NATIVE)]
        with pytest.raises(ValueError, match=r"key_cache is float8_e4m3fn.*view\(torch.uint8\)"):
            kv_write(key, value, *caches, slots, backend=BACKEND)

else:

    @pytest.mark.skipif(torch.cuda.get_device_capability() < (9, 0), reason="rounds in two steps")
    def test_fp8_native():
        """The hardware's rounding is the portable codec's."""
        compare(torch.float32, NATIVE, SCALES["per head"])


@pytest.mark.parametrize("heads", [1, 5])
def test_rows_that_are_no_power_of_two(heads):
    """The tile is wider than the row: nothing may spill into the next slot."""
    compare(torch.float16, torch.float16, heads=heads)
    compare(torch.float16, torch.uint8, ([0.3] * heads, 2.0), heads=heads)


def test_keys_and_values_in_one_storage():
    """Blocks dense, their stride doubled."""
    key, value, slots = make(torch.float32)
    cache = torch.zeros(BLOCKS, 2, BLOCK_SIZE, 3, 64, device=DEVICE)
    wanted = cache.clone()
    kv_write(key, value, cache[:, 0], cache[:, 1], slots, backend=BACKEND)
    kv_write_ref(key, value, wanted[:, 0], wanted[:, 1], slots)
    assert torch.equal(cache, wanted) and cache.any()


def test_nothing_to_write():
    """No tokens, or padding alone."""
    key, value, slots = make(torch.float32)
    caches = [poisoned(torch.float32), poisoned(torch.float32)]
    before = [cache.view(torch.uint8).clone() for cache in caches]
    kv_write(key[:0], value[:0], *caches, slots[:0], backend=BACKEND)
    kv_write(key, value, *caches, torch.full_like(slots, -1), backend=BACKEND)
    for cache, old in zip(caches, before, strict=True):
        assert torch.equal(cache.view(torch.uint8), old)
