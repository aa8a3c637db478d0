"""Stack: a choice of levers, and the stacks that are compared (32 at most)."""

from typing import Any

LAYOUTS = ["mixed-512", "mixed-2048", "mixed-8192", "split"]
FORMATS = [("native", "bf16"), ("native", "fp8"), ("fp8", "fp8"), ("int4", "bf16")]
DEPTHS = [0, 4]
"""Draft tokens per step and sequence; 0 is no speculation."""


class Stack:
    """How the workload is served.

    Attributes:
        layout: one of LAYOUTS: a chunk budget, or prefill and decode apart.
        weights, kv: formats; "native" is the published one.
        drafts: draft tokens per step and sequence.
        routing: requests follow their prefix, where there are several instances.
    """

    def __init__(self, layout: str, weights: str, kv: str, drafts: int, routing: bool) -> None:
        self.layout = layout
        self.weights = weights
        self.kv = kv
        self.drafts = drafts
        self.routing = routing

    @property
    def budget(self) -> float:
        """max_num_batched_tokens."""
        return 8192.0 if self.layout == "split" else float(self.layout.split("-")[1])

    def levers(self) -> list[Any]:
        """Ids of the levers that differ from a server's defaults."""
        used = []
        if self.layout == "split":
            used.append("pd_split")
        elif self.layout != "mixed-8192":
            used.append("chunked_prefill")
        if self.routing:
            used.append("prefix_routing")
        if self.drafts:
            used.append("spec_decode")
        if self.kv == "fp8":
            used.append("fp8_kv")
        if self.weights == "fp8":
            used.append("w8a8")
        if self.weights == "int4":
            used.append("int4")
        return used

    def name(self) -> str:
        """One word for tables and tests."""
        routing = "/routed" if self.routing else ""
        return f"{self.layout}/{self.weights}/{self.kv}/k{self.drafts}{routing}"


def candidates(several: bool, shared: bool) -> list[Any]:
    """Every stack that is compared; ``several`` instances and a ``shared`` prefix allow routing."""
    routing = several and shared
    return [
        Stack(layout, weights, kv, drafts, routing)
        for layout in LAYOUTS
        for weights, kv in FORMATS
        for drafts in DEPTHS
        if layout != "split" or several
    ]
