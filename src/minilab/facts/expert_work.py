"""ExpertWork: what all ranks of a MoE layer do together, experts and exchange, in seconds.

    weights    expert bytes * touched share on the fullest GPU / (N * BW * e_mem)
    gemm       tokens of all ranks * 2 * active expert parameters * imbalance / (N * F * e_moe)
    dispatch, combine   ``facts.all_to_all``, once per MoE layer, by the rank with most tokens

on N GPUs. ``imbalance`` and the touched share come from an ``ExpertLoad``: skew and chance.
"""

from __future__ import annotations

from collections.abc import Sequence

from minilab.facts.all_to_all import AllToAll
from minilab.facts.cost_constants import Constants
from minilab.facts.errors import InputError
from minilab.facts.expert_layout import ExpertLayout
from minilab.facts.expert_load import ExpertLoad, Slowest
from minilab.facts.hardware import GPU
from minilab.facts.models import ModelSpec, dtype_bytes


class ExpertWork:
    """Experts of ``model``, laid out as ``layout``, on GPUs of one kind.

    Args:
        exchange: carries dispatch and combine; needed where ``layout.exchanges``, else unused.
        load: skew and chance; None: every GPU has exactly its share.
        slots: placement, [layers of load][physical experts]; None: experts in order.

    Raises:
        InputError: a dense model, a layout that does not divide, no exchange where one is needed,
            redundant experts without a placement.
    """

    def __init__(
        self,
        model: ModelSpec,
        gpu: GPU,
        layout: ExpertLayout,
        weight_dtype: str = "native",
        *,
        exchange: AllToAll | None = None,
        load: ExpertLoad | None = None,
        slots: Sequence[Sequence[int]] | None = None,
        constants: Constants | None = None,
    ) -> None:
        layout.check(model)
        if layout.exchanges and exchange is None:
            raise InputError("expert parallelism over several ranks needs an exchange (AllToAll)")
        if layout.redundant and load is not None and slots is None:
            raise InputError("redundant experts need a placement (slots)")
        self.model, self.gpu, self.layout = model, gpu, layout
        self.dtype = model.weight_dtypes(weight_dtype)[1]
        self.wires = exchange if layout.exchanges else None
        self.load = load if layout.expert_parallel else None
        if load is not None:
            slots = slots or [range(model.experts)] * len(load.table)
        self._slots = tuple(map(tuple, slots or ()))
        self._constants = Constants.for_gpu(gpu) if constants is None else constants
        self._seen: dict[int, float] = {}

    def slowest(self, total: int) -> Slowest:
        """The fullest GPU when ``total`` tokens of all ranks pass a layer."""
        if self.load is None:
            share = self.model.top_k / self.model.experts
            return Slowest(1.0, 1.0 - (1.0 - share) ** total)
        return self.load.between(total, self.layout.gpus, self._slots)

    def experts(self, total: int) -> tuple[float, float]:
        """(reading weights, GEMM) of a step for ``total`` tokens of all ranks."""
        m, c, gpus = self.model, self._constants, self.layout.gpus
        imbalance, touched = self.slowest(total)
        size = m.routed_params * dtype_bytes(self.dtype)
        size *= 1 + self.layout.redundant / m.experts
        read = size * touched / (gpus * self.gpu.mem_bw * c.e_mem)
        flops = 2 * m.moe_layers * m.top_k * m.expert_params * total
        return read, flops * imbalance / (gpus * self.gpu.flops_at(self.dtype) * c.e_moe)

    def exchange(self, tokens: int) -> tuple[float, float]:
        """(dispatch, combine) of a step with ``tokens`` on the fullest rank."""
        if self.wires is None:
            return 0.0, 0.0
        dispatch, combine = self.wires.parts(tokens)
        return self.model.moe_layers * dispatch, self.model.moe_layers * combine

    def seconds(self, tokens: int) -> float:
        """Experts and exchange with ``tokens`` on every rank."""
        found = self._seen.get(tokens)
        if found is None:
            parts = *self.experts(tokens * self.layout.dp), *self.exchange(tokens)
            found = self._seen[tokens] = sum(parts)
        return found
