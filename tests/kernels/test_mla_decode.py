"""mla_decode: the kernel where it can run, and what needs no kernel."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from on_device import make_pages, random_like
from torch.nn.functional import scaled_dot_product_attention

from minilab.kernels import e4m3, mla_decode

SCALE = 24**-0.5


def test_on_the_interpreter(run_cases):
    """The kernel, in Triton's interpreter."""
    run_cases("cases_mla_decode.py", "interpreter")


@pytest.mark.slow
def test_sweep_on_the_interpreter(run_cases):
    """Random combinations."""
    run_cases("cases_mla_decode.py", "interpreter", "slow")


@pytest.mark.gpu
def test_on_a_gpu(run_cases):
    """The same cases, compiled."""
    run_cases("cases_mla_decode.py", "gpu", "slow or not slow")


def test_absorbed_is_the_same_attention():
    """Keys and values projected up from the latent for each head, as the model is written."""
    heads, nope, rope, latent, value, length = 4, 16, 16, 32, 12, 21
    pages = make_pages([length], kv_heads=1, head=latent + rope, device="cpu")
    used = pages.block_tables[0, :2].long()
    cached = pages.key_cache[used].flatten(0, 1)[:length, 0].double()
    up_key, up_value = random_like((heads, nope, latent), 1), random_like((heads, value, latent), 2)
    q_nope, q_rope = random_like((heads, nope), 3), random_like((heads, rope), 4)

    keys = torch.einsum("hnl,tl->htn", up_key, cached[:, :latent])
    shared = cached[None, :, latent:].expand(heads, -1, -1)
    values = torch.einsum("hvl,tl->htv", up_value, cached[:, :latent])
    wanted = scaled_dot_product_attention(
        torch.cat([q_nope, q_rope], 1)[:, None], torch.cat([keys, shared], 2), values, scale=SCALE
    )

    absorbed = torch.cat([torch.einsum("hn,hnl->hl", q_nope, up_key), q_rope], 1)
    arrays = (pages.key_cache[:, :, 0], pages.block_tables, pages.seq_lens)
    mixed = mla_decode.mla_decode_ref(absorbed[None], *arrays, SCALE, kv_lora_rank=latent)
    got = torch.einsum("hvl,hl->hv", up_value, mixed[0])
    assert torch.allclose(got, wanted[:, 0], rtol=1e-12, atol=1e-12)


def test_fp8_latents_lose_little():
    """A scale left out of the scores or of the values costs far more than e4m3's 3 bits."""
    pages = make_pages([120], kv_heads=1, head=96, device="cpu")
    used = pages.block_tables[0, :8].long()
    cache = pages.key_cache[:, :, 0].nan_to_num()
    query = random_like((1, 4, 96), 1)
    arrays = (pages.block_tables, pages.seq_lens, SCALE)
    exact = mla_decode.mla_decode_ref(query, cache, *arrays, kv_lora_rank=64)
    codes, scale = e4m3.encode(cache / 0.01), 0.01
    lossy = mla_decode.mla_decode_ref(query, codes, *arrays, kv_lora_rank=64, kv_scale=scale)
    error = float((lossy - exact).norm() / exact.norm())
    assert used.unique().numel() == 8 and 0.002 < error < 0.06


def test_cost_by_hand():
    """A token is 576 numbers for all heads; per byte of it, two FLOPs a head, nearly."""
    moved, flops = mla_decode.cost([4096] * 64, 128)
    assert moved == 64 * 4096 * 576 * 2 + 64 * 128 * (576 + 512) * 2
    assert flops == 2 * 64 * 4096 * 128 * (576 + 512)
    only_cache = 64 * 4096 * 576 * 2
    assert flops / only_cache == pytest.approx(2 * 128 * 0.944, rel=1e-3)
    assert mla_decode.cost([10, 0], 2, 64, 16, kv_bytes=1, query_bytes=4)[0] == 800 + 4 * 144 * 4


def good() -> dict[str, Any]:
    """Two sequences, of 5 and 3 tokens, in a cache of 6 blocks of 4 tokens."""
    return {
        "query": torch.randn(2, 4, 96),
        "kv_cache": torch.randn(6, 4, 96),
        "block_tables": torch.tensor([[1, 2], [3, -1]], dtype=torch.int32),
        "seq_lens": torch.tensor([5, 3], dtype=torch.int32),
        "scale": SCALE,
        "kv_lora_rank": 64,
    }


BAD: dict[str, dict[str, Any]] = {
    "query is float64; it must be float16 or": {"query": torch.randn(2, 4, 96).double()},
    "query has shape (2, 96); it must be [num_seqs, num_heads, width]": {
        "query": torch.randn(2, 96)
    },
    "kv_cache has shape (6, 4, 80)": {"kv_cache": torch.randn(6, 4, 80)},
    "kv_cache is float16; it must be float32 or uint8 or": {
        "kv_cache": torch.randn(6, 4, 96).half()
    },
    "kv_cache has strides": {"kv_cache": torch.randn(6, 96, 4).mT},
    "kv_lora_rank is 512, which leaves -416 of 96 numbers": {"kv_lora_rank": 512},
    "kv_lora_rank is 48, which leaves 48 of 96 numbers": {"kv_lora_rank": 48},
    "kv_scale is given, but the cache is float32; only FP8 is scaled": {"kv_scale": 0.5},
    "block_tables[0, 1] is 6; it must be within 0 and num_blocks - 1 = 5": {
        "block_tables": torch.tensor([[1, 6], [3, 0]], dtype=torch.int32)
    },
    "seq_lens goes from 3 to 9; it must be within 0 and 2 blocks of 4": {
        "seq_lens": torch.tensor([9, 3], dtype=torch.int32)
    },
    "out is float32 of shape (2, 4, 96) on cpu; it must be float32 of shape (2, 4, 64)": {
        "out": torch.zeros(2, 4, 96)
    },
}


@pytest.mark.parametrize(("said", "change"), BAD.items(), ids=list(BAD))
def test_bad_argument(said, change):
    """One changed argument, one sentence about it; without the change nothing is refused."""
    mla_decode.mla_decode(**good())
    with pytest.raises(ValueError, match=re.escape(said)):
        mla_decode.mla_decode(**{**good(), **change})


@pytest.mark.parametrize(
    ("scale", "said"), [(-1.0, "kv_scale is -1.0"), (torch.ones(4), "kv_scale is float32 of shape")]
)
def test_bad_scale(scale, said):
    """One scale for all: a latent belongs to no head."""
    cache = torch.zeros(6, 4, 96, dtype=torch.uint8)
    with pytest.raises(ValueError, match=re.escape(said)):
        mla_decode.mla_decode(**{**good(), "kv_cache": cache, "kv_scale": scale})
