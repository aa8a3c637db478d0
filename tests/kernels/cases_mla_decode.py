"""mla_decode's kernel against its reference in float64, on the interpreter or a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_device import BACKEND, DEVICE, NATIVE, TOLERANCE, make_pages, random_like, relative_error

from minilab.kernels.device import INTERPRETED
from minilab.kernels.mla_decode import CONFIGS, mla_decode, mla_decode_ref
from minilab.kernels.spec import Config

PLAIN = CONFIGS[75]
SMALL = Config({"BLOCK_H": 16, "BLOCK_N": 16, "USE_DOT": True}, warps=4, stages=1)
RAGGED = [0, 1, 16, 17, 45]
SCALE = 192**-0.5
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def _poisoned_buffers():
    """torch.empty gives NaN: what the kernel leaves unwritten, in out or in between, shows."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def check(
    lengths: list[int] = RAGGED,
    *,
    heads: int = 16,
    latent: int = 128,
    rope: int = 32,
    dtype: torch.dtype = torch.float32,
    storage: torch.dtype | None = None,
    config: Config | None = SMALL,
    block_size: int = 16,
    sharpness: float = 1.0,
    num_splits: int | None = None,
    kv_scale: Any = None,
    seed: int = 0,
) -> None:
    """Run the kernel on queries of ``dtype`` over latents of ``storage``; compare per sequence."""
    pages = make_pages(
        lengths, kv_heads=1, head=latent + rope, storage=storage or dtype, block_size=block_size,
        seed=seed,
    )  # fmt: skip
    cache = pages.key_cache[:, :, 0]
    query = random_like((len(lengths), heads, latent + rope), 99).mul(sharpness).to(DEVICE, dtype)
    out = torch.full((len(lengths), heads, latent), float("nan"), dtype=dtype, device=DEVICE)
    arrays = (cache, pages.block_tables, pages.seq_lens, SCALE)
    options = {"kv_lora_rank": latent, "kv_scale": kv_scale}
    got = mla_decode(
        query, *arrays, **options, config=config, num_splits=num_splits, backend=BACKEND, out=out
    )
    assert got is out
    wanted = mla_decode_ref(query.double(), *arrays, **options)
    assert relative_error(got, wanted, [1] * len(lengths)) <= TOLERANCE[dtype]
    assert (got[pages.seq_lens == 0] == 0).all()


@pytest.mark.parametrize("config", [None, SMALL, PLAIN], ids=["own", "small", "no dot"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ragged(dtype, config):
    """Lengths 0 and 1, full and just begun pages, garbage in unused table entries."""
    check(dtype=dtype, config=config, heads=6 if config is PLAIN else 16)


@pytest.mark.parametrize("heads", [16, 128])
def test_deepseek_sizes(heads):
    """512 and 64, as DeepSeek-V3 has them; a rank of a tensor-parallel group, and all heads."""
    check([1, 70], latent=512, rope=64, heads=heads, dtype=torch.float16, config=None)


@pytest.mark.parametrize("config", [SMALL, PLAIN], ids=["dot", "no dot"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_fp8_portable(dtype, config):
    """The latent is key and value, so its scale belongs to the scores and to the result."""
    storage = torch.uint8
    check([1, 30], dtype=dtype, storage=storage, config=config, kv_scale=0.7, heads=4)
    scale = torch.tensor([1.9], device=DEVICE)
    check([1, 30], dtype=dtype, storage=storage, config=config, kv_scale=scale, heads=4)
    check([1, 30], dtype=dtype, storage=storage, config=config, heads=4)


@pytest.mark.skipif(
    not INTERPRETED and torch.cuda.get_device_capability() < (8, 9), reason="needs FP8 hardware"
)
@pytest.mark.parametrize("heads", [16, 33])
def test_fp8_native(heads):
    """float8_e4m3fn pages are read as their uint8 view is."""
    check(dtype=torch.float16, storage=NATIVE, kv_scale=0.3, heads=heads, config=None)


@pytest.mark.parametrize("heads", [1, 3, 20, 40])
def test_heads(heads):
    """Fewer heads than a tile has rows, and tiles that are partly filled."""
    check([1, 20], heads=heads)
    check([1, 20], heads=heads, config=None)


@pytest.mark.parametrize("num_splits", [1, 2, 3, 64])
def test_splits(num_splits):
    """More shares than tiles leaves shares empty; they must weigh nothing."""
    check([0, 33] if num_splits == 64 else [0, 1, 33, 70], num_splits=num_splits)


@pytest.mark.parametrize("block_size", [1, 5, 64])
def test_page_sizes(block_size):
    """A page may be smaller than a tile, larger (FlashMLA's 64), or no power of two."""
    check([0, 1, 31, 64, 65], block_size=block_size)


def test_sharp_scores():
    """Scores in the hundreds overflow exp2 unless the running maximum is taken off."""
    check([1, 70], sharpness=100.0, num_splits=3)


def test_query_in_a_wider_tensor():
    """Rows of any stride."""
    pages = make_pages(RAGGED, kv_heads=1, head=96)
    arrays = (pages.key_cache[:, :, 0], pages.block_tables, pages.seq_lens, SCALE)
    wide = random_like((len(RAGGED), 10, 96), 5).to(DEVICE, torch.float32)
    sliced, whole = (
        mla_decode(query, *arrays, kv_lora_rank=64, config=SMALL, backend=BACKEND)
        for query in (wide[:, :4], wide[:, :4].contiguous())
    )
    assert torch.equal(sliced, whole)


def test_empty_batch():
    """Nothing to launch."""
    check([])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_sweep(seed):
    """Random shapes, lengths and options together."""
    draw = torch.Generator().manual_seed(700 + seed)

    def one_of(*choices: Any) -> Any:
        return choices[int(torch.randint(len(choices), (1,), generator=draw))]

    fp8 = one_of(False, True)
    check(
        torch.randint(0, 300, (one_of(1, 3, 6),), generator=draw).tolist(),
        heads=one_of(1, 5, 16, 24, 64),
        latent=one_of(64, 128, 512),
        rope=one_of(16, 64),
        dtype=one_of(*DTYPES),
        storage=torch.uint8 if fp8 else None,
        config=one_of(None, SMALL),
        num_splits=one_of(None, 1, 2, 5, 13),
        block_size=one_of(8, 16, 64),
        kv_scale=0.4 if fp8 else None,
        seed=seed,
    )
