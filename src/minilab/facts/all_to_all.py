"""All-to-all: what sending tokens to their experts and back costs, in bytes and in seconds.

Per MoE layer a token of width H is **dispatched** to top_k experts and their answers **combined**:

    dispatch  top_k * (H + 4 * H / 128)  bytes in FP8 (a scale per 128 numbers), top_k * 2 H in bf16
    combine   top_k * 2 H                bytes, always bf16

Two kinds of kernel move them (names as in DeepEP). *Low-latency* ones send every copy on its own:
``latency + max(remote bytes / NIC, local bytes / NVLink)``. Three constants of that formula put all
12 published latencies of DeepEP within 6 % (``tests/facts/test_all_to_all.py``). *Normal* ones send
a token once per machine and forward it over NVLink: fewer bytes, a longer start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from minilab.facts.errors import InputError
from minilab.facts.hardware import GPU, Link, get_link

SCALE_BLOCK = 128
"""Numbers that share one fp32 scale in FP8 dispatch."""

KERNELS = ("auto", "low-latency", "normal")
DISPATCH_DTYPES = ("fp8", "bf16")

LOW_LATENCY_SECONDS = 29e-6
"""Start of a low-latency kernel: fitted, with the two shares below, to DeepEP's 12 latencies."""
NIC_SHARE = 0.86
"""Share of a NIC's bandwidth that the kernels reach (43 of 50 GB/s)."""
NVLINK_SHARE = 1 / 3
"""Share of NVLink's one-way bandwidth that they reach (150 of 450 GB/s)."""
NORMAL_DISPATCH_SECONDS, NORMAL_COMBINE_SECONDS = 250e-6, 85e-6
"""Start of a normal kernel: the floor measured on one H200 node by AIConfigurator (vLLM 0.24)."""
LOW_LATENCY_TOKENS = 256
"""Most tokens per rank that low-latency buffers are made for (DeepEP's advice)."""


def dispatch_bytes(hidden: int, top_k: int, dtype: str = "fp8") -> int:
    """Bytes that one token's dispatch sends in one layer, every copy counted."""
    _known(dtype)
    if dtype == "bf16":
        return top_k * 2 * hidden
    return top_k * (hidden + 4 * (hidden // SCALE_BLOCK))


def combine_bytes(hidden: int, top_k: int) -> int:
    """Bytes that come back for one token in one layer (bf16)."""
    return top_k * 2 * hidden


@dataclass(frozen=True, slots=True)
class Fabric:
    """What joins the GPUs. Bandwidths are bytes/s per GPU and direction, data-sheet values.

    Attributes:
        inside: within a machine (or an NVLink domain).
        between: machine to machine, per GPU.
        gpus_per_node: size of the inner domain.
        congestion: share of ``between`` that is left, 0 to 1. RoCE without adaptive routing or with
            congestion control that backs off loses a part: a scenario, not a measurement.
    """

    inside: Link
    between: Link
    gpus_per_node: int = 8
    congestion: float = 1.0

    def __post_init__(self) -> None:
        if self.gpus_per_node < 1:
            raise InputError(f"gpus_per_node is {self.gpus_per_node}; give 1 or more")
        if not 0 < self.congestion <= 1:
            raise InputError(
                f"congestion is {self.congestion}; give the share of bandwidth that is left, "
                "above 0 up to 1"
            )

    @classmethod
    def of(
        cls, gpu: GPU, between: str = "infiniband-400", gpus_per_node: int = 8, left: float = 1.0
    ) -> Fabric:
        """Machines of ``gpus_per_node`` such GPUs; ``left``: see ``congestion``."""
        return cls(get_link(gpu.links[0]), get_link(between), gpus_per_node, left)

    @property
    def nic(self) -> float:
        """Bytes/s per GPU between machines that a kernel gets."""
        return self.between.bandwidth * NIC_SHARE * self.congestion

    @property
    def nvlink(self) -> float:
        """Bytes/s per GPU inside a machine that a kernel gets."""
        return self.inside.bandwidth * NVLINK_SHARE

    def nodes(self, gpus: int) -> int:
        """Machines that ``gpus`` GPUs occupy."""
        return -(-gpus // self.gpus_per_node)

    def congested(self, left: float) -> Fabric:
        """The same wires with so much of the bandwidth left."""
        return replace(self, congestion=left)


@dataclass(frozen=True, slots=True)
class AllToAll:
    """The exchange of one MoE layer among ``gpus`` ranks.

    Attributes:
        hidden, top_k: of the model. ``groups``: most machines a token may reach (its router's
            ``topk_group``); 0: no limit.
        dtype: of dispatch, "fp8" or "bf16".
        kernels: "low-latency", "normal", or "auto": the first while the batch fits its buffers.
    """

    gpus: int
    hidden: int
    top_k: int
    fabric: Fabric
    dtype: str = "fp8"
    kernels: str = "auto"
    groups: int = 0

    def __post_init__(self) -> None:
        _known(self.dtype)
        if self.kernels not in KERNELS:
            raise InputError(f"all-to-all kernels {self.kernels!r}; give {', '.join(KERNELS)}")

    @property
    def token_bytes(self) -> int:
        """Dispatch and combine of one token in one layer, every copy counted."""
        return dispatch_bytes(self.hidden, self.top_k, self.dtype) + combine_bytes(
            self.hidden, self.top_k
        )

    def kind(self, tokens: int) -> str:
        """Which kernels run for ``tokens`` tokens per rank."""
        if self.kernels != "auto":
            return self.kernels
        return "low-latency" if tokens <= LOW_LATENCY_TOKENS else "normal"

    def seconds(self, tokens: int) -> float:
        """Dispatch plus combine when each rank has ``tokens`` tokens; 0 for one rank or none."""
        return sum(self.parts(tokens))

    def parts(self, tokens: int) -> tuple[float, float]:
        """(dispatch, combine) in seconds."""
        if self.gpus == 1 or tokens < 1:
            return 0.0, 0.0
        send = dispatch_bytes(self.hidden, self.top_k, self.dtype) / self.top_k
        back = combine_bytes(self.hidden, self.top_k) / self.top_k
        if self.kind(tokens) == "low-latency":
            return (
                LOW_LATENCY_SECONDS + self._low_latency(tokens * send),
                LOW_LATENCY_SECONDS + self._low_latency(tokens * back),
            )
        return (
            NORMAL_DISPATCH_SECONDS + self._normal(tokens * send),
            NORMAL_COMBINE_SECONDS + self._normal(tokens * back),
        )

    def _low_latency(self, one_copy: float) -> float:
        """Seconds for top_k copies, each to a GPU at random."""
        size, fabric = one_copy * self.top_k, self.fabric
        near = min(self.gpus, fabric.gpus_per_node)
        local = size * (near - 1) / self.gpus / fabric.nvlink
        return max(size * (self.gpus - near) / self.gpus / fabric.nic, local)

    def _normal(self, one_copy: float) -> float:
        """Seconds for a copy per machine over the wire and a copy per GPU over NVLink."""
        fabric, nodes = self.fabric, self.fabric.nodes(self.gpus)
        reached = _distinct(nodes, self.top_k)
        reached = min(reached, self.groups) if self.groups else reached
        remote = one_copy * reached * (nodes - 1) / nodes / fabric.nic
        near = min(self.gpus, fabric.gpus_per_node)
        local = one_copy * _distinct(self.gpus, self.top_k) * (near - 1) / near / fabric.nvlink
        return max(remote, local)


def _distinct(places: int, picks: int) -> float:
    """Expected number of distinct places that ``picks`` uniform picks fall on."""
    return places * (1.0 - (1.0 - 1.0 / places) ** picks)


def _known(dtype: str) -> None:
    if dtype not in DISPATCH_DTYPES:
        raise InputError(f"dispatch dtype {dtype!r}; give {' or '.join(DISPATCH_DTYPES)}")
