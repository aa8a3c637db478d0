"""Bad arguments: each error names the argument, what it was, and what it must be."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from minilab.kernels.block_copy import gather_blocks, scatter_blocks
from minilab.kernels.kv_write import kv_write
from minilab.kernels.paged_decode import paged_decode
from minilab.kernels.paged_prefill import paged_prefill
from minilab.kernels.rejection import rejection

I32 = torch.int32


def tables() -> dict[str, Any]:
    """Two sequences, of 5 and 3 tokens, in a cache of 6 blocks of 4 tokens."""
    return {
        "key_cache": torch.randn(6, 4, 2, 16),
        "value_cache": torch.randn(6, 4, 2, 16),
        "block_tables": torch.tensor([[1, 2], [3, -1]], dtype=I32),
        "seq_lens": torch.tensor([5, 3], dtype=I32),
    }


def good(kernel: Any) -> dict[str, Any]:
    """Arguments that ``kernel`` takes."""
    if kernel is paged_decode:
        return {"query": torch.randn(2, 4, 16), **tables()}
    if kernel is paged_prefill:
        starts = torch.tensor([0, 2, 5], dtype=I32)
        query = torch.randn(5, 4, 16)
        return {"query": query, **tables(), "cu_seqlens_q": starts, "max_seqlen_q": 3}
    if kernel is kv_write:
        new = {"key": torch.randn(3, 2, 16), "value": torch.randn(3, 2, 16)}
        caches = {name: tables()[name] for name in ("key_cache", "value_cache")}
        return {**new, **caches, "slot_mapping": torch.tensor([0, -1, 23])}
    if kernel is gather_blocks:
        return {"cache": torch.randn(6, 8), "block_ids": torch.tensor([5, 0])}
    if kernel is scatter_blocks:
        return {"staging": torch.randn(2, 8), **good(gather_blocks)}
    return {
        "draft_token_ids": torch.tensor([1, 2, 3]),
        "max_spec_len": 2,
        "cu_num_draft_tokens": torch.tensor([2, 3], dtype=I32),
        "draft_probs": torch.rand(3, 9),
        "target_probs": torch.rand(3, 9),
        "bonus_token_ids": torch.tensor([4, 5]),
        "uniform_probs": torch.rand(3),
        "exponentials": torch.rand(2, 9) + 0.1,
    }


def ints(*values: int) -> torch.Tensor:
    """An int32 tensor."""
    return torch.tensor(values, dtype=I32)


META = torch.device("meta")
# For each kernel: part of the sentence, and the arguments that are changed to get it.
BAD: dict[Any, dict[str, dict[str, Any]]] = {
    paged_decode: {
        "query is float64; it must be float16 or": {"query": torch.randn(2, 4, 16).double()},
        "query is list; it must be a tensor": {"query": [1.0]},
        "query has shape (2, 64); it must be [num_seqs, num_heads, head_size]": {
            "query": torch.randn(2, 64)
        },
        "query has 3 heads; it must have a multiple of the cache's 2": {
            "query": torch.randn(2, 3, 16)
        },
        "query has shape (2, 0, 16); num_heads must be at least 1": {
            "query": torch.randn(2, 0, 16)
        },
        "query has strides (64, 1, 4); dimensions from 1 on must be contiguous": {
            "query": torch.randn(2, 16, 4).mT
        },
        "num_kv_heads, head_size], and head_size is 32 in query": {"query": torch.randn(2, 4, 32)},
        "key_cache is float32; it must be float16 or uint8 or float8_e4m3fn": {
            "query": torch.randn(2, 4, 16).half()
        },
        "value_cache is uint8 with strides": {"value_cache": torch.randn(6, 4, 2, 16).byte()},
        "value_cache has shape (7, 4, 2, 16)": {"value_cache": torch.randn(7, 4, 2, 16)},
        "it must be float32 with key_cache's (128, 32, 16, 1)": {
            "value_cache": torch.randn(6, 2, 4, 2, 16)[:, 0]
        },
        "key_cache has strides": {"key_cache": torch.randn(6, 2, 4, 16).transpose(1, 2)},
        "block_tables is int64; it must be int32": {"block_tables": torch.tensor([[1], [3]])},
        "block_tables has shape (1, 2)": {"block_tables": ints(1, 2).view(1, 2)},
        "block_tables[0, 1] is 6; it must be within 0 and num_blocks - 1 = 5": {
            "block_tables": ints(1, 6, 3, 0).view(2, 2)
        },
        "block_tables[1, 0] is -1": {"block_tables": ints(1, 2, -1, 0).view(2, 2)},
        "seq_lens goes from 5 to 9; it must be within 0 and 2 blocks of 4 tokens = 8": {
            "seq_lens": ints(5, 9)
        },
        "seq_lens goes from -1 to 5": {"seq_lens": ints(5, -1)},
        "seq_lens is on meta; query is on cpu": {"seq_lens": ints(1, 2).to(META)},
        "k_scale is given, but the cache is float32; only FP8 is scaled": {"k_scale": 0.5},
        "sliding_window is 0; it must be at least 1": {"sliding_window": 0},
        "out is float16 of shape (2, 4, 16) on cpu; it must be float32": {
            "out": torch.zeros(2, 4, 16).half()
        },
        "out is float32 of shape (2, 4, 8)": {"out": torch.zeros(2, 4, 8)},
        "out has strides (128, 32, 2); it must be contiguous": {
            "out": torch.zeros(2, 4, 32)[:, :, ::2]
        },
        "backend is 'gpu'; it must be one of": {"backend": "gpu"},
    },
    paged_prefill: {
        "max_seqlen_q is 0; it must be at least 1": {"max_seqlen_q": 0},
        "sequence 1 3 query tokens; it must be within 1 and 2 (max_seqlen_q is 2": {
            "max_seqlen_q": 2
        },
        "cu_seqlens_q gives sequence 0 0 query tokens; it must be within 1 and 3": {
            "cu_seqlens_q": ints(0, 0, 5)
        },
        "sequence 1 4 query tokens; it must be within 1 and 3 (max_seqlen_q is 4, seq_lens[1] is": {
            "cu_seqlens_q": ints(0, 1, 5),
            "max_seqlen_q": 4,
        },
        "cu_seqlens_q goes from 0 to 4; it must go from 0 to query's 5 tokens": {
            "cu_seqlens_q": ints(0, 2, 4)
        },
        "cu_seqlens_q has shape (2,)": {"cu_seqlens_q": ints(0, 5)},
    },
    kv_write: {
        "value is float16; it must be float32 like key": {"value": torch.randn(3, 2, 16).half()},
        "value has shape (2, 2, 16)": {"value": torch.randn(2, 2, 16)},
        "slot_mapping is int32; it must be int64": {"slot_mapping": ints(0, 1, 2)},
        "goes from 0 to 24; it must be within -1 and num_blocks * block_size - 1 = 23": {
            "slot_mapping": torch.tensor([0, 24, 1])
        },
        "slot_mapping goes from -2 to 1": {"slot_mapping": torch.tensor([0, -2, 1])},
        "slot_mapping names a slot twice": {"slot_mapping": torch.tensor([3, -1, 3])},
        "head_size is 24; it must be one of 16, 32, 64, 128": {
            name: torch.randn(*shape, 2, 24)
            for name, shape in {
                "key": (3,),
                "value": (3,),
                "key_cache": (6, 4),
                "value_cache": (6, 4),
            }.items()
        },
    },
    gather_blocks: {
        "cache is a tensor with strides (1, 6); it must be a contiguous tensor": {
            "cache": torch.randn(8, 6).T
        },
        "cache is str": {"cache": "kv"},
        "dim is 2; it must be within 0 and 1": {"dim": 2},
        "block_ids goes from 6 to 6; it must be within 0 and num_blocks - 1 = 5": {
            "block_ids": torch.tensor([6])
        },
        "block_ids is float32; it must be int32 or int64": {"block_ids": torch.tensor([1.0])},
        "block_ids is on meta; cache is on cpu": {"block_ids": ints(1, 2).to(META)},
        "out is float32 of shape (3, 8) on cpu; it must be float32 of shape (2, 8)": {
            "out": torch.zeros(3, 8)
        },
    },
    scatter_blocks: {
        "staging is float32 of shape (3, 8)": {"staging": torch.zeros(3, 8)},
        "staging is NoneType; it must be a tensor": {"staging": None},
        "block_ids names a block twice": {"block_ids": torch.tensor([2, 2])},
    },
    rejection: {
        "target_probs is float16; it must be float32": {"target_probs": torch.rand(3, 9).half()},
        "draft_probs has shape (3, 8)": {"draft_probs": torch.rand(3, 8)},
        "exponentials is None; give both": {"exponentials": None},
        "is_greedy is int64; it must be bool": {"is_greedy": torch.tensor([1, 0])},
        "gives the requests [2, 1] drafts; each must be within 0 and max_spec_len = 1": {
            "max_spec_len": 1
        },
        "cu_num_draft_tokens gives the requests [2, -1] drafts": {
            "cu_num_draft_tokens": ints(2, 1)
        },
        "draft_token_ids goes from 1 to 9; it must be within 0 and vocab_size - 1 = 8": {
            "draft_token_ids": torch.tensor([1, 9, 3])
        },
    },
}
CASES = [
    pytest.param(kernel, change, said, id=f"{kernel.__name__}: {said}")
    for kernel, cases in BAD.items()
    for said, change in cases.items()
]


@pytest.mark.parametrize(("kernel", "change", "said"), CASES)
def test_bad_argument(kernel, change, said):
    """One changed argument, one sentence about it."""
    with pytest.raises(ValueError, match=re.escape(said)):
        kernel(**{**good(kernel), **change})


@pytest.mark.parametrize(
    "kernel", [paged_decode, paged_prefill, kv_write, gather_blocks, scatter_blocks, rejection]
)
def test_good_arguments(kernel):
    """Without the change nothing is refused: the cases above fail for the reason they name."""
    kernel(**good(kernel))


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (0.0, "k_scale is 0.0; it must be above 0"),
        (torch.ones(3), "(3,); it must be float32 of shape [1] or [num_kv_heads] = [2]"),
        (torch.ones(2).double(), "k_scale is float64"),
        (torch.ones(1, device=META), "k_scale is on meta"),
    ],
)
def test_bad_scale(scale, said):
    """Scales belong to FP8 caches, one number or one per head."""
    pages = tables()
    for name in ("key_cache", "value_cache"):
        pages[name] = torch.zeros(6, 4, 2, 16, dtype=torch.uint8)
    with pytest.raises(ValueError, match=re.escape(said)):
        paged_decode(torch.randn(2, 4, 16), **pages, k_scale=scale)
