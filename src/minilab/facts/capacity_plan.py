"""Deployment: what is served where, with every size that is known given and the rest left to guess.

``capacity_ranks`` turns it into the budget of each GPU, ``capacity_limits`` into how many requests
and how long a one fit. Sizes are bytes per GPU, lengths tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from minilab.facts.capacity_stages import stage_layers, stage_models
from minilab.facts.errors import InputError
from minilab.facts.hardware import GPU
from minilab.facts.kv_layout import dtype_bytes
from minilab.facts.models import ModelSpec

GIB = 2**30


@dataclass(frozen=True)
class Deployment:
    """What is served where. A size that is None is estimated; a list has one entry per GPU.

    ``available``: bytes for KV, as an engine logged them; then the budget is not computed.
    ``dp``: attention replicas among the ``tp`` GPUs (DP attention), each with a KV of its own.
    ``draft``: a draft model that shares the GPUs; ``draft_layers``: layers of the model's own shape
    that draft (MTP, EAGLE). ``pp_layers``: the user's own split of the layers.
    """

    model: ModelSpec
    gpu: GPU | None = None
    kv_dtype: str = "bf16"
    weight_dtype: str = "native"
    tp: int = 1
    pp: int = 1
    dp: int = 1
    pp_layers: tuple[int, ...] | None = None
    block_size: int = 16
    utilization: float = 0.9
    available: tuple[float, ...] | None = None
    weights: tuple[float, ...] | None = None
    non_torch: tuple[float, ...] | None = None
    activation: tuple[float, ...] | None = None
    cuda_graphs: tuple[float, ...] | None = None
    draft: ModelSpec | None = None
    draft_layers: int = 0
    draft_weights: float | None = None
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp", "block_size", "max_num_batched_tokens", "max_num_seqs"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; give a whole number, 1 or more")
        if self.tp % self.dp:
            raise InputError(f"dp is {self.dp}, tp is {self.tp}; dp must divide tp")
        if not 0 < self.utilization <= 1:
            raise InputError(
                f"utilization is {self.utilization}; give a share of GPU memory, 0 to 1"
            )
        if self.available is None and self.gpu is None:
            raise InputError("neither memory for KV nor a GPU given; give one of the two")
        for name in ("available", "weights", "non_torch", "activation", "cuda_graphs"):
            sizes = getattr(self, name)
            if sizes is not None and len(sizes) not in (1, self.pp, self.tp * self.pp):
                raise InputError(
                    f"{len(sizes)} sizes for {name}; give one, one per stage ({self.pp}) or one "
                    f"per GPU ({self.tp * self.pp})"
                )

    @property
    def attention_tp(self) -> int:
        """GPUs that share one replica's attention heads."""
        return self.tp // self.dp

    @property
    def gpus(self) -> int:
        """GPUs of one instance."""
        return self.tp * self.pp

    def stages(self) -> list[ModelSpec]:
        """The model's stages, one ModelSpec each."""
        return stage_models(self.model, stage_layers(self.model.layers, self.pp, self.pp_layers))

    def draft_kv_bytes_per_token(self) -> int:
        """KV bytes per token and GPU of what drafts."""
        own = 0
        if self.draft_layers:
            full = replace(
                self.model,
                full_layers=self.draft_layers,
                window_layers=0,
                linear_layers=0,
                strides=(),
            )
            own = full.kv_bytes_per_token(self.kv_dtype, self.attention_tp)
            if self.model.index_layers:
                index = self.model.index_bytes_per_token
                own += self.draft_layers * index // self.model.index_layers
        if self.draft is None:
            return own
        return own + self.draft.kv_bytes_per_token(self.kv_dtype, self.attention_tp)

    def draft_weight_bytes(self) -> float:
        """Bytes per GPU of what drafts: given, or the model's, or layers of the target's own shape.

        A drafting layer also has a projection of two hidden vectors to one (2 * hidden^2).
        """
        if self.draft_weights is not None:
            return self.draft_weights
        size = self.draft.weight_bytes("native") / self.tp if self.draft else 0.0
        if self.draft_layers:
            m = self.model
            dense, expert = m.weight_dtypes(self.weight_dtype)
            layer = (m.body_params / m.layers + 2 * m.hidden**2) * dtype_bytes(dense)
            if m.moe_layers:
                layer += m.routed_params / m.moe_layers * dtype_bytes(expert)
            size += self.draft_layers * layer / self.tp
        return size
