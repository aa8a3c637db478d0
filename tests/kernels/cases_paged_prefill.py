"""paged_prefill's kernel against its reference in float64, on the interpreter or a GPU."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
import torch
from on_device import BACKEND, DEVICE, NATIVE, TOLERANCE, make_pages, random_like, relative_error

from minilab.kernels.device import INTERPRETED
from minilab.kernels.paged_decode import paged_decode
from minilab.kernels.paged_prefill import paged_prefill, paged_prefill_ref
from minilab.kernels.spec import Config

SMALL = Config({"BLOCK_M": 16, "BLOCK_N": 16}, warps=4, stages=1)
# More query tokens than a tile has tokens: with a window, some rows see none of a tile.
TALL = Config({"BLOCK_M": 64, "BLOCK_N": 16}, warps=4, stages=1)
# (query tokens, cached tokens before them): a whole prompt, one token, a chunk over a prefix that
# ends inside a page, five drafts to verify, a lone first token.
RAGGED = [(33, 0), (1, 44), (20, 37), (5, 16), (1, 0)]
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(autouse=True)
def _poisoned_buffers():
    """torch.empty gives NaN: what the kernel leaves unwritten shows."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def check(
    chunks: list[tuple[int, int]] = RAGGED,
    *,
    group: int = 2,
    dtype: torch.dtype = torch.float32,
    storage: torch.dtype | None = None,
    config: Config | None = SMALL,
    sharpness: float = 1.0,
    layout: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Run the kernel on queries of ``dtype`` over a cache of ``storage``; compare per sequence."""
    shape = {"kv_heads": 2, "head": 64, **(layout or {})}
    q_lens = [q_len for q_len, _ in chunks]
    pages = make_pages([sum(chunk) for chunk in chunks], storage=storage or dtype, **shape)
    starts = torch.tensor([0, *accumulate(q_lens)], dtype=torch.int32, device=DEVICE)
    heads = shape["kv_heads"] * group
    query = random_like((sum(q_lens), heads, shape["head"]), 99).mul(sharpness).to(DEVICE, dtype)
    out = torch.full_like(query, float("nan"))
    arrays = (pages.key_cache, pages.value_cache, pages.block_tables, pages.seq_lens, starts)
    longest = max([1, *q_lens])
    got = paged_prefill(query, *arrays, longest, config=config, backend=BACKEND, out=out, **options)
    assert got is out
    options.setdefault("scale", shape["head"] ** -0.5)
    wanted = paged_prefill_ref(query.double(), *arrays, **options)
    assert relative_error(got, wanted, q_lens) <= TOLERANCE[dtype]


@pytest.mark.parametrize("config", [None, SMALL], ids=["own", "small"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ragged(dtype, config):
    """Chunks of many lengths over prefixes that begin and end anywhere in a page."""
    check(dtype=dtype, config=config)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_fp8_portable(dtype):
    """Scales per tensor and per head."""
    per_head = torch.tensor([0.3, 2.5], device=DEVICE)
    check(dtype=dtype, storage=torch.uint8, k_scale=0.7, v_scale=1.7)
    check(dtype=dtype, storage=torch.uint8, k_scale=per_head, v_scale=per_head.flip(0))


@pytest.mark.skipif(
    not INTERPRETED and torch.cuda.get_device_capability() < (8, 9), reason="needs FP8 hardware"
)
def test_fp8_native():
    """float8_e4m3fn pages are read as their uint8 view is."""
    check(dtype=torch.float16, storage=NATIVE, v_scale=torch.tensor([0.3, 2.5], device=DEVICE))


@pytest.mark.parametrize("group", [1, 3, 7, 16])
def test_groups(group):
    """Rows are tokens times heads: a tile may begin and end inside a token's heads."""
    check([(9, 10), (1, 1)], group=group, layout={"kv_heads": 1 if group == 7 else 2})


@pytest.mark.parametrize("window", [1, 5, 16, 200])
def test_sliding_window(window):
    """Each row has its own first token; some rows see nothing of a tile that others do."""
    check([(20, 37), (33, 0), (1, 0)], sliding_window=window)
    check([(60, 37), (64, 0)], sliding_window=window, group=1, config=TALL)


@pytest.mark.parametrize("drafts", [1, 2, 5, 8])
def test_verify(drafts):
    """A few drafts over longer contexts, with the tiles of that case."""
    check([(drafts, 70), (drafts, 0), (drafts, 15)], config=None, group=4, dtype=torch.float16)


@pytest.mark.parametrize("block_size", [1, 5, 32])
def test_page_sizes(block_size):
    """A page may be smaller than a tile, larger, or no power of two."""
    check([(20, 13), (1, 31)], layout={"block_size": block_size})


def test_head_of_128():
    """The larger head size."""
    check([(20, 13), (1, 31)], layout={"head": 128}, dtype=torch.float16)


def test_sharp_scores():
    """Scores in the hundreds overflow exp2 unless the running maximum is taken off."""
    check([(20, 37)], sharpness=100.0)


def test_keys_and_values_in_one_storage():
    """Blocks dense, their stride doubled."""
    check([(20, 13)], layout={"together": True})


def test_one_query_token_is_a_decode_step():
    """Both kernels must agree on where the newest token stands."""
    pages = make_pages([1, 16, 45])
    arrays = (pages.key_cache, pages.value_cache, pages.block_tables, pages.seq_lens)
    query = random_like((3, 4, 64), 7).to(DEVICE, torch.float32)
    starts = torch.arange(4, dtype=torch.int32, device=DEVICE)
    options = {"sliding_window": 20, "backend": BACKEND}
    one = paged_decode(query, *arrays, **options)
    other = paged_prefill(query, *arrays, starts, 1, **options)
    assert relative_error(other, one, [3]) <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_sweep(seed):
    """Random shapes, lengths and options together."""
    draw = torch.Generator().manual_seed(2000 + seed)

    def one_of(*choices: Any) -> Any:
        return choices[int(torch.randint(len(choices), (1,), generator=draw))]

    fp8 = one_of(False, True)
    chunks = [(one_of(1, 2, 5, 40, 90), one_of(0, 1, 16, 63, 150)) for _ in range(one_of(1, 3))]
    check(
        chunks,
        group=one_of(*range(1, 17)),
        dtype=one_of(*DTYPES),
        storage=torch.uint8 if fp8 else None,
        config=one_of(None, SMALL),
        layout={
            "kv_heads": one_of(1, 2, 3),
            "head": one_of(64, 128),
            "block_size": one_of(8, 16, 64),
            "seed": seed,
        },
        sliding_window=one_of(None, None, 1, 50, 128),
        **({"k_scale": 0.4, "v_scale": 1.9} if fp8 else {}),
    )
