"""vLLM's block pool for models whose layers differ, against what it logged for them."""

from __future__ import annotations

import pytest

from minilab.facts.errors import InputError
from minilab.facts.kv_pool import kv_pool
from minilab.facts.models import get_model, models

GIB = 2**30


def shape(name: str, **more: int) -> tuple[int, int, int]:
    pool = kv_pool(get_model(name), **more)  # type: ignore[arg-type]
    assert pool is not None
    return pool.tables, pool.layers_per_group, pool.padding_layers


@pytest.mark.parametrize(
    ("name", "tables", "layers", "padding"),
    [
        ("llama-3.1-8b", 1, 32, 0),
        ("gpt-oss-20b", 2, 12, 0),
        ("gemma-3-27b", 7, 10, 8),  # 52 windowed layers in groups of 10
        ("gemma-4-31b", 6, 10, 0),
        ("qwen3.5-27b", 4, 16, 0),
        ("kimi-k3", 4, 24, 3),
    ],
)
def test_groups(name: str, tables: int, layers: int, padding: int) -> None:
    assert shape(name) == (tables, layers, padding)


def test_a_draft_layer_pads_one_group_rather_than_halving_them() -> None:
    """gpt-oss-20b with an EAGLE layer: 13 full and 12 windowed become two groups of 13."""
    assert shape("gpt-oss-20b", extra_full=1) == (2, 13, 1)


def test_attention_block_that_holds_a_state() -> None:
    """vLLM logged "Setting attention block size to 784 tokens" for Qwen3.6-27B (shape of 3.5)."""
    pool = kv_pool(get_model("qwen3.5-27b"))
    assert pool is not None and pool.block_size == 784
    fp8 = kv_pool(get_model("qwen3.5-27b"), "fp8")
    assert fp8 is not None and fp8.block_size == 1568
    state = get_model("qwen3.5-27b").state_bytes() / 48
    assert state <= pool.page_bytes < state + 16 * 4096


def test_smaller_pages_hold_more_tokens() -> None:
    """Gemma 4: a full layer keeps 4 x 512 numbers, a windowed one 16 x 256: 32 tokens to 16."""
    pool = kv_pool(get_model("gemma-4-31b"))
    assert pool is not None
    sizes = {group.kind: group.block_size for group in pool.groups}
    assert sizes == {"full": 32, "window": 16}
    assert pool.block_bytes == 10 * 2 * 16 * 16 * 256 * 2


def test_printed_tokens_old_and_group_aware() -> None:
    """gpt-oss: the old print equals all layers full, the newer one nearly doubles at long lengths.

    The difference says nothing about memory: it is one pool, counted in two ways (vllm#51041).
    """
    pool = kv_pool(get_model("gpt-oss-20b"))
    assert pool is not None
    avail = 12 * GIB
    assert pool.printed_tokens(avail) == 32 * 8192
    long = pool.concurrency(avail, 131_072, 2048) * 131_072
    assert 1.9 < long / (32 * 8192) < 2.0
    short = pool.concurrency(avail, 2048, 8192) * 2048
    assert 0.95 < short / (32 * 8192) < 1.0  # the chunk's reserve eats the windows' gain


def test_what_is_not_modelled_says_so() -> None:
    assert kv_pool(get_model("deepseek-v4-flash")) is None
    with pytest.raises(InputError, match="block_size is 0"):
        kv_pool(get_model("qwen3-8b"), block_size=0)


@pytest.mark.parametrize("name", sorted(models()))
def test_a_block_holds_what_its_groups_need(name: str) -> None:
    """No group's layers may need more bytes than a block has; padding is what is left over."""
    model = get_model(name)
    pool = kv_pool(model)
    if pool is None:
        assert model.strides
        return
    per_token = {bool(g.window): g.entry_bytes("bf16", 1) for g in model.kv_groups}
    for group in pool.groups:
        if not group.state:
            assert group.block_size * per_token[bool(group.window)] <= pool.page_bytes
        assert 0 <= group.count * pool.layers_per_group - group.layers < pool.layers_per_group


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("Llama-2-7b-chat-hf", "llama-2-7b"),
    ],
)
def test_tuned_variants_have_the_shape_of_their_model(asked: str, name: str) -> None:
    """Start-up logs name the variant; its cache is that of the base model."""
    assert get_model(asked).name == name
