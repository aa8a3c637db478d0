"""Lab 05: its references are the package's own."""

from __future__ import annotations

import random

import pytest

from minilab.facts.kv_speed import Line, break_even
from minilab.facts.models import get_model
from minilab.lab.exercises.lab05.codec import encode, value_of
from minilab.lab.exercises.lab05.tokens import kv_tokens
from minilab.lab.exercises.lab05.worth import worth_from
from minilab.lab.quant_maps import kv_map, kv_side, reads_fp8, weight_map


def test_tokens_are_the_calculators() -> None:
    """A lab that teaches another rule than the calculator uses would be caught by no check."""
    for name in ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3"):
        m = get_model(name)
        shape = (m.layers, m.kv_heads, m.head_dim, m.kv_lora + m.rope_dim)
        for gpus in (1, 4, 8):
            room = [20 * 2**30] * gpus
            per_token = m.kv_bytes_per_token("fp8", gpus)
            assert kv_tokens(shape, 1, room, 16) == 20 * 2**30 // (per_token * 16) * 16


def test_break_even_is_the_packages() -> None:
    rng = random.Random(0)
    for _ in range(50):
        plain = (rng.uniform(1, 9), rng.uniform(1e-6, 1e-4))
        other = (rng.uniform(1, 9), rng.uniform(1e-6, 1e-4))
        mine, theirs = worth_from(plain, other), break_even(Line(*plain), Line(*other))
        assert (mine is None) == (theirs == float("inf"))
        assert mine is None or mine == theirs


def test_codec_is_the_kernels() -> None:
    """Bit for bit what kv_write stores."""
    torch = pytest.importorskip("torch")
    from minilab.kernels import e4m3

    rng = random.Random(1)
    drawn = [rng.gauss(0, 1) * 10 ** rng.uniform(-4, 3) for _ in range(2000)] + [0.0, -448.0, 1e9]
    drawn = torch.tensor(drawn, dtype=torch.float32).tolist()
    assert e4m3.encode(torch.tensor(drawn)).tolist() == [encode(x) for x in drawn]
    codes = torch.arange(127, dtype=torch.uint8)
    assert e4m3.decode(codes).tolist() == [value_of(c) for c in range(127)]


def test_maps_say_what_was_published() -> None:
    """A100: capacity alone can win (vllm#42058), so never for one user; H100: speed wins as well,
    from a context on; INT4 wins small batches and loses large ones."""
    a100, h100 = kv_map("a100-80g"), kv_map("h100")
    assert not reads_fp8("a100-80g") and reads_fp8("l4")
    assert set(a100.verdicts[0]) == {"no difference"}
    assert a100.counts()["wins"] >= 2 and a100.counts()["loses"] == 0
    assert h100.verdicts[0][0] == "no difference" and h100.verdicts[0][-1] == "wins"
    assert h100.counts()["wins"] > 2 * a100.counts()["wins"]
    weights = weight_map("h100")
    for row in weights.verdicts:
        assert row[0] == "wins" and row[-1] == "loses"
    assert kv_side("l4", "bf16")(65_536, 1) is None
