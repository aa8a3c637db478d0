"""DecoderConfig: what the engine must know of a Llama-like model, read from its config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minilab.facts.errors import InputError

FAMILIES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True)
class DecoderConfig:
    """Shapes and constants of a decoder-only transformer (Llama, Qwen2, Qwen3).

    Attributes:
        qkv_bias: the query, key and value projections have a bias (Qwen2).
        qk_norm: queries and keys are normalised per head before the rotation (Qwen3).
        interleaved: rotary pairs are (2i, 2i+1), as in GGUF files, and not (i, i + head_dim / 2).
        rope_scaling: Llama 3's frequency scaling: factor, low_freq_factor, high_freq_factor,
            original_max_position_embeddings; ``None`` without.
        eos_token_ids: tokens that end a text.
        max_position_embeddings: longest context the model was made for; 0 if not said.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    qkv_bias: bool = False
    qk_norm: bool = False
    interleaved: bool = False
    rope_scaling: tuple[float, float, float, float] | None = None
    eos_token_ids: tuple[int, ...] = ()
    max_position_embeddings: int = 0

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> DecoderConfig:
        """From the fields of a Hugging Face config.json.

        Raises:
            InputError: another architecture, a part of one that is not built here, or a field that
                is missing.
        """
        family = config.get("model_type")
        if family not in FAMILIES:
            raise InputError(
                f"model_type is {family!r}; the engine runs {', '.join(FAMILIES)}; use one of these"
            )
        _refuse_unbuilt(config)
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        heads = whole(config, "num_attention_heads")
        hidden = whole(config, "hidden_size")
        end = config.get("eos_token_id")
        ends = end if isinstance(end, list) else [end]
        return cls(
            vocab_size=whole(config, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=whole(config, "intermediate_size"),
            num_layers=whole(config, "num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=config.get("head_dim") or (128 if family == "qwen3" else hidden // heads),
            rms_norm_eps=config.get("rms_norm_eps", 1e-6),
            rope_theta=rope.get("rope_theta") or config.get("rope_theta") or 10_000.0,
            tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=family == "qwen2",
            qk_norm=family == "qwen3",
            rope_scaling=_llama3(rope),
            eos_token_ids=tuple(token for token in ends if token is not None),
            max_position_embeddings=config.get("max_position_embeddings") or 0,
        )


def whole(config: Mapping[str, Any], name: str) -> int:
    """A field that must be a whole number above 0, or an InputError that names it."""
    value = config.get(name)
    if not isinstance(value, int) or value < 1:
        raise InputError(f"config.json: {name} is {value!r}; it must be a whole number above 0")
    return value


def _refuse_unbuilt(config: Mapping[str, Any]) -> None:
    """Options of these families that would change the text if they were passed over."""
    rope = config.get("rope_parameters") or {}
    unbuilt = {
        "hidden_act": (config.get("hidden_act") or "silu", "silu"),
        "attention_bias": (bool(config.get("attention_bias")), False),
        "mlp_bias": (bool(config.get("mlp_bias")), False),
        "use_sliding_window": (bool(config.get("use_sliding_window")), False),
        "partial_rotary_factor": (rope.get("partial_rotary_factor") or 1.0, 1.0),
    }
    for name, (value, built) in unbuilt.items():
        if value != built:
            raise InputError(f"config.json: {name} is {value!r}; the engine has only {built!r}")


def _llama3(rope: Mapping[str, Any]) -> tuple[float, float, float, float] | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind != "llama3":
        raise InputError(f"rope_type is {kind!r}; the engine knows default and llama3")
    names = (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    )
    for name in names:
        if name not in rope:
            raise InputError(f"config.json: rope_type llama3 without {name}; it needs all four")
    factor, low, high, length = (float(rope[name]) for name in names)
    return factor, low, high, length
