"""Checkpoints on disk: every form gives the same model, and a wrong one is named in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from safetensors.torch import save_file
from tokenizers import Tokenizer as Backend

from minilab.engine.config import DecoderConfig
from minilab.engine.llm import LLM
from minilab.engine.load import load_llm
from minilab.engine.loader import load
from minilab.engine.sampling import SamplingParams
from minilab.engine.tiny import TINY, random_weights
from minilab.engine.tokenizer import Tokenizer
from minilab.facts.errors import InputError

HF = {
    "model_type": "llama",
    "vocab_size": 259,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "eos_token_id": [256, 258],
    "max_position_embeddings": 2048,
}
WEIGHTS = random_weights(TINY)
GREEDY = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
PROMPT = [3, 141, 59, 26, 53, 58, 97, 93, 23, 84]


def text_of(llm: LLM) -> list[int]:
    return llm.generate([PROMPT], GREEDY)[0].token_ids


WANTED = text_of(LLM(TINY, WEIGHTS))


def folder(path: Path, weights: dict[str, torch.Tensor] | None = None, **changes: Any) -> Path:
    """A checkpoint of one file."""
    (path / "config.json").write_text(json.dumps({**HF, **changes}))
    save_file(weights or WEIGHTS, path / "model.safetensors")
    return path


def sharded(path: Path) -> Path:
    """The same in two files and an index, and one more file that the index does not list."""
    folder(path)
    save_file({"stray": torch.ones(2)}, path / "model.safetensors")
    names = sorted(WEIGHTS)
    parts = {"model-1-of-2.safetensors": names[::2], "model-2-of-2.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: WEIGHTS[name] for name in part}, path / file)
    table = {name: file for file, part in parts.items() for name in part}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    return path


OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
INNER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def gguf(path: Path, skip: str = "", extra: str = "", rope: str = "none") -> Path:
    """The same as llama.cpp's converter writes it: q and k rows permuted within each head."""
    file = path / "tiny.gguf"
    writer = GGUFWriter(file, "llama")
    if skip != "embedding_length":
        writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_block_count(2)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(32)
    writer.add_context_length(2048)
    writer.add_string("llama.rope.scaling.type", rope)
    backend = Tokenizer.of_bytes().backend
    writer.add_tokenizer_model("gpt2")
    tokens = [backend.id_to_token(i) for i in range(259)]
    tokens[0] = "ab"  # a merge needs its result
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 256 + [3] * 3)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(258)
    for name, tensor in WEIGHTS.items():
        stem, kind = name.rsplit(".", 1)
        values: np.ndarray = tensor.numpy()
        if stem.endswith(("q_proj", "k_proj")):
            heads = len(values) // 32
            values = values.reshape(heads, 2, 16, 64).swapaxes(1, 2).reshape(-1, 64)
        if stem in OUTER:
            stem = OUTER[stem]
        else:
            _, _, layer, part = stem.split(".", 3)
            stem = f"blk.{layer}.{INNER[part]}"
        if stem != skip:
            writer.add_tensor(f"{stem}.{kind}", np.ascontiguousarray(values))
    if extra:
        writer.add_tensor(extra, np.ones(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.mark.parametrize("make", [folder, sharded, gguf])
def test_every_form_is_the_same_model(make: Callable[[Path], Path], tmp_path: Path) -> None:
    llm = load_llm(make(tmp_path), device="cpu")
    assert text_of(llm) == WANTED and len(set(WANTED)) > 5
    assert llm.executor.model.config.eos_token_ids in ((256, 258), (258,))
    assert llm.max_model_len == 2048


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
def test_half_checkpoints_are_computed_in_float32_on_a_cpu(stored: Any, tmp_path: Path) -> None:
    """The stored values, exactly; and in their own dtype if asked for."""
    half = {name: tensor.to(stored) for name, tensor in WEIGHTS.items()}
    folder(tmp_path, half)
    _, weights = load(tmp_path)
    assert all(tensor.dtype == torch.float32 for tensor in weights.values())
    assert all(torch.equal(weights[name], half[name].float()) for name in WEIGHTS)
    _, kept = load(tmp_path, dtype=stored)
    assert all(torch.equal(kept[name], half[name]) for name in WEIGHTS)


def test_a_folder_with_a_tokenizer_speaks(tmp_path: Path) -> None:
    folder(tmp_path)
    assert load_llm(tmp_path, device="cpu").tokenizer is None
    Tokenizer.of_bytes().backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 65}')
    llm = load_llm(tmp_path, device="cpu")
    assert llm.executor.model.config.eos_token_ids == (65, 256, 258)
    assert isinstance(llm.tokenizer and llm.tokenizer.backend, Backend)
    assert llm.generate("go", GREEDY)[0].prompt_token_ids == [103, 111]


def changed(**tensors: torch.Tensor | None) -> dict[str, torch.Tensor]:
    kept = {name: tensor for name, tensor in WEIGHTS.items() if tensors.get(name, True) is not None}
    return kept | {name: tensor for name, tensor in tensors.items() if tensor is not None}


UP = "model.layers.0.mlp.up_proj.weight"
BIAS = "model.layers.1.self_attn.o_proj.bias"


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({UP: None}, rf"no tensor {UP} \(it must have shape \[96, 64\]\)"),
        ({"lm_head.weight": None}, r"no tensor lm_head\.weight"),
        (
            {UP: torch.zeros(3, 3)},
            r"up_proj\.weight has shape \[3, 3\], config.json says",
        ),
        ({BIAS: torch.ones(64)}, rf"tensor {BIAS} has no use"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_named(tensors: Any, words: str, tmp_path: Path) -> None:
    """A bias that nobody adds would give another model's text without an error."""
    with pytest.raises(InputError, match=words):
        load(folder(tmp_path, changed(**tensors)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'; the engine runs llama, qwen2, qwen3"),
        ({"hidden_size": None}, "hidden_size is None; it must be a whole number"),
        ({"attention_bias": True}, "attention_bias is True; the engine has only False"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; the engine has only 'silu'"),
        ({"use_sliding_window": True}, "use_sliding_window is True"),
        ({"rope_scaling": {"type": "yarn", "factor": 2}}, "rope_type is 'yarn'"),
        ({"rope_scaling": {"type": "llama3", "factor": 2}}, "llama3 without low_freq_factor"),
    ],
)
def test_a_config_that_is_not_built_is_named(changes: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        load(folder(tmp_path, **changes))


def test_files_that_are_missing_or_broken_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json: cannot be read"):
        load(tmp_path)
    folder(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0notjson!")
    with pytest.raises(InputError, match=r"model\.safetensors: cannot be read"):
        load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"no \.safetensors file"):
        load(tmp_path)
    sharded(tmp_path)
    (tmp_path / "model-2-of-2.safetensors").unlink()
    with pytest.raises(InputError, match=r"model-2-of-2\.safetensors: missing, though the index"):
        load(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "../other.safetensors"}}')
    with pytest.raises(InputError, match="weight files lie beside the index"):
        load(tmp_path)
    index.write_text("{}")
    with pytest.raises(InputError, match="no weight_map"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"skip": "embedding_length"}, r"no llama\.embedding_length in it"),
        ({"skip": "token_embd"}, r"no model\.embed_tokens\.weight in it"),
        ({"skip": "blk.1.ffn_up"}, r"no tensor model\.layers\.1\.mlp\.up_proj\.weight"),
        ({"extra": "rope_freqs.weight"}, r"tensor rope_freqs\.weight has no use"),
        ({"extra": "blk.0.attn_sinks.weight"}, r"tensor blk\.0\.attn_sinks\.weight has no use"),
        ({"rope": "linear"}, "rope scaling is not built for GGUF"),
    ],
)
def test_a_gguf_file_that_does_not_fit_is_named(changes: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        load(gguf(tmp_path, **changes))


def test_a_file_that_is_no_gguf_is_named(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"not a model")
    with pytest.raises(InputError, match=r"x\.gguf: not a GGUF file"):
        load(file)
    with pytest.raises(InputError, match=r"x\.bin: not a folder"):
        load(tmp_path / "x.bin")


def test_qwen_shapes_are_checked_too() -> None:
    """Biases of Qwen2 and norms of Qwen3 are part of the checkpoint."""
    from minilab.engine.weight_check import check_weights

    for flag, name in (("qkv_bias", "k_proj.bias"), ("qk_norm", "q_norm.weight")):
        config: DecoderConfig = replace(TINY, **{flag: True})
        with pytest.raises(InputError, match=rf"no tensor model\.layers\.0\.self_attn\.{name}"):
            check_weights(config, WEIGHTS)
        check_weights(config, random_weights(config))
