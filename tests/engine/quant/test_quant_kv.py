"""KV formats: codecs against exhaustive tables, scales, files, and the engine's own cache."""

from __future__ import annotations

import pytest
import torch

from minilab.core.config import SchedulerConfig
from minilab.engine.llm import LLM
from minilab.engine.quant.calibrate import kv_statistics
from minilab.engine.quant.codecs import CODECS, codec, pack_nibbles, unpack_nibbles
from minilab.engine.quant.kv_cache import QuantisedKV, bytes_per_token
from minilab.engine.quant.kv_format import KVFormat
from minilab.engine.quant.passes import Pass
from minilab.engine.quant.scales import FILE, KVScales, KVStatistics, vector_scale
from minilab.engine.sampling import SamplingParams
from minilab.engine.tiny import TINY, random_weights
from minilab.facts.errors import InputError

TEXT = [int(x) for x in torch.randint(0, 250, (96,), generator=torch.Generator().manual_seed(1))]


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return random_weights(TINY, 3)


@pytest.mark.parametrize("name", sorted(CODECS))
def test_codes_are_nearest_and_stable(name: str) -> None:
    """Every value a format has must come back exactly; every other must go to a neighbour."""
    kind = codec(name)
    codes = torch.arange(256, dtype=torch.uint8)
    values = kind.decode(codes)
    values = values[values.isfinite() & (values.abs() <= kind.largest)].unique()
    assert torch.equal(kind.decode(kind.encode(values)), values)
    drawn = torch.randn(4096, generator=torch.Generator().manual_seed(0)) * kind.largest / 3
    back = kind.decode(kind.encode(drawn))
    best = (drawn[:, None] - values[None, :]).abs().amin(1)
    assert torch.allclose((drawn - back).abs(), best, rtol=0, atol=kind.largest * 1e-7)


@pytest.mark.parametrize("name", sorted(CODECS))
def test_too_large_saturates(name: str) -> None:
    """An infinity in the cache would poison every later token of the sequence."""
    kind = codec(name)
    far = torch.tensor([10 * kind.largest, -10 * kind.largest, float("inf")])
    assert kind.decode(kind.encode(far)).tolist() == [kind.largest, -kind.largest, kind.largest]


def test_e5m2_and_e4m3_match_torch() -> None:
    drawn = torch.randn(10_000, generator=torch.Generator().manual_seed(0)) * 20
    for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
        kind = codec(name)
        assert torch.equal(kind.decode(kind.encode(drawn)), drawn.to(dtype).float())


def test_nibbles() -> None:
    codes = codec("int4").encode(torch.arange(-7, 9).float().reshape(2, 8))
    packed = pack_nibbles(codes)
    assert packed.shape == (2, 4) and torch.equal(unpack_nibbles(packed), codes)
    with pytest.raises(InputError, match="make it even"):
        pack_nibbles(codes[:, :3])


def test_scales_by_granularity_and_percentile() -> None:
    """One outlier head must not cost the others their precision, one outlier number not its head.

    K [1000 tokens, 2 heads, 4]: head 1 is ten times larger, and one number of it 1,000.
    """
    seen = KVStatistics(1)
    keys = torch.randn(1000, 2, 4, generator=torch.Generator().manual_seed(0))
    keys[:, 1] *= 10
    keys[5, 1, 2] = 1000.0
    seen.add(0, keys, keys[:, :, :])
    tensor, head = seen.scales("int8"), seen.scales("int8", "head")
    assert tensor.keys.shape == (1, 1) and head.keys.shape == (1, 2)
    assert float(tensor.keys[0, 0]) == pytest.approx(1000 / 127)
    assert float(head.keys[0, 0]) < 0.01 * float(tensor.keys[0, 0])
    robust = seen.scales("int8", "head", 99.9)
    assert float(robust.keys[0, 1]) < 0.1 * float(head.keys[0, 1])
    with pytest.raises(InputError, match="token-head"):
        seen.scales("int8", "token-head")
    with pytest.raises(InputError, match="percentile is 20"):
        seen.scales("int8", "head", 20)
    with pytest.raises(InputError, match="no text"):
        KVStatistics(1).scales("int8")
    vectors = vector_scale(keys, codec("int8"))
    assert vectors.shape == (1000, 2, 1)


def test_scales_file(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Names are those of vLLM's loader; a layer without a scale is not silently 1.0."""
    from safetensors.torch import load_file, save_file

    made = KVScales("e4m3", torch.rand(2, 1) + 0.1, torch.rand(2, 1) + 0.1, "by hand")
    path = made.save(tmp_path)
    back = KVScales.load(tmp_path, 2)
    assert torch.equal(back.keys, made.keys) and torch.equal(back.values, made.values)
    assert (back.format, back.how) == ("e4m3", "by hand") and path.name == FILE
    tensors = load_file(path)
    assert "model.layers.1.self_attn.v_scale" in tensors
    with pytest.raises(InputError, match=r"no scale model.layers.2.self_attn.k_scale"):
        KVScales.load(tmp_path, 3)
    save_file({k: v * 0 for k, v in tensors.items()}, path)
    with pytest.raises(InputError, match="not above 0"):
        KVScales.load(tmp_path, 2)
    with pytest.raises(InputError, match="cannot be read"):
        KVScales.load(tmp_path / "missing", 2)


def formats(weights: dict[str, torch.Tensor]) -> dict[str, KVFormat]:
    seen = kv_statistics(TINY, weights, TEXT)
    return {
        "e4m3": KVFormat("e4m3", seen.scales("e4m3")),
        "e4m3-head": KVFormat("e4m3", seen.scales("e4m3", "head"), "head"),
        "e4m3-token-head": KVFormat("e4m3", granularity="token-head"),
        "e5m2": KVFormat("e5m2", KVScales.constant("e5m2", 2)),
        "int8-head": KVFormat("int8", seen.scales("int8", "head"), "head"),
        "int4-token-head": KVFormat("int4", granularity="token-head"),
    }


NAMES = ("e4m3", "e4m3-head", "e4m3-token-head", "e5m2", "int8-head", "int4-token-head")


@pytest.mark.parametrize("name", NAMES)
def test_the_engine_reads_what_the_table_rounds(
    name: str, weights: dict[str, torch.Tensor]
) -> None:
    """Greedy tokens of the paged engine, its cache in the format, are those of the plain pass with
    the same rounding: otherwise the accuracy table speaks of another cache than the one that runs.

    Three prompts of different lengths, so that pages, chunks and decodes all take part.
    """
    form = formats(weights)[name]
    kv = QuantisedKV(form)
    llm = LLM(TINY, weights, SchedulerConfig(num_blocks=40), kv=kv)
    prompts = [TEXT[:37], TEXT[40:45], TEXT[50:67]]
    outputs = llm.generate(prompts, SamplingParams(temperature=0, max_tokens=6, ignore_eos=True))
    model = Pass(TINY, weights, kv_hook=form.stored)
    for prompt, output in zip(prompts, outputs, strict=True):
        ids = prompt + output.token_ids
        guesses = model.logits(ids[:-1])[len(prompt) - 1 :].argmax(1).tolist()
        assert guesses == output.token_ids
    assert llm.executor.model.kv_cache.dtype == torch.uint8
    plain = LLM(TINY, weights, SchedulerConfig(num_blocks=40)).executor.model.kv_cache
    share = 8 if name.startswith("int4") else 4
    assert llm.executor.model.kv_cache.nbytes * share == plain.nbytes


def test_plain_pass_is_the_engine(weights: dict[str, torch.Tensor]) -> None:
    """Two writings of one model: a difference would be charged to quantisation."""
    llm = LLM(TINY, weights, SchedulerConfig(num_blocks=40))
    output = llm.generate(
        [TEXT[:40]], SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    )[0]
    logits = Pass(TINY, weights).logits(TEXT[:40] + output.token_ids)
    assert logits[39:-1].argmax(1).tolist() == output.token_ids


def test_backends_are_named_and_native_is_refused_without_hardware(
    weights: dict[str, torch.Tensor],
) -> None:
    made = formats(weights)
    assert QuantisedKV(made["e4m3"]).backend == "kernels, portable FP8"
    assert QuantisedKV(made["int8-head"]).backend == "plain torch"
    native = QuantisedKV(made["e4m3"], native=True)
    with pytest.raises(InputError, match=r"capability 8.9, cpu is no GPU; use the portable"):
        LLM(TINY, weights, SchedulerConfig(num_blocks=4), kv=native)
    with pytest.raises(InputError, match="native FP8 is for e4m3"):
        QuantisedKV(made["int8-head"], native=True)


def test_bytes_and_bad_formats(weights: dict[str, torch.Tensor]) -> None:
    made = formats(weights)
    assert bytes_per_token(KVFormat("bf16"), TINY) == 2 * 2 * 1 * 32 * 2
    assert bytes_per_token(made["e4m3"], TINY) == 128
    assert bytes_per_token(made["e4m3-token-head"], TINY) == 128 + 2 * 2 * 4
    with pytest.raises(InputError, match="needs scales; calibrate"):
        KVFormat("e4m3")
    with pytest.raises(InputError, match="scales are for int8, the cache is e4m3"):
        KVFormat("e4m3", made["int8-head"].scales)
    with pytest.raises(InputError, match="unknown number format 'fp8'"):
        KVFormat("fp8", granularity="token-head")
    with pytest.raises(InputError, match="scale is 0"):
        KVScales.constant("e4m3", 2, 0.0)
