"""StepCost: what one step costs, as a sum of named terms with one efficiency each.

Per step with n new tokens, L layers, tp GPUs (bytes and FLOPs of the whole model):

    layers             (L + MoE layers * moe_launches) * t_layer
    weights            dense bytes / (tp * BW * e_mem)
    gemm               n * 2 * dense parameters / (tp * F * e_comp)
    expert_weights     expert bytes * (1 - (1 - k/E)^n) / (tp * BW * e_mem)
    expert_gemm        n * 2 * active expert parameters / (tp * F * e_moe)
    kv_read            context * KV bytes per token and GPU / (BW * e_mem)
    window_kv_read     the same for sliding-window layers, each context cut at the window
    state              sequences * 2 * state bytes / (BW * e_mem)      (linear attention only)
    prefill_attention  pairs * FLOPs per pair / (tp * F16 * e_comp)
    sequences          sequences * t_seq
    all_reduce         2 * L * t_ar                                     (tp > 1 only)
    link               n * 2 * L * 2 * hidden / (link * e_link)         (tp > 1 only)

The terms are added, never put under one max(): measured steps fit the sum better. A step touches
neither all experts nor top-k's share of them but the ones n tokens hit (uniform routing). Not in
it: compute of decode attention, windowed layers' prefill pairs, pipelines, expert parallelism.
"""

from __future__ import annotations

from typing import Any

from minilab.facts.cost_constants import Constants
from minilab.facts.cost_terms import LinearCost, StepShape, Term, table, window_context
from minilab.facts.errors import InputError
from minilab.facts.hardware import GPU, Link, get_link
from minilab.facts.models import ModelSpec, dtype_bytes


class StepCost:
    """The cost of a step of ``model`` on ``tp`` GPUs of one kind, from data sheets and Constants.

    ``weight_dtype`` "native" takes the published format. ``link`` (a name or a Link) carries the
    all-reduces; None takes the GPU's first. ``request_overhead`` is ``t_req``, outside any step.
    Raises InputError for unknown formats and links and for a tp below 1.
    """

    def __init__(
        self,
        model: ModelSpec,
        gpu: GPU,
        tp: int = 1,
        weight_dtype: str = "bf16",
        kv_dtype: str = "bf16",
        constants: Constants | None = None,
        link: str | Link | None = None,
    ) -> None:
        if tp < 1:
            raise InputError(f"tp is {tp}; give a whole number of GPUs, 1 or more")
        self.model = model
        self.gpu = gpu
        self.tp = tp
        self.weight_dtype = weight_dtype
        self.kv_dtype = kv_dtype
        self.constants = Constants.for_gpu(gpu) if constants is None else constants
        self.link = link if isinstance(link, Link) else get_link(link or gpu.links[0])
        self.request_overhead = self.constants.t_req
        self._linear = self._compile()

    def _compile(self) -> LinearCost:
        m, c, tp = self.model, self.constants, self.tp
        dense, expert = m.weight_dtypes(self.weight_dtype)
        read = self.gpu.mem_bw * c.e_mem
        fixed = self._launches() * c.t_layer + self._dense_bytes() / (tp * read)
        per_token = 2 * self._dense_params() / (tp * self.gpu.flops_at(dense) * c.e_comp)
        active = 2 * m.moe_layers * m.top_k * m.expert_params
        per_token += active / (tp * self.gpu.flops_at(expert) * c.e_moe)
        if tp > 1:
            fixed += 2 * m.layers * c.t_ar
            per_token += self._reduced_bytes() / (self.link.bandwidth * c.e_link)
        return LinearCost(
            per_seq=c.t_seq + 2 * m.state_bytes(tp) / read,
            per_context=m.full_kv_bytes_per_token(self.kv_dtype, tp) / read,
            per_pair=m.pair_flops / (tp * self.gpu.flops_at("bf16") * c.e_comp),
            per_window_context=m.window_kv_bytes_per_token(self.kv_dtype, tp) / read,
            window=m.window if m.window_layers else 0,
            request_overhead=c.t_req,
            fixed=fixed,
            per_token=per_token,
            expert_read=m.routed_params * dtype_bytes(expert) / (tp * read),
            expert_share=m.top_k / m.experts if m.experts else 0.0,
        )

    def _launches(self) -> float:
        """Layers, those with experts counted ``1 + moe_launches`` times."""
        return self.model.layers + self.model.moe_layers * self.constants.moe_launches

    def _dense_params(self) -> int:
        return self.model.body_params + self.model.head_params

    def _dense_bytes(self) -> float:
        """Bytes of weights that every step reads: no look-up tables, no experts."""
        dense = self.model.weight_dtypes(self.weight_dtype)[0]
        head = self.model.head_params * max(2.0, dtype_bytes(dense))
        return head + self.model.body_params * dtype_bytes(dense)

    def _reduced_bytes(self) -> int:
        """Bytes all-reduced per token: two a layer, hidden wide, bf16."""
        return 2 * self.model.layers * 2 * self.model.hidden

    def linear(self) -> LinearCost:
        """The same cost as coefficients, for a caller that evaluates it millions of times."""
        return self._linear

    def breakdown(self, shape: StepShape) -> list[Term]:
        """The terms of the sum with their arithmetic; terms the model cannot have are left out."""
        m, c, tp, n = self.model, self.constants, self.tp, shape.num_tokens
        dense, expert = m.weight_dtypes(self.weight_dtype)
        read = self.gpu.mem_bw * c.e_mem
        by_read = f"/ ({self.gpu.mem_bw / 1e12:.4g} TB/s x {c.e_mem:g})"
        split = f" / {tp} GPUs" if tp > 1 else ""
        terms: list[Term] = []

        def add(name: str, seconds: float, arithmetic: str) -> None:
            terms.append(Term(name, seconds, arithmetic))

        def add_flops(name: str, flops: float, dtype: str, share: float, what: str) -> None:
            peak = self.gpu.flops_at(dtype)
            text = f"{what}{split} / ({peak / 1e12:.4g} TFLOPS x {share:g})"
            add(name, flops / (tp * peak * share), text)

        launches = self._launches()
        add("layers", launches * c.t_layer, f"{launches:g} x {c.t_layer * 1e6:g} us")
        size = self._dense_bytes()
        add("weights", size / (tp * read), f"{size / 1e9:.4g} GB{split} {by_read}")
        flops = 2 * self._dense_params()
        add_flops("gemm", n * flops, dense, c.e_comp, f"{n} x {flops / 1e9:.4g} GFLOP")
        if m.moe_layers:
            touched = 1.0 - (1.0 - m.top_k / m.experts) ** n
            size = m.routed_params * dtype_bytes(expert)
            text = f"{size / 1e9:.4g} GB x {touched:.3f} touched{split} {by_read}"
            add("expert_weights", size * touched / (tp * read), text)
            flops = 2 * m.moe_layers * m.top_k * m.expert_params
            text = f"{n} x {flops / 1e9:.4g} GFLOP"
            add_flops("expert_gemm", n * flops, expert, c.e_moe, text)
        size = m.full_kv_bytes_per_token(self.kv_dtype, tp)
        add("kv_read", shape.context * size / read, f"{shape.context} x {size} B {by_read}")
        if m.window_layers:
            size = m.window_kv_bytes_per_token(self.kv_dtype, tp)
            seen = window_context(shape)
            add("window_kv_read", seen * size / read, f"{seen} x {size} B {by_read}")
        if m.linear_layers:
            size = 2 * m.state_bytes(tp)
            add("state", shape.num_seqs * size / read, f"{shape.num_seqs} x {size} B {by_read}")
        text = f"{shape.pairs} pairs x {m.pair_flops / 1e6:.4g} MFLOP"
        add_flops("prefill_attention", shape.pairs * m.pair_flops, "bf16", c.e_comp, text)
        add("sequences", shape.num_seqs * c.t_seq, f"{shape.num_seqs} x {c.t_seq * 1e6:g} us")
        if tp > 1:
            add("all_reduce", 2 * m.layers * c.t_ar, f"{2 * m.layers} x {c.t_ar * 1e6:g} us")
            size = self._reduced_bytes()
            text = f"{n} x {size} B / ({self.link.bandwidth / 1e9:.4g} GB/s x {c.e_link:g})"
            add("link", n * size / (self.link.bandwidth * c.e_link), text)
        return terms

    def terms(self, shape: StepShape) -> dict[str, float]:
        """Seconds by name (see the top of this file)."""
        return {term.name: term.seconds for term in self.breakdown(shape)}

    def seconds(self, shape: StepShape) -> float:
        """The step's duration in seconds: the sum of ``terms``."""
        return sum(self.terms(shape).values())

    def explain(self, shape: StepShape) -> str:
        """A table of the terms, their arithmetic and their shares."""
        title = f"{self.model.name} ({self.weight_dtype}) on {self.tp} x {self.gpu.name}"
        return table(f"{title}; constants: {self.constants.provenance}", self.breakdown(shape))

    def to_dict(self) -> dict[str, Any]:
        """What made it, as plain JSON values; ``cost.cost_from_dict`` reads it back."""
        return {
            "model": self.model.name,
            "gpu": self.gpu.name,
            "tp": self.tp,
            "weight_dtype": self.weight_dtype,
            "kv_dtype": self.kv_dtype,
            "link": self.link.name,
            "constants": self.constants.to_dict(),
        }
