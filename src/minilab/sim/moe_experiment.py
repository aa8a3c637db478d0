"""MoeExperiment: an experiment on a MoE model whose experts, attention and wires are described.

What it inherits has its usual meaning; ``tp`` is the GPUs of one attention rank. Sweeps, regime
maps and load curves take it wherever they take an ``Experiment``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from minilab.core.block_hash import SegmentHasher
from minilab.core.expert_balance import balance_layers
from minilab.core.instance import Instance
from minilab.core.ranks import RankedScheduler
from minilab.core.scheduler import Scheduler
from minilab.facts.all_to_all import AllToAll, Fabric
from minilab.facts.capacity import NON_TORCH_BYTES, activation_bytes, budget_bytes, kv_tokens
from minilab.facts.errors import InputError
from minilab.facts.expert_cost import ExpertCost
from minilab.facts.expert_layout import ExpertLayout
from minilab.facts.expert_load import ExpertLoad, parse_load
from minilab.facts.expert_work import ExpertWork
from minilab.facts.hardware import Link, get_gpu
from minilab.facts.models import ModelSpec, get_model
from minilab.facts.step_cost import StepCost
from minilab.sim.cluster import Cluster
from minilab.sim.experiment import Experiment
from minilab.sim.expert_ticks import ExpertTicks
from minilab.sim.tick_cost import TickCost

UTILIZATION = 0.9
GQA_HEAD_DIM = 128


@dataclass(frozen=True, slots=True)
class MoeExperiment(Experiment):
    """Experts on GPUs. Names are vLLM's where it has one.

    Attributes:
        dp: attention ranks per instance, each with its own requests and KV.
        expert_parallel: whole experts on GPUs; False: slices of each expert.
        link: wire between machines; ``gpus_per_node``: GPUs that NVLink joins.
        congestion: share of that wire's bandwidth that is left (see ``facts.all_to_all.Fabric``).
        dispatch_dtype: "fp8" or "bf16"; ``all2all``: "auto", "low-latency" or "normal" kernels.
        overlap: two-batch overlap.
        expert_load: skew of the router's choices (see ``facts.expert_load.parse_load``).
        redundant_experts: physical experts per layer beyond the logical ones.
        eplb: place experts by ``expert_load``; False: in order, redundant ones copying the first.
        gqa_heads: what if attention kept so many KV heads of 128 instead of MLA's latent; 0: as is.
    """

    dp: int = 1
    expert_parallel: bool = True
    link: str = "infiniband-400"
    gpus_per_node: int = 8
    congestion: float = 1.0
    dispatch_dtype: str = "fp8"
    all2all: str = "auto"
    overlap: bool = False
    expert_load: str = "uniform"
    redundant_experts: int = 0
    eplb: bool = False
    gqa_heads: int = 0

    @classmethod
    def of(cls, plain: Experiment, **more: Any) -> MoeExperiment:
        """``plain``, with the fields in ``more`` as they are given."""
        values = {f.name: getattr(plain, f.name) for f in fields(Experiment)}
        return cls(**values).with_(**more)

    @property
    def gpus(self) -> int:
        """GPUs that the experiment uses."""
        return self.instances * self.tp * self.dp

    # -- the parts --------------------------------------------------------------------------------

    def spec(self) -> ModelSpec:
        """The model, with grouped-query attention in MLA's place if ``gqa_heads`` says so."""
        model = get_model(self.model)
        if not self.gqa_heads:
            return model
        return replace(
            model, kv_heads=self.gqa_heads, head_dim=GQA_HEAD_DIM,
            q_lora=0, kv_lora=0, rope_dim=0, nope_dim=0, v_dim=0,
        )  # fmt: skip

    def layout(self) -> ExpertLayout:
        """Degrees of parallelism. Raises InputError where they do not fit the model."""
        layout = ExpertLayout(self.tp, self.dp, self.expert_parallel, self.redundant_experts)
        return layout.check(self.spec())

    def fabric(self) -> Fabric:
        """Wires inside and between machines. Raises InputError for an unknown link."""
        gpu = get_gpu(self.gpu, self.gpu_file)
        return Fabric.of(gpu, self.link, self.gpus_per_node, self.congestion)

    def load(self) -> ExpertLoad:
        """How the router's choices fall on experts."""
        model = self.spec()
        return parse_load(self.expert_load, model.experts, model.top_k)

    def slots(self) -> list[list[int]]:
        """[layers of the load][physical experts]: the logical expert in each slot."""
        table = self.load().table.tolist()
        experts, extra = len(table[0]), self.redundant_experts
        if not self.eplb:
            return [[e % experts for e in range(experts + extra)] for _ in table]
        gpus = self.layout().gpus
        nodes = self.fabric().nodes(gpus)
        if experts % nodes or (experts + extra) % nodes or gpus % nodes:
            nodes = 1
        plans = balance_layers(table, experts + extra, gpus, nodes, nodes)
        return [list(plan.slots) for plan in plans]

    def cost_model(self) -> ExpertCost:  # type: ignore[override]
        """What a step costs.

        Raises:
            InputError: ``cost`` is set (a measured cost knows no experts), or as the parts.
        """
        if self.cost is not None:
            raise InputError("cost: a MoE experiment computes its own; leave it out")
        model, gpu, layout = self.spec(), get_gpu(self.gpu, self.gpu_file), self.layout()
        exchange = AllToAll(
            layout.gpus,
            model.hidden,
            model.top_k,
            self.fabric(),
            self.dispatch_dtype,
            self.all2all,
        )
        work = ExpertWork(
            model, gpu, layout, self.weight_dtype,
            exchange=exchange, load=self.load(), slots=self.slots(),
        )  # fmt: skip
        dense = StepCost(
            model, gpu, self.tp, self.weight_dtype, self.kv_dtype, link=self._reducing()
        )
        queries = 1 + self.num_speculative_tokens
        return ExpertCost(dense, work, overlap=self.overlap, query_tokens=queries)

    def _reducing(self) -> Link:
        """The wire of the all-reduces: NVLink, or the network where a rank spans machines."""
        fabric = self.fabric()
        if self.tp <= self.gpus_per_node:
            return fabric.inside
        wire = fabric.between
        return Link(wire.name, wire.bandwidth * self.congestion, wire.latency)

    def scheduler_config(self) -> Any:
        """Limits of each attention rank. Raises InputError where the model does not fit."""
        known = self if self.kv_blocks is not None else self.with_(kv_blocks=self._blocks())
        return Experiment.scheduler_config(known)

    def _blocks(self) -> int:
        """KV blocks of a rank: what its GPUs' memory holds beside their experts."""
        model, gpu = self.spec(), get_gpu(self.gpu, self.gpu_file)
        weights = self.layout().weight_bytes(model, self.weight_dtype)
        peak = activation_bytes(model, self.tp)
        left = budget_bytes(gpu.mem_bytes, UTILIZATION, weights, NON_TORCH_BYTES, peak)
        blocks = kv_tokens(left, model, self.kv_dtype, self.tp, self.block_size) // self.block_size
        if blocks < 1:
            raise InputError(
                f"{model.name} on {self.layout().gpus} x {gpu.name} (tp={self.tp}, dp={self.dp}) "
                f"needs {weights / 2**30:.1f} GiB of weights per GPU and leaves no room for KV; "
                "use more GPUs, a larger tp or smaller weights"
            )
        return blocks

    def kv_arithmetic(self) -> str:
        """Where a rank's pool comes from, in words with their numbers."""
        model, gpu = self.spec(), get_gpu(self.gpu, self.gpu_file)
        weights = self.layout().weight_bytes(model, self.weight_dtype) / 2**30
        size = model.kv_bytes_per_token(self.kv_dtype, self.tp)
        text = f"{UTILIZATION:g} x {gpu.mem_bytes / 2**30:.2f} - {weights:.2f} GiB weights a GPU"
        return f"{self.dp} ranks; each {text} and two priors; / {size} B a token, in whole blocks"

    def build(
        self,
        scheduler: Callable[..., Any] | None = None,
        *,
        skip: bool = True,
        concurrency: int | None = None,
        chained: int | None = None,
    ) -> Cluster:
        """The cluster: one instance per copy of the experts, with ``dp`` schedulers each."""
        self.check()
        hasher = SegmentHasher(self.block_size, chained)
        make = scheduler or partial(Scheduler, hasher=hasher)
        config, cost = self.scheduler_config(), self.cost_model()
        ticks: Any = TickCost(cost.linear()) if self.dp == 1 else ExpertTicks(cost)

        def ranks() -> Any:
            if self.dp == 1:
                return make(config)
            return RankedScheduler([make(config) for _ in range(self.dp)])

        return Cluster(
            [
                Instance(ranks(), ticks, skip=skip, drafter=self._drafter(index))
                for index in range(self.instances)
            ],
            self.make_router(cost.linear().per_token),
            request_overhead=cost.request_overhead,
            concurrency=concurrency,
        )

    def check(self) -> MoeExperiment:
        """See ``Experiment``; refuses tiers, and for several ranks any policy but mixed."""
        if self.tiers:
            raise InputError("tiers: not modelled for a MoE experiment; leave them out")
        if self.dp > 1 and self.policy != "mixed":
            raise InputError(f"policy is {self.policy!r}; several ranks (dp) need 'mixed'")
        Experiment.check(self)
        return self
