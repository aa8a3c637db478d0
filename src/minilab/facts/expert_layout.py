"""ExpertLayout: how a MoE model lies on its GPUs, under vLLM's names.

    tp=8, dp=1, expert_parallel=False   every matrix in 8 slices; all-reduces only
    tp=8, dp=1, expert_parallel=True    attention in slices, whole experts; all-reduces only
    tp=1, dp=8, expert_parallel=True    a copy of attention per GPU, with its own requests and KV;
                                        whole experts; all-to-all in every MoE layer

The third is DeepSeek's. In the second every rank holds all tokens, so nothing is dispatched.
"""

from __future__ import annotations

from dataclasses import dataclass

from minilab.facts.errors import InputError
from minilab.facts.models import ModelSpec, dtype_bytes


@dataclass(frozen=True, slots=True)
class ExpertLayout:
    """Degrees of parallelism of one instance.

    Attributes:
        tp: GPUs that share one attention rank.
        dp: attention ranks, each with its own requests and KV.
        expert_parallel: whole experts on GPUs (EP over all ``tp * dp``), not slices of each.
        redundant: physical experts beyond the logical ones, per layer.

    Raises:
        InputError: a degree below 1, several ranks without expert parallelism.
    """

    tp: int = 1
    dp: int = 1
    expert_parallel: bool = True
    redundant: int = 0

    def __post_init__(self) -> None:
        for name, value in (("tp", self.tp), ("dp", self.dp)):
            if value < 1:
                raise InputError(f"{name} is {value}; give a whole number of 1 or more")
        if self.redundant < 0:
            raise InputError(f"redundant experts: {self.redundant}; give 0 or more")
        if self.dp > 1 and not self.expert_parallel:
            raise InputError(
                f"dp is {self.dp} without expert parallelism; use dp=1, or switch it on"
            )
        if self.redundant and not self.expert_parallel:
            raise InputError("redundant experts need expert parallelism")

    @property
    def gpus(self) -> int:
        """GPUs of one instance."""
        return self.tp * self.dp

    @property
    def exchanges(self) -> bool:
        """Whether tokens travel to their experts (all-to-all)."""
        return self.expert_parallel and self.dp > 1

    def check(self, model: ModelSpec) -> ExpertLayout:
        """Itself, if ``model`` can lie so. Raises InputError."""
        if not model.moe_layers:
            raise InputError(f"{model.name} has no experts; use Experiment with tp")
        slots = model.experts + self.redundant
        if self.expert_parallel and slots % self.gpus:
            less = slots - slots % self.gpus
            raise InputError(
                f"{slots} physical experts ({model.experts} and {self.redundant} redundant) do not "
                f"divide over {self.gpus} GPUs; use {less + self.gpus - model.experts} redundant"
            )
        return self

    def experts_per_gpu(self, model: ModelSpec) -> int:
        """Physical experts of a layer on each GPU under EP (DeepSeek, day 6: 9 and 2)."""
        return (model.experts + self.redundant) // self.gpus

    def weight_bytes(self, model: ModelSpec, dtype: str = "native") -> float:
        """Bytes of weights on one GPU: attention and shared parts in tp slices, experts spread."""
        routed = model.routed_params * dtype_bytes(model.weight_dtypes(dtype)[1])
        rest = model.weight_bytes(dtype) - routed
        return rest / self.tp + routed * (1 + self.redundant / model.experts) / self.gpus
