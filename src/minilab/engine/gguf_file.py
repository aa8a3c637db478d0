"""GgufFile: a model in llama.cpp's one-file format, its quantised blocks unpacked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from minilab.engine.config import DecoderConfig
from minilab.facts.errors import InputError

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


class GgufFile:
    """An open GGUF file. Opening one takes seconds: its metadata holds the whole vocabulary.

    Attributes:
        path: where it lies.
        fields: the metadata by name.

    Raises:
        InputError: not a GGUF file.
    """

    def __init__(self, path: Path) -> None:
        from gguf import GGUFReader

        self.path = path
        try:
            self._reader: Any = GGUFReader(path)
            self.fields: dict[str, Any] = {
                name: field.contents() for name, field in self._reader.fields.items()
            }
        except (OSError, ValueError, IndexError) as error:
            raise InputError(f"{path}: not a GGUF file ({error})") from None

    def load(
        self, device: torch.device, dtype: torch.dtype
    ) -> tuple[DecoderConfig, dict[str, torch.Tensor]]:
        """Config and weights, under the names of Hugging Face checkpoints.

        Raises:
            InputError: a model other than a plain Llama, or a file that lacks a part.
        """
        from gguf.quants import dequantize

        family = self.fields.get("general.architecture")
        if family != "llama":
            raise InputError(
                f"{self.path}: architecture {family!r}; of GGUF files the engine reads llama"
            )
        if self.fields.get("llama.rope.scaling.type", "none") != "none":
            raise InputError(
                f"{self.path}: rope scaling is not built for GGUF files; use safetensors"
            )
        weights: dict[str, torch.Tensor] = {}
        for tensor in self._reader.tensors:
            name = _hf_name(tensor.name, self.path)
            values = dequantize(tensor.data, tensor.tensor_type)
            weights[name] = torch.from_numpy(values.copy()).to(device=device, dtype=dtype)
        try:
            return _config(self.fields, weights), weights
        except KeyError as error:
            raise InputError(
                f"{self.path}: no {error.args[0]} in it; the file is incomplete"
            ) from None


def _config(fields: dict[str, Any], weights: dict[str, torch.Tensor]) -> DecoderConfig:
    heads = int(fields["llama.attention.head_count"])
    hidden = int(fields["llama.embedding_length"])
    end = fields.get("tokenizer.ggml.eos_token_id")
    return DecoderConfig(
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


def _hf_name(name: str, path: Path) -> str:
    """A GGUF tensor's name as Hugging Face checkpoints have it."""
    stem, _, kind = name.rpartition(".")
    block = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if block and block[2] in _GGUF_NAMES:
        return f"model.layers.{block[1]}.{_GGUF_NAMES[block[2]]}.{kind}"
    if stem in _GGUF_OUTER:
        return f"{_GGUF_OUTER[stem]}.{kind}"
    raise InputError(f"{path}: tensor {name} has no use in this engine; the model is another one")
