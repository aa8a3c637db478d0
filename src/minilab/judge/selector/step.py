"""Step: what one step costs on one deployment, as the coefficients of ``facts.step_cost``.

The same arithmetic as there, from the numbers of ``tables.json``; a test holds the two together to
1e-12. Seconds, bytes, tokens.
"""

from typing import Any


class Step:
    """Coefficients of a step's time.

    Attributes:
        fixed: every step; per_token: every new token; per_seq: every sequence.
        per_context: every KV token read; per_window: the same in windowed layers, up to ``window``.
        per_pair: every (query, key) pair of a prompt.
        expert_read: reading all experts; a token hits one with ``expert_share``.
        overhead: per request, outside any step.
    """

    fixed: float
    per_token: float
    per_seq: float
    per_context: float
    per_window: float
    per_pair: float
    expert_read: float
    expert_share: float
    overhead: float
    window: int

    def __init__(self, tables: Any, model: str, gpu: str, tp: int, weights: str, kv: str) -> None:
        m, g = tables["models"][model], tables["gpus"][gpu]
        c = g["constants"]
        dense = m["dtype"] if weights == "native" else weights
        expert = m["expert_dtype"] if weights == "native" else weights
        size = tables["dtype_bytes"]
        read = g["mem_bw"] * c["e_mem"]
        launches = m["layers"] + m["moe_layers"] * c["moe_launches"]
        head = m["head_params"] * max(2.0, size[dense])
        dense_bytes = head + m["body_params"] * size[dense]
        self.fixed = launches * c["t_layer"] + dense_bytes / (tp * read)
        self.per_token = (
            2
            * (m["body_params"] + m["head_params"])
            / (tp * flops_at(g["flops"], dense) * c["e_comp"])
        )
        active = 2 * m["moe_layers"] * m["top_k"] * m["expert_params"]
        self.per_token += active / (tp * flops_at(g["flops"], expert) * c["e_moe"])
        if tp > 1:
            link = tables["links"][g["link"]]["bandwidth"]
            self.fixed += 2 * m["layers"] * c["t_ar"]
            self.per_token += 2 * m["layers"] * 2 * m["hidden"] / (link * c["e_link"])
        full, window = m["kv"][kv][str(tp)]
        self.per_seq = c["t_seq"] + 2 * m["state"][str(tp)] / read
        self.per_context = full / read
        self.per_window = window / read
        self.window = m["window"] if m["window_layers"] else 0
        self.per_pair = m["pair_flops"] / (tp * flops_at(g["flops"], "bf16") * c["e_comp"])
        self.expert_read = m["routed_params"] * size[expert] / (tp * read)
        self.expert_share = m["top_k"] / m["experts"] if m["experts"] else 0.0
        self.overhead = c["t_req"]

    def per_step(self, tokens: float) -> float:
        """Everything that depends on the number of new tokens alone."""
        seconds = self.fixed + self.per_token * tokens
        if self.expert_read:
            seconds += self.expert_read * (1.0 - (1.0 - self.expert_share) ** tokens)
        return seconds

    def decode(self, batch: float, context: float, width: float = 1.0) -> float:
        """A step of ``batch`` sequences that read ``context`` tokens each; ``width`` positions of
        each are computed (more than one: drafts to verify)."""
        seen = context
        if self.window and context > self.window:
            seen = self.window
        return (
            self.per_step(batch * width)
            + self.per_seq * batch
            + self.per_context * batch * context
            + self.per_window * batch * seen
        )

    def prompt(self, new: float, cached: float, batch: float, pieces: int = 1) -> float:
        """What ``new`` prompt tokens behind ``cached`` ones add to steps of ``batch`` decodes when
        they are computed in so many ``pieces``: each of them reads the experts anew."""
        pairs = new * cached + new * (new + 1.0) / 2.0
        seconds = self.per_token * new + self.per_pair * pairs + self.per_seq * pieces
        if self.expert_read:
            idle = 1.0 - self.expert_share
            seconds += self.expert_read * pieces * (idle**batch - idle ** (batch + new / pieces))
        return seconds


def flops_at(flops: dict[str, Any], dtype: str) -> float:
    """Peak rate for weights stored as ``dtype`` (see ``facts.hardware.GPU.flops_at``)."""
    if dtype == "mxfp4" and "fp4" in flops:
        dtype = "fp8"
    for candidate in (dtype, "bf16", "fp16"):
        if candidate in flops:
            return float(flops[candidate])
    return float(max(flops.values()))
