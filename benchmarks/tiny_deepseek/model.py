"""The model in the form that training wants: dense attention, one batch of equal windows.

Parameters carry the names of the public checkpoints, except that a layer's experts are stacked in
two tensors (``experts.gate_up`` [experts, 2 * inter, hidden], ``experts.down`` [experts, hidden,
inter]); ``export.py`` takes them apart. The engine has its own forward pass over pages of latents;
a test holds the two to each other.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy, embedding, linear, silu

CONFIG: dict[str, Any] = json.loads((Path(__file__).parent / "config.json").read_text())
C = CONFIG
HIDDEN, HEADS, EXPERTS = C["hidden_size"], C["num_attention_heads"], C["n_routed_experts"]
LATENT, ROPE = C["kv_lora_rank"], C["qk_rope_head_dim"]
NOPE, VALUE = C["qk_nope_head_dim"], C["v_head_dim"]
LAYERS, DENSE = C["num_hidden_layers"], C["first_k_dense_replace"]
MTP = LAYERS
"""The number of the MTP module's layer: it follows the model's own."""
MOE_LAYERS = [*range(DENSE, LAYERS), MTP]

BLOCK = 64
"""Queries that attend together."""

Params = dict[str, torch.Tensor]


def shapes() -> dict[str, tuple[int, ...]]:
    """Shape of every parameter."""
    inter, wide = C["moe_intermediate_size"], C["intermediate_size"]
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (C["vocab_size"], HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (C["vocab_size"], HIDDEN),
    }
    for layer in range(LAYERS + 1):
        at = f"model.layers.{layer}."
        found |= {
            at + "input_layernorm.weight": (HIDDEN,),
            at + "self_attn.q_a_proj.weight": (C["q_lora_rank"], HIDDEN),
            at + "self_attn.q_a_layernorm.weight": (C["q_lora_rank"],),
            at + "self_attn.q_b_proj.weight": (HEADS * (NOPE + ROPE), C["q_lora_rank"]),
            at + "self_attn.kv_a_proj_with_mqa.weight": (LATENT + ROPE, HIDDEN),
            at + "self_attn.kv_a_layernorm.weight": (LATENT,),
            at + "self_attn.kv_b_proj.weight": (HEADS * (NOPE + VALUE), LATENT),
            at + "self_attn.o_proj.weight": (HIDDEN, HEADS * VALUE),
            at + "post_attention_layernorm.weight": (HIDDEN,),
        }
        name, width = at + "mlp.", wide
        if layer in MOE_LAYERS:
            found[at + "mlp.gate.weight"] = (EXPERTS, HIDDEN)
            found[at + "mlp.experts.gate_up"] = (EXPERTS, 2 * inter, HIDDEN)
            found[at + "mlp.experts.down"] = (EXPERTS, HIDDEN, inter)
            name, width = at + "mlp.shared_experts.", inter * C["n_shared_experts"]
        found |= {
            name + "gate_proj.weight": (width, HIDDEN),
            name + "up_proj.weight": (width, HIDDEN),
            name + "down_proj.weight": (HIDDEN, width),
        }
    at = f"model.layers.{MTP}."
    found |= {at + part + ".weight": (HIDDEN,) for part in ("enorm", "hnorm", "shared_head.norm")}
    found[at + "eh_proj.weight"] = (HIDDEN, 2 * HIDDEN)
    return found


def start(seed: int) -> Params:
    """Random parameters: half of the usual spread, less where a branch joins the residual."""
    dice = torch.Generator().manual_seed(seed)
    params: Params = {}
    for name, shape in shapes().items():
        if len(shape) == 1:
            params[name] = torch.ones(shape)
            continue
        std = 0.5 if name == "model.embed_tokens.weight" else 0.5 / math.sqrt(shape[-1])
        if "o_proj" in name or "down" in name:
            std /= math.sqrt(2 * LAYERS)
        params[name] = torch.randn(shape, generator=dice) * std
    return params


class Experts(torch.autograd.Function):
    """The routed experts: pairs (token, expert) sorted by expert, one product per expert.

    Written by hand because autograd would keep and sum one full-size gradient per expert.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        x: torch.Tensor,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
    ) -> torch.Tensor:
        top_k = ids.shape[1]
        order = ids.flatten().argsort()
        ends = ids.flatten().bincount(minlength=len(down)).cumsum(0).tolist()
        share = weights.flatten()[order, None]
        xs = x[order // top_k]
        both = x.new_empty(len(order), gate_up.shape[1])
        for e, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
            torch.mm(xs[first:end], gate_up[e].t(), out=both[first:end])
        gate, up = both.chunk(2, dim=1)
        inner = silu(gate) * up
        mixed = inner * share
        ys = torch.empty_like(xs)
        for e, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
            torch.mm(mixed[first:end], down[e].t(), out=ys[first:end])
        ctx.save_for_backward(xs, both, inner, mixed, share, order, gate_up, down)
        ctx.ends, ctx.top_k = ends, top_k
        return _sum_per_token(ys, order, top_k)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        xs, both, inner, mixed, share, order, gate_up, down = ctx.saved_tensors
        ends, top_k = ctx.ends, ctx.top_k
        grads = grad[order // top_k]
        d_mixed = torch.empty_like(mixed)
        d_down, d_gate_up = torch.empty_like(down), torch.empty_like(gate_up)
        for e, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
            torch.mm(grads[first:end], down[e], out=d_mixed[first:end])
            torch.mm(grads[first:end].t(), mixed[first:end], out=d_down[e])
        d_share = (d_mixed * inner).sum(1)
        d_inner = d_mixed * share
        gate, up = both.chunk(2, dim=1)
        sigmoid = gate.sigmoid()
        d_gate = d_inner * up * (sigmoid * (1 + gate * (1 - sigmoid)))
        d_both = torch.cat((d_gate, d_inner * gate * sigmoid), dim=1)
        d_xs = torch.empty_like(xs)
        for e, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
            torch.mm(d_both[first:end], gate_up[e], out=d_xs[first:end])
            torch.mm(d_both[first:end].t(), xs[first:end], out=d_gate_up[e])
        d_weights = torch.empty_like(d_share)
        d_weights[order] = d_share
        return (
            _sum_per_token(d_xs, order, top_k),
            d_gate_up,
            d_down,
            None,
            d_weights.view(-1, top_k),
        )


class CausalAttention(torch.autograd.Function):
    """Attention in blocks of queries, each over the keys up to its end.

    On a CPU this is a third faster than the whole square: less to multiply, and it stays in cache.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        scale = query.shape[-1] ** -0.5
        out = torch.empty_like(value)
        odds = []
        for first in range(0, query.shape[1], BLOCK):
            end = min(first + BLOCK, query.shape[1])
            keys = key[:, :end].transpose(1, 2)
            scores = torch.baddbmm(mask[first:end, :end], query[:, first:end], keys, alpha=scale)
            odds.append(scores.softmax(-1))
            out[:, first:end] = torch.bmm(odds[-1], value[:, :end])
        ctx.save_for_backward(query, key, value, out, *odds)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        query, key, value, out, *odds = ctx.saved_tensors
        scale = query.shape[-1] ** -0.5
        d_query = torch.empty_like(query)
        d_key, d_value = torch.zeros_like(key), torch.zeros_like(value)
        mean = (grad * out).sum(-1, keepdim=True)
        for number, p in enumerate(odds):
            first, end = number * BLOCK, p.shape[-1]
            part = grad[:, first:end]
            d_value[:, :end].baddbmm_(p.transpose(1, 2), part)
            d_scores = torch.bmm(part, value[:, :end].transpose(1, 2))
            d_scores.sub_(mean[:, first:end]).mul_(p)
            d_query[:, first:end] = torch.bmm(d_scores, key[:, :end]).mul_(scale)
            d_key[:, :end].baddbmm_(d_scores.transpose(1, 2), query[:, first:end], alpha=scale)
        return d_query, d_key, d_value, None


class RMSNorm(torch.autograd.Function):
    """torch's own is a dozen passes over the rows on a CPU; this is six."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        factor = (size * size / x.shape[-1] + C["rms_norm_eps"]).rsqrt_()
        normed = x * factor
        ctx.save_for_backward(normed, factor, weight)
        return normed * weight

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        normed, factor, weight = ctx.saved_tensors
        along = grad * normed
        share = (along @ weight)[..., None] / normed.shape[-1]
        d_x = torch.addcmul(grad * weight, normed, share, value=-1).mul_(factor)
        return d_x, along.flatten(0, -2).sum(0)


def _sum_per_token(rows: torch.Tensor, order: torch.Tensor, top_k: int) -> torch.Tensor:
    unsorted = torch.empty_like(rows)
    unsorted[order] = rows
    return unsorted.view(-1, top_k, rows.shape[1]).sum(1)


def route(scores: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(ids, weights) [tokens, top_k]: the best experts of the best groups; the bias only chooses.

    A group counts as much as its two best experts do (DeepSeek-V3, arXiv 2412.19437, 2.1.2).
    """
    with torch.no_grad():
        choice = (scores + bias).view(len(scores), C["n_group"], -1)
        best = choice.topk(2, dim=-1).values.sum(-1)
        groups = best.topk(C["topk_group"], dim=-1).indices
        closed = torch.ones_like(best, dtype=torch.bool).scatter_(1, groups, False)
        choice = choice.masked_fill(closed[..., None], -torch.inf).flatten(1)
        ids = choice.topk(C["num_experts_per_tok"], dim=-1).indices
    chosen = scores.gather(1, ids)
    return ids, chosen / (chosen.sum(-1, keepdim=True) + 1e-20) * C["routed_scaling_factor"]


def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """RMS norm over the last dimension."""
    normed: torch.Tensor = RMSNorm.apply(x, weight)
    return normed


def swiglu(x: torch.Tensor, params: Params, at: str) -> torch.Tensor:
    gate = silu(linear(x, params[at + "gate_proj.weight"]))
    up = linear(x, params[at + "up_proj.weight"])
    return linear(gate * up, params[at + "down_proj.weight"])


class Model:
    """The forward pass; keeps each MoE layer's bias and the load of the last step.

    Attributes:
        bias: float32 [EXPERTS] by layer, moved by ``balance`` and not by the optimiser.
        load: int64 [EXPERTS] by layer: pairs that the last forward pass sent to each expert.
    """

    def __init__(self, params: Params) -> None:
        self.params = params
        self.bias = {layer: torch.zeros(EXPERTS) for layer in MOE_LAYERS}
        self.load = {layer: torch.zeros(EXPERTS, dtype=torch.int64) for layer in MOE_LAYERS}
        self._masks: dict[int, torch.Tensor] = {}

    def losses(self, windows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cross-entropies of the next token and, by the MTP module, of the one after it.

        ``windows``: int64 [batch, length + 2].
        """
        hidden, ahead = self.features(windows[:, :-1])
        head = self.params["lm_head.weight"]
        first = cross_entropy(linear(hidden, head).flatten(0, 1), windows[:, 1:-1].flatten())
        second = cross_entropy(linear(ahead, head).flatten(0, 1), windows[:, 2:].flatten())
        return first, second

    def features(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Normed features of tokens[:, :-1]: of the model, and of its MTP module, which sees the
        following token as well. ``tokens``: int64 [batch, length + 1]."""
        params = self.params
        vectors = embedding(tokens, params["model.embed_tokens.weight"])
        x = vectors[:, :-1]
        turns = rotations(x.shape[1])
        for layer in range(LAYERS):
            x = self._layer(x, layer, turns)
        hidden = norm(x, params["model.norm.weight"])
        at = f"model.layers.{MTP}."
        both = torch.cat(
            (
                norm(vectors[:, 1:], params[at + "enorm.weight"]),
                norm(hidden, params[at + "hnorm.weight"]),
            ),
            dim=-1,
        )
        # Its positions are one higher, all of them: a rotation does not see that.
        ahead = self._layer(linear(both, params[at + "eh_proj.weight"]), MTP, turns)
        return hidden, norm(ahead, params[at + "shared_head.norm.weight"])

    def balance(self, step: float) -> None:
        """Loss-free balancing: the bias of a busy expert falls by ``step``, others' rises."""
        for layer, load in self.load.items():
            self.bias[layer] += step * torch.sign(load.float().mean() - load)

    def _layer(self, x: torch.Tensor, layer: int, turns: torch.Tensor) -> torch.Tensor:
        at, params = f"model.layers.{layer}.", self.params
        normed = norm(x, params[at + "input_layernorm.weight"])
        x = x + self._attention(normed, at + "self_attn.", turns)
        normed = norm(x, params[at + "post_attention_layernorm.weight"])
        if layer in MOE_LAYERS:
            return x + self._moe(normed.flatten(0, 1), layer).view_as(x)
        return x + swiglu(normed, params, at + "mlp.")

    def _moe(self, x: torch.Tensor, layer: int) -> torch.Tensor:
        at, params = f"model.layers.{layer}.mlp.", self.params
        scores = linear(x.float(), params[at + "gate.weight"]).sigmoid()
        ids, weights = route(scores, self.bias[layer])
        self.load[layer] = ids.flatten().bincount(minlength=EXPERTS)
        stacks = params[at + "experts.gate_up"], params[at + "experts.down"]
        routed: torch.Tensor = Experts.apply(x, *stacks, ids, weights)
        return routed + swiglu(x, params, at + "shared_experts.")

    def _attention(self, x: torch.Tensor, at: str, turns: torch.Tensor) -> torch.Tensor:
        params, (batch, length) = self.params, x.shape[:2]

        def project(y: torch.Tensor, name: str) -> torch.Tensor:
            return linear(y, params[f"{at}{name}.weight"])

        query = project(
            norm(project(x, "q_a_proj"), params[at + "q_a_layernorm.weight"]), "q_b_proj"
        )
        query = query.view(batch, length, HEADS, -1)
        latent, shared = project(x, "kv_a_proj_with_mqa").split((LATENT, ROPE), dim=-1)
        latent = norm(latent, params[at + "kv_a_layernorm.weight"])
        expanded = project(latent, "kv_b_proj").view(batch, length, HEADS, NOPE + VALUE)
        key, value = expanded.split((NOPE, VALUE), dim=-1)
        turned = rotate(shared[:, :, None], turns).expand(-1, -1, HEADS, -1)
        key = torch.cat((key, turned), dim=-1).transpose(1, 2).flatten(0, 1)
        query = torch.cat((query[..., :NOPE], rotate(query[..., NOPE:], turns)), dim=-1)
        query = query.transpose(1, 2).flatten(0, 1)
        value = value.transpose(1, 2).flatten(0, 1)
        mixed: torch.Tensor = CausalAttention.apply(query, key, value, self._mask(length))
        mixed = mixed.view(batch, HEADS, length, VALUE).transpose(1, 2).flatten(2)
        return project(mixed, "o_proj")

    def _mask(self, length: int) -> torch.Tensor:
        if length not in self._masks:
            self._masks[length] = torch.full((length, length), -torch.inf).triu(1)
        return self._masks[length]


def rotations(length: int) -> torch.Tensor:
    """cos and sin of the rotary angles, [2, length, 1, ROPE / 2]."""
    half = torch.arange(0, ROPE, 2, dtype=torch.float32)
    angles = torch.arange(length)[:, None] * C["rope_theta"] ** (-half / ROPE)
    return torch.stack((angles.cos(), angles.sin()))[:, :, None]


def rotate(x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Pairs (2i, 2i+1) turned. They come out as halves: query and key alike, so scores agree."""
    cos, sin = turns
    first, second = x[..., 0::2], x[..., 1::2]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
