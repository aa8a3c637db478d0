"""Loader: checkpoints on disk as the tensors and the config that the model needs.

Two forms: a folder with config.json and safetensors files (nothing is ever unpickled), and a GGUF
file, whose quantised blocks are unpacked to the wanted dtype.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from minilab.engine.config import DecoderConfig
from minilab.facts.errors import InputError
from minilab.facts.user_input import read_json

Checkpoint = tuple[DecoderConfig, dict[str, torch.Tensor]]


def auto_dtype(device: torch.device) -> torch.dtype:
    """fp32 on a CPU; on a GPU bf16, or fp16 below capability 8.0, which has no bf16."""
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16


def load(
    path: str | Path, device: str | torch.device = "cpu", dtype: torch.dtype | None = None
) -> Checkpoint:
    """The checkpoint at ``path``: a folder, or a .gguf file.

    Raises:
        InputError: nothing there that can be read.
    """
    place = torch.device(device)
    wanted = dtype or auto_dtype(place)
    path = Path(path)
    if path.is_dir():
        return _folder(path, place, wanted)
    if path.suffix == ".gguf" and path.is_file():
        return _gguf(path, place, wanted)
    raise InputError(f"{path}: not a folder with config.json, and not a .gguf file")


def _folder(path: Path, device: torch.device, dtype: torch.dtype) -> Checkpoint:
    from safetensors.torch import load_file

    config = DecoderConfig.from_hf(read_json(path / "config.json"))
    index = path / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    else:
        names = sorted(file.name for file in path.glob("*.safetensors"))
    if not names:
        raise InputError(f"{path}: no .safetensors file; the engine reads no other weights")
    weights: dict[str, torch.Tensor] = {}
    for name in names:
        try:
            part = load_file(path / name, device=str(device))
        except (OSError, ValueError, RuntimeError) as error:
            raise InputError(f"{path / name}: cannot be read ({error})") from None
        weights |= {key: tensor.to(dtype) for key, tensor in part.items()}
    return config, weights


_GGUF_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_GGUF_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def read_gguf(path: Path) -> tuple[Any, dict[str, Any]]:
    """The reader of a GGUF file, and its metadata by name."""
    from gguf import GGUFReader

    try:
        reader: Any = GGUFReader(path)
        return reader, {name: field.contents() for name, field in reader.fields.items()}
    except (OSError, ValueError, IndexError) as error:
        raise InputError(f"{path}: not a GGUF file ({error})") from None


def _gguf(path: Path, device: torch.device, dtype: torch.dtype) -> Checkpoint:
    from gguf.quants import dequantize

    reader, fields = read_gguf(path)
    family = fields.get("general.architecture")
    if family != "llama":
        raise InputError(f"{path}: architecture {family!r}; the GGUF loader reads llama")
    weights: dict[str, torch.Tensor] = {}
    for tensor in reader.tensors:
        name = _hf_name(tensor.name)
        values = dequantize(tensor.data, tensor.tensor_type)
        weights[name] = torch.from_numpy(values.copy()).to(device=device, dtype=dtype)
    heads = int(fields["llama.attention.head_count"])
    hidden = int(fields["llama.embedding_length"])
    end = fields.get("tokenizer.ggml.eos_token_id")
    config = DecoderConfig(
        vocab_size=weights["model.embed_tokens.weight"].shape[0],
        hidden_size=hidden,
        intermediate_size=int(fields["llama.feed_forward_length"]),
        num_layers=int(fields["llama.block_count"]),
        num_heads=heads,
        num_kv_heads=int(fields.get("llama.attention.head_count_kv", heads)),
        head_dim=int(fields.get("llama.rope.dimension_count", hidden // heads)),
        rms_norm_eps=float(fields["llama.attention.layer_norm_rms_epsilon"]),
        rope_theta=float(fields.get("llama.rope.freq_base", 10_000.0)),
        tie_word_embeddings="lm_head.weight" not in weights,
        interleaved=True,  # llama.cpp permutes q and k so that rotary pairs lie side by side
        eos_token_ids=() if end is None else (int(end),),
        max_position_embeddings=int(fields.get("llama.context_length", 0)),
    )
    return config, weights


def _hf_name(name: str) -> str:
    """A GGUF tensor's name as Hugging Face checkpoints have it."""
    stem, kind = name.rsplit(".", 1)
    if stem.startswith("blk."):
        _, layer, part = stem.split(".", 2)
        return f"model.layers.{layer}.{_GGUF_NAMES[part]}.{kind}"
    return f"{_GGUF_OUTER[stem]}.{kind}"
