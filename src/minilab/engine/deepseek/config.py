"""DeepseekConfig: what the engine must know of a DeepSeek-V2 or V3, read from its config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minilab.engine.config import whole
from minilab.engine.moe.routing import Routing
from minilab.facts.errors import InputError

FAMILIES = ("deepseek_v2", "deepseek_v3")


@dataclass(frozen=True)
class DeepseekConfig:
    """Shapes and constants of a decoder with latent attention and experts.

    Attributes:
        intermediate_size: of the dense layers' MLP.
        q_lora_rank: numbers of the query's own latent; None: queries are projected at once.
        kv_lora_rank: numbers of the latent that is cached, one for all heads.
        qk_nope_head_dim, qk_rope_head_dim: numbers of a head's query that are not rotated, and
            that are; the rotated part of the key is cached beside the latent.
        v_head_dim: numbers of a head's value.
        interleaved: rotary pairs are (2i, 2i+1); not (i, i + qk_rope_head_dim / 2).
        first_k_dense_replace: layers before the first one with experts.
        routing: how experts are chosen; None: a model without any.
        moe_intermediate_size: of one expert; shared ones are one MLP of num_shared_experts times
            that.
        num_mtp_layers: modules that guess one token further; the engine runs the first.
        eos_token_ids, max_position_embeddings: as in ``engine.config.DecoderConfig``.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    interleaved: bool = True
    first_k_dense_replace: int = 0
    routing: Routing | None = None
    moe_intermediate_size: int = 0
    num_shared_experts: int = 0
    num_mtp_layers: int = 0
    eos_token_ids: tuple[int, ...] = ()
    max_position_embeddings: int = 0

    @property
    def head_dim(self) -> int:
        """What is rotated of a head."""
        return self.qk_rope_head_dim

    @property
    def rope_scaling(self) -> None:
        """None is built."""
        return None

    @property
    def cache_width(self) -> int:
        """Numbers that a token leaves in the cache of a layer."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def moe_layers(self) -> range:
        """The layers of the model that have experts (the MTP module's comes on top)."""
        first = self.first_k_dense_replace if self.routing else self.num_layers
        return range(first, self.num_layers)

    def has_experts(self, layer: int) -> bool:
        """Whether a layer is a mixture; ``num_layers`` and up are MTP modules."""
        return self.routing is not None and layer >= self.first_k_dense_replace

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> DeepseekConfig:
        """From the fields of a Hugging Face config.json.

        Raises:
            InputError: a part that is not built here, or a field that is missing.
        """
        v3 = config.get("model_type") == "deepseek_v3"
        _refuse_unbuilt(config, v3)
        rope = config.get("rope_parameters") or {}
        end = config.get("eos_token_id")
        ends = end if isinstance(end, list) else [end]
        experts = bool(config.get("n_routed_experts"))
        q_rank = config.get("q_lora_rank")
        return cls(
            vocab_size=whole(config, "vocab_size"),
            hidden_size=whole(config, "hidden_size"),
            intermediate_size=whole(config, "intermediate_size"),
            num_layers=whole(config, "num_hidden_layers"),
            num_heads=whole(config, "num_attention_heads"),
            q_lora_rank=None if q_rank is None else whole(config, "q_lora_rank"),
            kv_lora_rank=whole(config, "kv_lora_rank"),
            qk_nope_head_dim=whole(config, "qk_nope_head_dim"),
            qk_rope_head_dim=whole(config, "qk_rope_head_dim"),
            v_head_dim=whole(config, "v_head_dim"),
            rms_norm_eps=config.get("rms_norm_eps", 1e-6),
            rope_theta=rope.get("rope_theta") or config.get("rope_theta") or 10_000.0,
            tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
            interleaved=bool(config.get("rope_interleave", True)) or not v3,
            first_k_dense_replace=config.get("first_k_dense_replace") or 0,
            routing=_routing(config, v3) if experts else None,
            moe_intermediate_size=whole(config, "moe_intermediate_size") if experts else 0,
            num_shared_experts=(config.get("n_shared_experts") or 0) if experts else 0,
            num_mtp_layers=config.get("num_nextn_predict_layers") or 0,
            eos_token_ids=tuple(token for token in ends if token is not None),
            max_position_embeddings=config.get("max_position_embeddings") or 0,
        )


def _routing(config: Mapping[str, Any], v3: bool) -> Routing:
    """V3: sigmoid, a bias, groups. V2: softmax; groups only if its topk_method says so."""
    grouped = v3 or config.get("topk_method") == "group_limited_greedy"
    return Routing(
        num_experts=whole(config, "n_routed_experts"),
        top_k=whole(config, "num_experts_per_tok"),
        num_groups=(config.get("n_group") or 1) if grouped else 1,
        topk_group=(config.get("topk_group") or 1) if grouped else 1,
        scoring="sigmoid" if v3 else "softmax",
        biased=v3,
        renormalize=bool(config.get("norm_topk_prob", True)) if v3 else False,
        scale=float(config.get("routed_scaling_factor") or 1.0),
    )


def _refuse_unbuilt(config: Mapping[str, Any], v3: bool) -> None:
    """Options of these families that would change the text if they were passed over."""
    rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    unbuilt: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "hidden_act": (config.get("hidden_act") or "silu", ("silu",)),
        "attention_bias": (bool(config.get("attention_bias")), (False,)),
        "moe_layer_freq": (config.get("moe_layer_freq") or 1, (1,)),
        "rope_type": (rope.get("rope_type") or rope.get("type") or "default", ("default",)),
        "quantization_config": (config.get("quantization_config") or None, (None,)),
    }
    if v3:
        unbuilt["scoring_func"] = config.get("scoring_func") or "sigmoid", ("sigmoid",)
        unbuilt["topk_method"] = config.get("topk_method") or "noaux_tc", ("noaux_tc",)
    else:
        known = ("greedy", "group_limited_greedy")
        unbuilt["scoring_func"] = config.get("scoring_func") or "softmax", ("softmax",)
        unbuilt["topk_method"] = config.get("topk_method") or "greedy", known
        unbuilt["norm_topk_prob"] = bool(config.get("norm_topk_prob")), (False,)
    for name, (value, built) in unbuilt.items():
        if value not in built:
            said = " or ".join(repr(one) for one in built)
            raise InputError(
                f"config.json: {name} is {value!r}; for DeepSeek the engine has {said}"
            )
