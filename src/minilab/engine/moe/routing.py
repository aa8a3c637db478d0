"""Routing: how a layer's experts are chosen for a token."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from minilab.kernels.moe_router import moe_router


@dataclass(frozen=True)
class Routing:
    """The constants of a router.

    Attributes:
        top_k: experts per token, out of ``num_experts``.
        num_groups, topk_group: experts come from the best ``topk_group`` of so many groups of
            neighbours; 1 and 1 for free choice.
        scoring: "sigmoid" of each logit, or "softmax" over all.
        biased: a bias per expert is added to the scores that choose, not to those that weigh.
        renormalize: a token's weights are divided by their sum.
        scale: what the weights are multiplied by, last.
    """

    num_experts: int
    top_k: int
    num_groups: int = 1
    topk_group: int = 1
    scoring: str = "softmax"
    biased: bool = False
    renormalize: bool = True
    scale: float = 1.0

    def choose(
        self, logits: torch.Tensor, bias: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights float32 and ids int32 [num_tokens, top_k], best first, by ``moe_router``.

        ``logits``: [num_tokens, num_experts]; ``bias``: float32 [num_experts].
        """
        return moe_router(
            logits,
            self.top_k,
            scoring_func=self.scoring,
            renormalize=self.renormalize,
            num_expert_group=self.num_groups,
            topk_group=self.topk_group,
            e_score_correction_bias=bias,
            routed_scaling_factor=self.scale,
        )
