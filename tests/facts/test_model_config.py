"""Reading a public config.json into a ModelSpec, and finding a model by name or file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minilab.facts.errors import InputError
from minilab.facts.models import ModelSpec, get_model, models

TINY: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 6,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "intermediate_size": 160,
    "vocab_size": 100,
}


def read(**changes: Any) -> ModelSpec:
    return ModelSpec.from_config({**TINY, **changes}, "tiny")


def test_heads_default_as_in_transformers() -> None:
    """MHA where KV heads are not named, MQA by flag, head_dim from the hidden size."""
    assert read().kv_bytes_per_token() == 2 * 6 * 8 * 8 * 2
    assert read(multi_query=True).kv_bytes_per_token() == 2 * 6 * 1 * 8 * 2
    assert read(num_key_value_heads=2, head_dim=16).kv_bytes_per_token() == 2 * 6 * 2 * 16 * 2
    assert not read().tied and read(tie_word_embeddings=True).tied


def test_nested_language_model_is_found() -> None:
    nested = {"model_type": "x_vl", "text_config": TINY, "tie_word_embeddings": True}
    assert ModelSpec.from_config(nested, "tiny") == read(tie_word_embeddings=True)


@pytest.mark.parametrize(
    ("changes", "full", "windowed"),
    [
        ({"sliding_window": 128}, 0, 6),
        ({"sliding_window": None}, 6, 0),
        ({"model_type": "qwen2", "sliding_window": 128, "use_sliding_window": False}, 6, 0),
        ({"model_type": "qwen2", "sliding_window": 128, "use_sliding_window": True,
          "max_window_layers": 4}, 4, 2),
        ({"model_type": "gpt_oss", "sliding_window": 128}, 3, 3),
        ({"model_type": "gemma2", "sliding_window": 128}, 3, 3),
        ({"model_type": "gemma3_text", "sliding_window": 128}, 1, 5),
        ({"model_type": "gemma3_text", "sliding_window": 128, "sliding_window_pattern": 3}, 2, 4),
        ({"model_type": "llama4_text", "attention_chunk_size": 128}, 1, 5),
        ({"layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 4,
          "sliding_window": 128}, 2, 4),
    ],
)  # fmt: skip
def test_window_patterns(changes: dict[str, Any], full: int, windowed: int) -> None:
    """Each family says differently which layers are windowed; a wrong split is a wrong capacity."""
    model = read(**changes)
    assert (model.full_layers, model.window_layers) == (full, windowed)
    assert model.window == (128 if windowed else 0)


@pytest.mark.parametrize(
    ("changes", "moe_layers"),
    [
        ({"first_k_dense_replace": 2}, 4),
        ({"decoder_sparse_step": 2}, 3),
        ({"mlp_only_layers": [0, 5]}, 4),
        ({"moe_layer_freq": [0, 1, 1, 1, 1, 0]}, 4),
        ({"interleave_moe_layer_step": 2}, 3),
        ({"mlp_layer_types": ["dense"] * 5 + ["sparse"]}, 1),
        ({}, 6),
    ],
)
def test_which_layers_have_experts(changes: dict[str, Any], moe_layers: int) -> None:
    moe = {"num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    model = read(**moe, **changes)
    assert model.moe_layers == moe_layers
    assert model.routed_params == moe_layers * 16 * 3 * 64 * 32
    assert model.params_total - model.params_active == moe_layers * 14 * 3 * 64 * 32


@pytest.mark.parametrize(
    ("quant", "dtypes"),
    [
        (None, ("bf16", "bf16")),
        ({"quant_method": "fp8"}, ("fp8", "fp8")),
        ({"quant_algo": "FP8"}, ("fp8", "fp8")),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, ("int4", "int4")),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
         ("bf16", "mxfp4")),
        ({"quant_method": "someone's own"}, ("bf16", "bf16")),
    ],
)  # fmt: skip
def test_formats_of_published_weights(quant: Any, dtypes: tuple[str, str]) -> None:
    assert read(quantization_config=quant).weight_dtypes() == dtypes
    assert read(quantization_config=quant).weight_dtypes("fp8") == ("fp8", "fp8")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_hidden_layers": None}, "tiny: no 'num_hidden_layers'"),
        ({"hidden_size": "64"}, "hidden_size is '64'; give a whole number"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"num_attention_heads": 0}, "must be 1 or more"),
        ({"layer_types": ["full_attention"]}, "lists 1 layers, num_hidden_layers is 6"),
        ({"layer_types": ["sliding_attention"] * 6}, "no 'sliding_window'"),
        ({"kv_lora_rank": 512}, "no 'qk_rope_head_dim'"),
        ({"num_experts": 8}, "no 'num_experts_per_tok'"),
    ],
)
def test_broken_configs_are_refused_in_one_line(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        read(**changes)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_config(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("[1]")
    with pytest.raises(InputError, match=r"config.json: expected a JSON object"):
        ModelSpec.from_file(file)


def test_lookup_by_name_hub_id_and_file(tmp_path: Path) -> None:
    assert get_model("Meta-Llama/Meta-Llama-3.1-8B") is get_model(" Llama-3.1-8B ")
    with pytest.raises(InputError, match="unknown model 'lama-3-8b'; did you mean llama-3-8b") as e:
        get_model("lama-3-8b")
    assert "\n" not in str(e.value)
    config = {**TINY, "num_hidden_layers": 3}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    assert get_model("mine", file).name == "mine"
    assert get_model("mine", config) == get_model("mine", file)
    models().clear()
    assert models(), "a caller's copy must not empty the table"
