"""ExpertCost: a step of a MoE model under TP, EP and DP attention, as a sum of named terms.

Dense terms are those of ``StepCost`` on the ``tp`` GPUs of one attention rank, for its own tokens;
experts and exchange are ``ExpertWork``, for the tokens of all ranks. Further:

    mla_compute   context * what absorbed MLA decode computes longer than it reads
    draft         an MTP layer's share of launches and weights, per drafted token
    overlap       two half batches take turns, one computing while the other is on the wire: the
                  step is the longer of compute and exchange, but launches and weights are paid
                  twice (SGLang's two-batch overlap, vLLM's DBO)

Where tokens are exchanged, MoE layers need no second all-reduce.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minilab.facts.cost_terms import LinearCost, StepShape, Term, table
from minilab.facts.errors import InputError
from minilab.facts.expert_work import ExpertWork
from minilab.facts.mla_cost import mla_time
from minilab.facts.step_cost import StepCost


@dataclass(frozen=True)
class RankCost(LinearCost):
    """One rank's step if every rank does the same: ``per_step`` adds experts and exchange."""

    work: ExpertWork | None = None

    def per_step(self, num_tokens: int) -> float:
        """Everything that depends on the number of tokens alone, without overlap."""
        shared = 0.0 if self.work is None else self.work.seconds(num_tokens)
        return super().per_step(num_tokens) + shared


class ExpertCost:
    """``facts.cost_terms.Cost`` of a MoE model; a shape is one rank's, all ranks doing the same.

    ``dense`` must be the cost of the same model on ``work.layout.tp`` GPUs. ``query_tokens``:
    queries per sequence and step (1 + drafts). Raises InputError for overlap without an exchange.
    """

    def __init__(
        self, dense: StepCost, work: ExpertWork, *, overlap: bool = False, query_tokens: int = 1
    ) -> None:
        if dense.tp != work.layout.tp or dense.model != work.model:
            raise InputError("dense terms and experts describe different models or tp")
        if overlap and work.wires is None:
            raise InputError("two-batch overlap hides an all-to-all; this layout has none (dp=1)")
        self.dense, self.work, self.overlap = dense, work, overlap
        self.query_tokens = query_tokens
        self.request_overhead = dense.request_overhead
        constants = dense.constants
        self.mla = mla_time(
            *(dense.model, dense.gpu),
            tp=dense.tp,
            query_tokens=query_tokens,
            kv_dtype=dense.kv_dtype,
            e_mem=constants.e_mem,
        )
        self._linear = self._compile()

    def _compile(self) -> RankCost:
        """The dense model's coefficients, with what is different here."""
        m, tp, c = self.dense.model, self.dense.tp, self.dense.constants
        linear = self.dense.linear()
        flops = 2 * m.moe_layers * m.top_k * m.expert_params
        per_token = linear.per_token - flops / (tp * self._expert_peak() * c.e_moe)
        fixed = linear.fixed
        if tp > 1:
            spared = self._spared()
            fixed -= spared * 2 * m.layers * c.t_ar
            size = 4 * m.layers * m.hidden
            per_token -= spared * size / (self.dense.link.bandwidth * c.e_link)
        values = {name: getattr(linear, name) for name in LinearCost.__dataclass_fields__}
        values |= {
            "fixed": fixed * (1 + self._drafted()),
            "per_token": per_token,
            "per_context": linear.per_context + self.mla.extra,
            "expert_read": 0.0,
            "expert_share": 0.0,
        }
        return RankCost(**values, work=self.work)

    def _expert_peak(self) -> float:
        return self.dense.gpu.flops_at(self.work.dtype)

    def _spared(self) -> float:
        """Share of the all-reduces that the exchange replaces: one of two in each MoE layer."""
        m = self.dense.model
        return 0.0 if self.work.wires is None else m.moe_layers / (2 * m.layers)

    def _drafted(self) -> float:
        """MTP layers run per step, as a share of the model's layers."""
        return (self.query_tokens - 1) / self.dense.model.layers

    # -- two-batch overlap -------------------------------------------------------------------------

    def again(self, total: int) -> float:
        """Seconds that two half batches add to the compute of ``total`` tokens of all ranks."""
        half = self.work.experts(-(-total // 2))[0]
        return self._linear.fixed + 2 * half - self.work.experts(total)[0]

    def on_the_wire(self, tokens: int) -> float:
        """Exchange of two half batches, ``tokens`` on the fullest rank."""
        return 2 * sum(self.work.exchange(-(-tokens // 2)))

    # -- the whole ---------------------------------------------------------------------------------

    def linear(self) -> RankCost:
        """One rank's step as coefficients, without overlap."""
        return self._linear

    def breakdown(self, shape: StepShape) -> list[Term]:
        """The terms of the sum with their arithmetic."""
        n, m = shape.num_tokens, self.dense.model
        total = n * self.work.layout.dp
        keep = 1.0 - self._spared()
        terms = [
            t._replace(seconds=t.seconds * (keep if t.name in ("all_reduce", "link") else 1.0))
            for t in self.dense.breakdown(shape)
            if not t.name.startswith("expert_")
        ]
        if self.mla.extra:
            text = f"{shape.context} x ({self.mla.compute:.3g} - {self.mla.read:.3g}) s"
            terms.append(Term("mla_compute", shape.context * self.mla.extra, text))
        if self._drafted():
            share = self._drafted() / (1 + self._drafted())
            text = f"{self.query_tokens - 1} MTP layer runs beside {m.layers} layers"
            terms.append(Term("draft", self._linear.fixed * share, text))
        read, gemm = self.work.experts(total)
        slow = self.work.slowest(total)
        text = f"{total} tokens, {self.work.layout.gpus} GPUs"
        terms.append(Term("expert_weights", read, f"{text}, {slow.touched:.3f} touched"))
        terms.append(Term("expert_gemm", gemm, f"{text}, fullest {slow.imbalance:.2f} x mean"))
        if self.work.wires is not None:
            wires = self.work.wires
            text = f"{m.moe_layers} layers, {n} x {wires.token_bytes} B, {wires.kind(n)} kernels"
            for name, seconds in zip(("dispatch", "combine"), self.work.exchange(n), strict=True):
                terms.append(Term(name, seconds, text))
        if self.overlap:
            whole = sum(t.seconds for t in terms)
            compute = whole - sum(self.work.exchange(n))
            step = max(compute + self.again(total), self.on_the_wire(n))
            terms.append(Term("overlap", step - whole, "two half batches in turn"))
        return terms

    def terms(self, shape: StepShape) -> dict[str, float]:
        """Seconds by name (see the top of this file)."""
        return {term.name: term.seconds for term in self.breakdown(shape)}

    def seconds(self, shape: StepShape) -> float:
        """The step's duration in seconds: the sum of ``terms``."""
        return sum(self.terms(shape).values())

    def explain(self, shape: StepShape) -> str:
        """A table of the terms, their arithmetic and their shares."""
        lay, dense = self.work.layout, self.dense
        kind = "EP" if lay.expert_parallel else "TP"
        title = f"{dense.model.name} ({dense.weight_dtype}) on {lay.gpus} x {dense.gpu.name}"
        title += f", tp={lay.tp} dp={lay.dp}, experts by {kind}"
        return table(f"{title}; constants: {dense.constants.provenance}", self.breakdown(shape))

    def to_dict(self) -> dict[str, Any]:
        """What made it, as plain JSON values (``sim.moe_experiment`` holds the rest)."""
        lay = self.work.layout
        return self.dense.to_dict() | {
            "dp": lay.dp,
            "expert_parallel": lay.expert_parallel,
            "redundant": lay.redundant,
            "overlap": self.overlap,
            "query_tokens": self.query_tokens,
        }
