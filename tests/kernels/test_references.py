"""The plain-torch twins against torch's own attention, and costs against counting by hand."""

from __future__ import annotations

import pytest
import torch
from on_device import make_pages, random_like
from torch.nn.functional import scaled_dot_product_attention

from minilab.kernels import block_copy, e4m3, kv_write, paged_decode, paged_prefill, rejection


def contiguous(pages, seq: int, length: int, name: str) -> torch.Tensor:
    """A sequence's tokens, copied one by one: [kv_heads, length, head_size], float64."""
    cache = getattr(pages, name)
    tokens = []
    for token in range(length):
        block = int(pages.block_tables[seq, token // cache.shape[1]])
        tokens.append(cache[block, token % cache.shape[1]].double())
    return torch.stack(tokens, dim=1)


@pytest.mark.parametrize("window", [None, 5])
def test_prefill_twin_is_torch_attention(window):
    """Causal with an offset, grouped heads, window: written as a mask for torch."""
    q_lens, lengths = [20, 1, 5], [33, 17, 5]
    pages = make_pages(lengths, kv_heads=2, device="cpu")
    query = random_like((26, 6, 64), 1)
    starts = torch.tensor([0, 20, 21, 26], dtype=torch.int32)
    arrays = (pages.key_cache, pages.value_cache, pages.block_tables, pages.seq_lens)
    got = paged_prefill.paged_prefill_ref(query, *arrays, starts, 0.2, sliding_window=window)
    for seq, (q_len, length) in enumerate(zip(q_lens, lengths, strict=True)):
        position = torch.arange(length - q_len, length)[:, None]
        token = torch.arange(length)[None, :]
        mask = (token <= position) & (token > position - (window or length + 1))
        own = query[starts[seq] : starts[seq + 1]].transpose(0, 1)
        keys, values = (contiguous(pages, seq, length, n) for n in ("key_cache", "value_cache"))
        wanted = scaled_dot_product_attention(
            own, keys, values, attn_mask=mask, scale=0.2, enable_gqa=True
        )
        part = got[starts[seq] : starts[seq + 1]].transpose(0, 1)
        assert torch.allclose(part, wanted, rtol=1e-12, atol=1e-12)


def test_decode_twin_is_torch_attention():
    """One query token sees everything; length 0 gives zeros."""
    lengths = [33, 0, 1]
    pages = make_pages(lengths, kv_heads=2, device="cpu")
    query = random_like((3, 6, 64), 1)
    arrays = (pages.key_cache, pages.value_cache, pages.block_tables, pages.seq_lens)
    got = paged_decode.paged_decode_ref(query, *arrays, 0.2)
    assert (got[1] == 0).all()
    for seq in (0, 2):
        keys, values = (
            contiguous(pages, seq, lengths[seq], n) for n in ("key_cache", "value_cache")
        )
        wanted = scaled_dot_product_attention(
            query[seq, :, None], keys, values, scale=0.2, enable_gqa=True
        )
        assert torch.allclose(got[seq], wanted[:, 0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", [None, 0.25, torch.tensor([0.5, 0.25])], ids=str)
def test_written_pages_are_what_attention_reads(scale):
    """kv_write and paged_decode agree on slots, blocks and which way the scale goes."""
    lengths, block_size = [7, 10], 4
    tables = torch.tensor([[5, 0, -1], [2, 4, 1]], dtype=torch.int32)
    slots = [
        int(tables[seq, token // block_size]) * block_size + token % block_size
        for seq, length in enumerate(lengths)
        for token in range(length)
    ]
    key, value = random_like((17, 2, 32), 1).float(), random_like((17, 2, 32), 2).float()
    caches = [torch.full((6, block_size, 2, 32), 0x7F, dtype=torch.uint8) for _ in range(2)]
    kv_write.kv_write(key, value, *caches, torch.tensor(slots), k_scale=scale, v_scale=scale)
    query = random_like((2, 4, 32), 3).float()
    lens = torch.tensor(lengths, dtype=torch.int32)
    got = paged_decode.paged_decode(query, *caches, tables, lens, k_scale=scale, v_scale=scale)
    factor = torch.as_tensor(1.0 if scale is None else scale).reshape(-1, 1)
    for seq, own in enumerate((slice(0, 7), slice(7, 17))):
        keys, values = (
            (e4m3.decode(e4m3.encode(x[own] / factor)) * factor).transpose(0, 1)
            for x in (key, value)
        )
        wanted = scaled_dot_product_attention(query[seq, :, None], keys, values, enable_gqa=True)
        assert torch.allclose(got[seq], wanted[:, 0], rtol=1e-4, atol=1e-5)


def test_fp8_pages_lose_little():
    """A step in the wrong place (a scale applied twice, say) costs far more than e4m3's 3 bits."""
    pages = make_pages([200, 31], kv_heads=2, device="cpu")
    rounded = make_pages([200, 31], kv_heads=2, storage=torch.uint8, device="cpu")
    query = random_like((2, 4, 64), 1)
    exact, lossy = (
        paged_decode.paged_decode_ref(
            query, x.key_cache, x.value_cache, x.block_tables, x.seq_lens, 0.125
        )
        for x in (pages, rounded)
    )
    error = float((lossy - exact).norm() / exact.norm())
    assert 0.005 < error < 0.06


def test_costs_by_hand():
    """Bytes and FLOPs of cases small enough to count, and of one that the chapters quote."""
    # 64 x 4096 tokens, 8 KV heads of 128, fp16: 2 * 2 * 8 * 128 = 4096 bytes a token.
    moved, flops = paged_decode.cost([4096] * 64, 32, 8, 128)
    assert moved == 64 * 4096 * 4096 + 2 * 64 * 32 * 128 * 2
    assert flops == 4 * 64 * 4096 * 32 * 128
    assert paged_decode.cost([10, 0], 4, 2, 16, sliding_window=4) == (
        2 * 4 * 2 * 16 * 2 + 2 * 2 * 4 * 16 * 2,
        4 * 4 * 4 * 16,
    )
    # 3 queries over 5 tokens see 3 + 4 + 5; with a window of 2, two each, of four tokens in all.
    assert paged_prefill.cost([3], [5], 1, 1, 1)[1] == 4 * 12
    assert paged_prefill.cost([3], [5], 1, 1, 1, sliding_window=2) == (2 * 4 * 2 + 2 * 3 * 2, 4 * 6)
    assert kv_write.cost(10, 2, 16, kv_bytes=1)[0] == 640 * (2 + 1) + 80
    assert block_copy.cost(3, 100)[0] == 2 * 300 + 12
    assert rejection.cost(2, 100) == (3 * 4 * 200, 600)
    assert rejection.cost(2, 100, ngram=True)[0] == 2 * 4 * 200
