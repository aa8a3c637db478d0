"""PdExperiment: an experiment whose prompts may be computed on a pool of their own.

All it inherits describes the decode pool; ``prefill_*`` says what is different on the other one.
Sweeps, regime maps, load curves and the CLI take it wherever they take an ``Experiment``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from minilab.core.pd_router import PdRule
from minilab.facts.cost_constants import Constants
from minilab.facts.cost_transfer import DESCRIPTOR_SECONDS
from minilab.facts.errors import InputError
from minilab.facts.hardware import Link, get_gpu, get_link
from minilab.facts.models import get_model
from minilab.facts.ticks import to_seconds
from minilab.facts.workload import Workload
from minilab.sim.cluster import Cluster
from minilab.sim.experiment import Experiment
from minilab.sim.limits import check_blocks
from minilab.sim.pd_build import build_pools
from minilab.sim.pd_cluster import PdCluster
from minilab.sim.pd_options import PdOptions
from minilab.sim.pd_sizer import TransferSizer
from minilab.sim.topology import Topology

_AS_DECODE = ("gpu", "tp", "kv_blocks", "max_num_batched_tokens", "max_num_seqs", "cost")


@dataclass(frozen=True, slots=True)
class PdExperiment(Experiment):
    """Two pools. What a ``prefill_*`` leaves at None is as on the decode side.

    Attributes:
        prefill_instances: instances that only compute prompts; ``instances`` decode.
        prefill_gpu, prefill_tp, prefill_kv_blocks, prefill_max_num_batched_tokens,
            prefill_max_num_seqs, prefill_cost: of the prefill pool.
        prefill_router: chooses among them (``router`` among the decode instances).
        pd_mode, max_local_prefill_length, max_prefill_queue_size: see ``core.pd_router.PdRule``.
        link: wire between machines; ``inner_link``: within one (None: the GPU's first).
        link_bandwidth: bytes/s per GPU instead of the wire's own.
        gpus_per_node, nics_per_node: see ``Topology``.
        apart: the decode pool starts on a machine of its own.
        reserve, overlap, gather, first_token, headroom_tokens, alpha, max_transfers, failure_rate,
            on_failure: see ``PdOptions``.
        preempt: a decode instance takes blocks back when it runs out (False can get stuck).
    """

    prefill_instances: int = 1
    prefill_gpu: str | None = None
    prefill_tp: int | None = None
    prefill_kv_blocks: int | None = None
    prefill_max_num_batched_tokens: int | None = None
    prefill_max_num_seqs: int | None = None
    prefill_cost: str | None = None
    prefill_router: str = "round-robin"
    pd_mode: str = "always"
    max_local_prefill_length: int = 512
    max_prefill_queue_size: int = 2
    link: str = "infiniband-400"
    inner_link: str | None = None
    link_bandwidth: float | None = None
    gpus_per_node: int = 8
    nics_per_node: int | None = None
    apart: bool = True
    reserve: str = "prefill-end"
    overlap: bool = False
    gather: bool = False
    first_token: str = "prefill"
    headroom_tokens: int = 0
    alpha: float = DESCRIPTOR_SECONDS
    max_transfers: int | None = None
    failure_rate: float = 0.0
    on_failure: str = "recompute"
    preempt: bool = True

    @classmethod
    def split(
        cls, whole: Experiment, prefill: int = 1, decode: int = 1, **more: Any
    ) -> PdExperiment:
        """``whole`` on two pools of so many instances, which otherwise are as it says."""
        values = {f.name: getattr(whole, f.name) for f in fields(Experiment)}
        return cls(**values).with_(prefill_instances=prefill, instances=decode, **more)

    @property
    def gpus(self) -> int:
        """GPUs of both pools."""
        return self.instances * self.tp + self.prefill_instances * self.prefill_side().tp

    def prefill_side(self) -> Experiment:
        """The prefill pool as an experiment of its own."""
        own = {f.name: getattr(self, f.name) for f in fields(Experiment)}
        for name in _AS_DECODE:
            value = getattr(self, f"prefill_{name}")
            if value is not None:
                own[name] = value
        if self.prefill_kv_blocks is None and (self.prefill_gpu or self.prefill_tp):
            own["kv_blocks"] = None  # what fits that GPU, not what fits the other one
        own |= {"instances": self.prefill_instances, "router": self.prefill_router}
        return Experiment(**own)

    def decode_side(self) -> Experiment:
        """The decode pool as an experiment of its own."""
        return Experiment(**{f.name: getattr(self, f.name) for f in fields(Experiment)})

    # -- the parts --------------------------------------------------------------------------------

    def options(self) -> PdOptions:
        """How KV is handed over.

        Raises:
            InputError: as ``PdOptions``.
        """
        names = [f.name for f in fields(PdOptions) if f.name != "seed"]
        return PdOptions(**{name: getattr(self, name) for name in names}, seed=self.workload.seed)

    def topology(self) -> Topology:
        """Machines and wires.

        Raises:
            InputError: an unknown link, or a bandwidth that is none.
        """
        inside = get_link(self.inner_link or get_gpu(self.gpu, self.gpu_file).links[0])
        between = get_link(self.link)
        if self.link_bandwidth is not None:
            if not self.link_bandwidth > 0:
                raise InputError(
                    f"link_bandwidth is {self.link_bandwidth}; give bytes per second above 0"
                )
            between = Link(between.name, self.link_bandwidth, between.latency)
            inside = Link(inside.name, self.link_bandwidth, inside.latency)
        return Topology(self.gpus_per_node, inside, between, self.nics_per_node)

    def sizer(self) -> TransferSizer:
        """What the KV of some tokens amounts to."""
        prefill = self.prefill_side()
        gpus = [get_gpu(side.gpu, side.gpu_file) for side in (prefill, self)]
        copy = min(gpu.mem_bw * Constants.for_gpu(gpu).e_mem for gpu in gpus)
        return TransferSizer(get_model(self.model), self.kv_dtype, self.tp, copy, self.gather)

    def rule(self) -> PdRule:
        """When a prompt is computed apart.

        Raises:
            InputError: as ``PdRule``.
        """
        try:
            return PdRule(self.pd_mode, self.max_local_prefill_length, self.max_prefill_queue_size)
        except ValueError as error:
            raise InputError(str(error)) from None

    def check(self) -> PdExperiment:
        """See ``Experiment``."""
        self.decode_side().check()
        prefill = self.prefill_side()
        try:
            prefill.check()
        except InputError as error:
            raise InputError(f"prefill side: {error}") from None
        check_blocks(1, self._all_blocks(prefill))
        self.options()
        self.rule()
        self.topology()
        return self

    def _all_blocks(self, prefill: Experiment) -> int:
        return (
            self.instances * self.decode_side().scheduler_config().num_blocks
            + self.prefill_instances * prefill.scheduler_config().num_blocks
        )

    def build(
        self,
        scheduler: Callable[..., Any] | None = None,
        *,
        skip: bool = True,
        concurrency: int | None = None,
        chained: int | None = None,
    ) -> Cluster:
        """The cluster; ``scheduler`` makes those of both pools and must be a ``Scheduler``."""
        self.check()
        return build_pools(self, self._drafter, scheduler, skip, concurrency, chained)

    def _meta(self, work: Workload, cluster: Cluster, spent: float) -> dict[str, Any]:
        meta = Experiment._meta(self, work, cluster, spent)
        assert isinstance(cluster, PdCluster), "a split experiment builds a split cluster"
        schedulers: list[Any] = [instance.scheduler for instance in cluster.instances]
        first = cluster.num_prefill
        meta["num_blocks"] = schedulers[first].pool.num_blocks
        for name, pool in (("prefill", schedulers[:first]), ("decode", schedulers[first:])):
            meta[f"{name}_kv_peak_usage"] = max(s.peak_used / s.pool.num_blocks for s in pool)
        meta["prefill_instances"] = first
        meta["transfers"] = cluster.wires.count
        meta["failed_transfers"] = cluster.delivery.failed
        meta["wire_seconds"] = to_seconds(cluster.wires.busy_ticks)
        return meta
