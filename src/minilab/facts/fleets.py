"""Published deployments, and the arithmetic that checks their totals against each other.

Numbers are the publishers' own; what is computed here is only what follows from them.
"""

from __future__ import annotations

from dataclasses import dataclass

DAY = 86_400


@dataclass(frozen=True, slots=True)
class DayTotals:
    """A fleet's day. Tokens per day, tokens/s per node, dollars per million tokens and GPU hour.

    ``hit_tokens`` are the part of ``input_tokens`` that was in the prefix cache; ``context`` is
    the mean KV length of a decoding request; ``user_rate`` tokens/s of one stream, low and high.
    """

    input_tokens: float
    hit_tokens: float
    output_tokens: float
    prefill_rate: float
    decode_rate: float
    nodes: float
    gpus_per_node: int
    gpu_hour: float
    price_hit: float
    price_miss: float
    price_output: float
    context: int
    user_rate: tuple[float, float]

    @property
    def prefill_nodes(self) -> float:
        """Nodes that the day's input keeps busy at the published rate."""
        return self.input_tokens / DAY / self.prefill_rate

    @property
    def decode_nodes(self) -> float:
        """Nodes that the day's output keeps busy at the published rate."""
        return self.output_tokens / DAY / self.decode_rate

    @property
    def cost(self) -> float:
        """Dollars a day for the GPUs."""
        return self.nodes * self.gpus_per_node * self.gpu_hour * 24

    @property
    def revenue(self) -> float:
        """Dollars a day if every token were sold at the list price."""
        miss = self.input_tokens - self.hit_tokens
        sold = self.price_hit * self.hit_tokens + self.price_miss * miss
        return (sold + self.price_output * self.output_tokens) / 1e6

    @property
    def margin(self) -> float:
        """Profit over cost."""
        return (self.revenue - self.cost) / self.cost

    @property
    def streams_per_node(self) -> tuple[float, float]:
        """Streams that decode at once on a node: its rate over that of one stream, low and high."""
        low, high = self.user_rate
        return self.decode_rate / high, self.decode_rate / low


DEEPSEEK_DAY6 = DayTotals(
    input_tokens=608e9,
    hit_tokens=342e9,
    output_tokens=168e9,
    prefill_rate=73_700,
    decode_rate=14_800,
    nodes=226.75,
    gpus_per_node=8,
    gpu_hour=2.0,
    price_hit=0.14,
    price_miss=0.55,
    price_output=2.19,
    context=4_989,
    user_rate=(20.0, 22.0),
)
"""deepseek-ai/open-infra-index, day 6 (at 56d86855): DeepSeek-V3/R1 on H800 nodes, 24 hours.

Prefill: EP32 on 4 nodes, 32 redundant experts. Decode: EP144 on 18 nodes, 32 redundant experts.
"""

SGLANG_96_H100 = {"input": 52_300.0, "output": 22_300.0}
"""Tokens/s per node of 8 H100, prompts of 2,000 tokens (LMSYS blog, 2025-05-05)."""

GB200 = {"part I": 7_583.0, "part II": 13_386.0}
"""Decode tokens/s per GPU on GB200 NVL72, same model (LMSYS blogs on GB200, parts I and II)."""


def price_per_million(node_rate: float, gpu_hour: float = 2.0, gpus_per_node: int = 8) -> float:
    """Dollars per million tokens that a node makes at ``node_rate`` tokens/s."""
    return gpu_hour * gpus_per_node / (node_rate * 3600) * 1e6
