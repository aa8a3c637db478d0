"""Reading a Hugging Face config.json into the fields of ModelSpec.

Model families name the same thing differently, nest it, or leave it out because their code knows
it; all of that ends here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minilab.facts.errors import InputError

_UNGATED = ("opt", "gpt2", "gpt_neox", "gpt_bigcode", "falcon", "bloom", "phi")


def read_config(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """config.json (a dict) -> keyword arguments of ModelSpec, ``name`` left out.

    Reads the language model of a nested (VL) config. ``where`` names the file in errors.
    Raises InputError when a size is missing or is no whole number.
    """
    inner = config.get("text_config")
    c: dict[str, Any] = {**config, **inner} if isinstance(inner, Mapping) else dict(config)
    kind = str(c.get("model_type", ""))

    def get(*names: str, default: int | None = None) -> int:
        for key in names:
            if c.get(key) is not None:
                value = c[key]
                if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                    raise InputError(f"{where}: {key} is {value!r}; give a whole number, 0 or more")
                return value
        if default is None:
            raise InputError(f"{where}: no {names[0]!r}; give the model's own config.json")
        return default

    layers = get("num_hidden_layers", "n_layer")
    hidden = get("hidden_size", "n_embd")
    heads = get("num_attention_heads", "n_head")
    if min(layers, hidden, heads) < 1:
        raise InputError(f"{where}: layers, hidden size and heads must be 1 or more")
    out: dict[str, Any] = {"layers": layers, "hidden": hidden, "heads": heads}
    # Gemma 3 checkpoints leave the vocabulary to their config class.
    out["vocab"] = get("vocab_size", default=262208 if kind.startswith("gemma3") else None)
    out["max_len"] = get("max_position_embeddings", "n_positions", default=0)
    tied = config.get("tie_word_embeddings", c.get("tie_word_embeddings"))
    out["tied"] = kind.startswith(("gemma", "opt", "gpt2")) if tied is None else bool(tied)
    out["attention_bias"] = bool(c.get("attention_bias", c.get("qkv_bias", kind == "qwen2")))
    if kind == "opt":
        out["positions"] = out["max_len"] + 2
        out["attention_bias"] = True
    out |= _read_attention(c, kind, get, out, where)
    out |= _read_ffn(c, kind, get, layers)
    out |= _read_dtypes(c)
    return out


def _read_attention(
    c: Mapping[str, Any], kind: str, get: Any, base: Mapping[str, int], where: str
) -> dict[str, Any]:
    layers, heads = base["layers"], base["heads"]
    kinds = _layer_kinds(c, kind, layers)
    if len(kinds) != layers:
        raise InputError(
            f"{where}: layer_types lists {len(kinds)} layers, num_hidden_layers is "
            f"{layers}; make them agree"
        )
    out: dict[str, Any] = {key + "_layers": kinds.count(key) for key in ("full", "linear")}
    out["window_layers"] = kinds.count("window")
    if out["window_layers"]:
        out["window"] = get("sliding_window", "attention_chunk_size")
    if c.get("compress_ratios"):  # DeepSeek-V4: a window in every layer, and a compressed past
        latent = get("head_dim")
        rope = get("qk_rope_head_dim")
        ratios = [r for r in c["compress_ratios"][:layers] if r]
        strides = tuple((r, ratios.count(r)) for r in sorted(set(ratios)))
        return {"full_layers": 0, "window_layers": layers, "window": get("sliding_window"),
                "strides": strides, "head_dim": latent, "kv_lora": latent - rope, "rope_dim": rope,
                "q_lora": get("q_lora_rank"), "o_lora": get("o_lora_rank"),
                "o_groups": get("o_groups")}  # fmt: skip
    if c.get("kv_lora_rank"):
        out |= {"kv_lora": get("kv_lora_rank"), "rope_dim": get("qk_rope_head_dim"),
                "nope_dim": get("qk_nope_head_dim"), "v_dim": get("v_head_dim"),
                "q_lora": get("q_lora_rank", default=0)}  # fmt: skip
    else:
        default = 1 if c.get("multi_query") else heads
        out["head_dim"] = get("head_dim", default=base["hidden"] // heads)
        out["kv_heads"] = get("num_key_value_heads", "num_kv_heads", default=default)
        out["output_gate"] = bool(c.get("attn_output_gate"))
    if c.get("global_head_dim"):  # Gemma 4: the full layers have their own shape
        out |= {"window_kv_heads": out["kv_heads"], "window_head_dim": out["head_dim"]}
        out["head_dim"] = get("global_head_dim")
        out["kv_heads"] = get("num_global_key_value_heads", default=out["kv_heads"])
        out["k_eq_v"] = bool(c.get("attention_k_eq_v"))
    if c.get("index_n_heads"):
        indexers = c.get("indexer_types") or ["full"] * layers
        out |= {"index_heads": get("index_n_heads"), "index_dim": get("index_head_dim"),
                "index_layers": indexers.count("full")}  # fmt: skip
    if out["linear_layers"]:
        inner = c.get("linear_attn_config") or {}
        both = inner.get("num_heads", 0)
        out["linear_k_heads"] = both or get("linear_num_key_heads")
        out["linear_v_heads"] = both or get("linear_num_value_heads")
        out["linear_head_dim"] = inner.get("head_dim") or get("linear_key_head_dim")
        out["linear_kernel"] = inner.get("short_conv_kernel_size") or get("linear_conv_kernel_dim")
    return out


def _layer_kinds(c: Mapping[str, Any], kind: str, layers: int) -> list[str]:
    """What each layer keeps: "full", "window" or "linear"."""
    if c.get("layer_types"):
        names = {"full_attention": "full", "linear_attention": "linear"}
        return [names.get(item, "window") for item in c["layer_types"]]
    if "linear_attn_config" in c:
        linear = set(c["linear_attn_config"]["kda_layers"])  # counted from 1
        return ["linear" if at in linear else "full" for at in range(1, layers + 1)]
    every = 0  # each layer whose number (from 1) is a multiple of it is full
    if kind.startswith("llama4"):
        every = 4
    elif c.get("sliding_window") and c.get("use_sliding_window", True):
        if kind.startswith("qwen2"):
            first = c.get("max_window_layers", layers)
            return ["full" if at < first else "window" for at in range(layers)]
        six = c.get("sliding_window_pattern", c.get("_sliding_window_pattern", 6))
        patterns = {"gemma3_text": six, "gemma3": six, "gemma2": 2, "gpt_oss": 2}
        named = c.get("sliding_window_pattern")
        other = named if isinstance(named, int) and named > 1 else layers + 1
        every = patterns.get(kind, other)
    else:
        return ["full"] * layers
    return ["full" if at % every == 0 else "window" for at in range(1, layers + 1)]


def _read_ffn(c: Mapping[str, Any], kind: str, get: Any, layers: int) -> dict[str, Any]:
    experts = get("num_local_experts", "num_experts", "n_routed_experts", default=0)
    out: dict[str, Any] = {"ffn_matrices": 2 if kind in _UNGATED else 3}
    moe = _moe_layer_count(c, layers) if experts else 0
    if moe < layers:
        out["ffn"] = get(
            "intermediate_size_mlp",
            "dense_intermediate_size",
            "intermediate_size",
            "ffn_dim",
            "n_inner",
            default=4 * get("hidden_size", "n_embd"),
        )
    if not moe:
        return out
    width = get("moe_intermediate_size", "intermediate_size")
    shared = get("n_shared_experts", "num_shared_experts", default=0)
    shared_width = get("shared_expert_intermediate_size", "shared_intermediate_size", default=0)
    out |= {"moe_layers": moe, "experts": experts, "expert_ffn": width}
    out["top_k"] = get(
        "num_experts_per_tok", "experts_per_token", "num_experts_per_token", "top_k_experts"
    )
    out["shared_ffn"] = shared * (shared_width or width) if shared else shared_width
    if kind.startswith("llama4"):  # one shared expert, not named in the config
        out["shared_ffn"] = width
    if kind.startswith("gemma4"):  # the dense block stays beside the experts
        out["shared_ffn"] = get("intermediate_size")
    out["expert_hidden"] = get("routed_expert_hidden_size", default=0)
    return out


def _moe_layer_count(c: Mapping[str, Any], layers: int) -> int:
    if c.get("mlp_layer_types"):
        return sum(item == "sparse" for item in c["mlp_layer_types"])
    frequency = c.get("moe_layer_freq") or 1
    if isinstance(frequency, list):
        return sum(bool(item) for item in frequency)
    if c.get("interleave_moe_layer_step"):
        return layers // int(c["interleave_moe_layer_step"])
    first = c.get("first_k_dense_replace") or 0
    step = c.get("decoder_sparse_step") or 1
    dense = set(c.get("mlp_only_layers") or ())
    return sum(
        at >= first and at % frequency == 0 and (at + 1) % step == 0 and at not in dense
        for at in range(layers)
    )


def _read_dtypes(c: Mapping[str, Any]) -> dict[str, str]:
    """Formats of the published weights; a scheme we don't know is read as bf16."""
    quant = c.get("quantization_config") or {}
    method = str(quant.get("quant_method", quant.get("quant_algo", ""))).lower()
    groups: list[Any] = list((quant.get("config_groups") or {}).values())
    group = (groups[0].get("weights") if groups else None) or {}
    bits = quant.get("bits", group.get("num_bits"))
    if bits == 4:
        floats = group.get("type") == "float"
        small = group.get("group_size", quant.get("group_size", 128)) == 32
        found = "mxfp4" if floats else "int4-g32" if small else "int4"
    elif method == "mxfp4":
        found = "mxfp4"
    else:
        found = "fp8" if "fp8" in method or (bits == 8 and group.get("type") == "float") else "bf16"
    skipped = quant.get("ignore") or quant.get("modules_to_not_convert") or ()
    experts_only = any("self_attn" in str(item) and "norm" not in str(item) for item in skipped)
    experts = "mxfp4" if c.get("expert_dtype") == "fp4" else found
    return {"dtype": "bf16" if experts_only else found, "expert_dtype": experts}
