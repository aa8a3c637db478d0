"""paged_decode's kernel against its reference in float64, on the interpreter or a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_device import BACKEND, DEVICE, NATIVE, TOLERANCE, make_pages, random_like, relative_error

from minilab.kernels.device import INTERPRETED
from minilab.kernels.paged_decode import CONFIGS, paged_decode, paged_decode_ref
from minilab.kernels.spec import Config

PLAIN = CONFIGS[75]
# Small tiles: several of them even in short sequences, at little cost.
SMALL = Config({"BLOCK_G": 16, "BLOCK_N": 16, "USE_DOT": True}, warps=4, stages=1)
RAGGED = [0, 1, 16, 17, 45]
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
    group: int = 2,
    dtype: torch.dtype = torch.float32,
    storage: torch.dtype | None = None,
    config: Config | None = SMALL,
    sharpness: float = 1.0,
    num_splits: int | None = None,
    layout: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Run the kernel on queries of ``dtype`` over a cache of ``storage``; compare per sequence."""
    shape = {"kv_heads": 2, "head": 64, **(layout or {})}
    pages = make_pages(lengths, storage=storage or dtype, **shape)
    heads = shape["kv_heads"] * group
    query = random_like((len(lengths), heads, shape["head"]), 99).mul(sharpness).to(DEVICE, dtype)
    out = torch.full_like(query, float("nan"))
    arrays = (pages.key_cache, pages.value_cache, pages.block_tables, pages.seq_lens)
    got = paged_decode(
        query, *arrays, config=config, num_splits=num_splits, backend=BACKEND, out=out, **options
    )
    assert got is out
    options.setdefault("scale", shape["head"] ** -0.5)
    wanted = paged_decode_ref(query.double(), *arrays, **options)
    assert relative_error(got, wanted, [1] * len(lengths)) <= TOLERANCE[dtype]
    assert (got[pages.seq_lens == 0] == 0).all()


@pytest.mark.parametrize("config", [None, SMALL, PLAIN], ids=["own", "small", "no dot"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ragged(dtype, config):
    """Lengths 0 and 1, full and just begun pages, garbage in unused table entries."""
    check(dtype=dtype, config=config)


@pytest.mark.parametrize("config", [SMALL, PLAIN], ids=["dot", "no dot"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_fp8_portable(dtype, config):
    """The scale belongs to K before the softmax and to V after it, per tensor or per head."""
    check(dtype=dtype, storage=torch.uint8, config=config, k_scale=0.7, v_scale=1.7)
    per_head = torch.tensor([0.3, 2.5], device=DEVICE)
    check(
        dtype=dtype, storage=torch.uint8, config=config, k_scale=per_head, v_scale=per_head.flip(0)
    )
    check(dtype=dtype, storage=torch.uint8, config=config, v_scale=torch.tensor(3.0, device=DEVICE))


@pytest.mark.skipif(
    not INTERPRETED and torch.cuda.get_device_capability() < (8, 9), reason="needs FP8 hardware"
)
def test_fp8_native():
    """float8_e4m3fn pages are read as their uint8 view is."""
    check(dtype=torch.float16, storage=NATIVE, k_scale=torch.tensor([0.3, 2.5], device=DEVICE))


@pytest.mark.parametrize("group", [1, 3, 4, 16, 20])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_groups(group, kv_heads):
    """MHA, GQA, MQA; groups that are no power of two, and one that is wider than a tile."""
    check([1, 20], group=group, layout={"kv_heads": kv_heads})
    if group in (3, 20):
        check([1, 20], group=group, layout={"kv_heads": kv_heads}, config=PLAIN)


@pytest.mark.parametrize("window", [1, 7, 16, 17, 100])
def test_sliding_window(window):
    """The newest `window` tokens, the query's own among them; begins inside a page."""
    check(sliding_window=window, num_splits=2)


@pytest.mark.parametrize("num_splits", [1, 2, 3, 64])
def test_splits(num_splits):
    """More shares than tiles leaves shares empty; they must weigh nothing."""
    check([0, 1, 33, 70], num_splits=num_splits)


@pytest.mark.parametrize("block_size", [1, 5, 32])
def test_page_sizes(block_size):
    """A page may be smaller than a tile, larger, or no power of two."""
    check([0, 1, 31, 32, 33], layout={"block_size": block_size})


@pytest.mark.parametrize("head", [16, 128])
def test_head_sizes(head):
    """16 is the smallest tile of a dot."""
    check([0, 1, 40], layout={"head": head}, dtype=torch.float16)


def test_sharp_scores():
    """Scores in the hundreds overflow exp2 unless the running maximum is taken off."""
    check([1, 70], sharpness=100.0, num_splits=3)


def test_own_scale():
    """`scale` replaces 1/sqrt(head_size)."""
    check(scale=0.01)


def test_keys_and_values_in_one_storage():
    """vLLM keeps a block's keys and values side by side: blocks dense, their stride doubled."""
    check(layout={"together": True})


def test_query_in_a_fused_projection():
    """Queries are often a slice of a wider tensor."""
    pages = make_pages(RAGGED)
    arrays = (pages.key_cache, pages.value_cache, pages.block_tables, pages.seq_lens)
    fused = random_like((len(RAGGED), 10, 64), 5).to(DEVICE, torch.float32)
    sliced = paged_decode(fused[:, :4], *arrays, config=SMALL, backend=BACKEND)
    whole = paged_decode(fused[:, :4].contiguous(), *arrays, config=SMALL, backend=BACKEND)
    assert torch.equal(sliced, whole)


def test_empty_batch():
    """Nothing to launch."""
    check([])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_sweep(seed):
    """Random shapes, lengths and options together."""
    draw = torch.Generator().manual_seed(1000 + seed)

    def one_of(*choices: Any) -> Any:
        return choices[int(torch.randint(len(choices), (1,), generator=draw))]

    fp8 = one_of(False, True)
    lengths = torch.randint(0, 300, (one_of(1, 3, 6),), generator=draw).tolist()
    check(
        lengths,
        group=one_of(*range(1, 17)),
        dtype=one_of(*DTYPES),
        storage=torch.uint8 if fp8 else None,
        config=one_of(None, SMALL, PLAIN),
        num_splits=one_of(None, 1, 2, 5, 13),
        layout={
            "kv_heads": one_of(1, 2, 3),
            "head": one_of(64, 128),
            "block_size": one_of(8, 16, 64),
            "seed": seed,
            "together": one_of(True, False),
        },
        sliding_window=one_of(None, None, 1, 50, 128),
        **({"k_scale": 0.4, "v_scale": 1.9} if fp8 else {}),
    )
