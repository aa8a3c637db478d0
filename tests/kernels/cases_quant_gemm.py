"""Products with FP8 and INT4 matrices against float64 on the same dequantised inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_device import BACKEND, DEVICE, NATIVE, TOLERANCE, random_like, relative_error

from minilab.kernels.device import INTERPRETED
from minilab.kernels.quant_gemm import scaled_mm, scaled_mm_ref
from minilab.kernels.quant_gemm_int4 import w4a16_gemm, w4a16_gemm_ref
from minilab.kernels.quant_pack import pack_int4, quantize_rows
from minilab.kernels.spec import Config

SMALL = Config({"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32}, warps=4, stages=1)
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
SHAPES = [(0, 8, 32), (1, 8, 16), (17, 40, 72), (33, 96, 160)]


def check_fp8(
    m: int,
    n: int,
    k: int,
    out_dtype: torch.dtype = torch.float32,
    storage: torch.dtype = torch.uint8,
    config: Config | None = SMALL,
    extra: int = 0,
) -> None:
    """Random rows of very different size; ``extra`` columns lie between the rows of ``a``."""
    sizes = torch.logspace(-3, 3, max(m, 1), dtype=torch.float64)[:m, None]
    codes, scale_a = quantize_rows((random_like((m, k), 1) * sizes).to(DEVICE))
    weight, scale_b = quantize_rows(random_like((n, k), 2).to(DEVICE))
    a = torch.full((m, k + extra), 0x7E, dtype=torch.uint8, device=DEVICE)[:, :k].copy_(codes)
    out = torch.full((m, n), float("nan"), dtype=out_dtype, device=DEVICE)
    arrays = (a.view(storage), weight.view(storage).t(), scale_a, scale_b.t())
    got = scaled_mm(*arrays, out_dtype, config=config, backend=BACKEND, out=out)
    assert got is out
    wanted = scaled_mm_ref(*arrays, torch.float64)
    # Hopper's FP8 product keeps about 14 bits of a sum until it moves to fp32.
    tolerance = max(TOLERANCE[out_dtype], 0 if INTERPRETED or storage != NATIVE else 1e-3)
    assert relative_error(got, wanted, [1] * m) <= tolerance


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("out_dtype", DTYPES, ids=str)
def test_fp8_portable(m, n, k, out_dtype):
    """No size need be a multiple of a tile."""
    check_fp8(m, n, k, out_dtype)


@pytest.mark.skipif(
    not INTERPRETED and torch.cuda.get_device_capability() < (8, 9), reason="needs FP8 hardware"
)
@pytest.mark.parametrize("m", [3, 40])
def test_fp8_native(m):
    """Hardware FP8 multiplies the same codes; tiles for few rows and for many."""
    check_fp8(m, 48, 272, storage=NATIVE, config=None)


@pytest.mark.parametrize("m", [3, 40])
def test_fp8_own_tiles(m):
    """Those that a GPU would use."""
    check_fp8(m, 136, 160, torch.float16, config=None)


def test_fp8_rows_apart():
    """Rows of ``a`` may have any stride."""
    check_fp8(20, 40, 48, extra=16)


def test_fp8_many_tiles():
    """Tiles are dealt out in groups of eight rows: none twice, none forgotten."""
    check_fp8(16 * 11, 32 * 3, 32)


def check_int4(
    m: int,
    n: int,
    k: int,
    layout: str,
    dtype: torch.dtype = torch.float32,
    group_size: int = 128,
    config: Config | None = SMALL,
) -> None:
    """A packed random weight, with columns of different size and sign."""
    sizes = torch.logspace(-2, 1, n, dtype=torch.float64)
    weight = random_like((n, k), 3) * sizes[:, None]
    weight[: n // 4].abs_()
    packed = [part.to(DEVICE) for part in pack_int4(weight.to(dtype), group_size, layout)]
    x = random_like((m, k), 4).to(DEVICE, dtype)
    out = torch.full((m, n), float("nan"), dtype=dtype, device=DEVICE)
    got = w4a16_gemm(x, *packed, layout=layout, config=config, backend=BACKEND, out=out)
    assert got is out
    wanted = w4a16_gemm_ref(x.double(), *packed, layout=layout)
    columns = sizes.to(DEVICE)  # each column counts alike
    assert relative_error(got.double() / columns, wanted / columns, [m]) <= TOLERANCE[dtype]


@pytest.mark.parametrize("layout", ["awq", "gptq"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("m", "n", "k"), [(0, 8, 128), (1, 8, 128), (17, 40, 384)])
def test_int4(m, n, k, dtype, layout):
    """Several groups, partly filled tiles."""
    check_int4(m, n, k, layout, dtype)


@pytest.mark.parametrize("layout", ["awq", "gptq"])
@pytest.mark.parametrize("m", [5, 40])
def test_int4_own_tiles(m, layout):
    """Those that a GPU would use."""
    check_int4(m, 72, 256, layout, torch.float16, config=None)


@pytest.mark.parametrize("layout", ["awq", "gptq"])
@pytest.mark.parametrize("group_size", [32, 64])
def test_int4_small_groups(group_size, layout):
    """A group smaller than the tile's inputs makes the tile smaller."""
    check_int4(3, 16, 192, layout, group_size=group_size, config=None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_sweep(seed):
    """Random sizes, types and tiles."""
    draw = torch.Generator().manual_seed(900 + seed)

    def one_of(*choices: Any) -> Any:
        return choices[int(torch.randint(len(choices), (1,), generator=draw))]

    m, n = one_of(1, 7, 16, 17, 130), 8 * one_of(1, 3, 8, 19)
    check_fp8(m, n, one_of(16, 48, 200, 512), one_of(*DTYPES), config=one_of(None, SMALL))
    group = one_of(32, 64, 128)
    check_int4(
        m, n, group * one_of(1, 2, 5), one_of("awq", "gptq"), one_of(*DTYPES), group,
        one_of(None, SMALL),
    )  # fmt: skip
