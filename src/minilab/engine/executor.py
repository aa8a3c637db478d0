"""TorchExecutor: runs plans on a model. It holds the token ids; the core never does."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from minilab.core.plan import StepOutcome, StepPlan
from minilab.core.request import RequestState
from minilab.engine.batch import NO_DRAFTS, StepBatch
from minilab.engine.decode_graphs import DecodeGraphs
from minilab.engine.families import Model
from minilab.engine.generation import Generation
from minilab.engine.sampling import Sampler
from minilab.engine.spec.speculation import Speculation


@dataclass
class TorchExecutor:
    """See ``core.plan.Executor``.

    Attributes:
        model: weights and KV cache.
        block_size: of the scheduler that makes the plans.
        graphs: runs plain decode steps from CUDA graphs, if there.
        texts: tokens and text of every request that nobody has fetched yet, by id.
        speculation: guesses several tokens ahead; None: one token a step.
    """

    model: Model
    block_size: int
    sampler: Sampler = field(default_factory=Sampler)
    texts: dict[int, Generation] = field(default_factory=dict)
    speculation: Speculation | None = None
    graphs: DecodeGraphs | None = None

    def tokens_of(self, request: RequestState) -> list[int]:
        """Prompt and output so far of ``request``."""
        return self.texts[request.id].tokens

    def execute(self, plan: StepPlan) -> StepOutcome:
        """One forward pass; draws a token for each sequence that is computed to its end."""
        speculation = self.speculation
        drafts = speculation.draft_tokens if speculation else NO_DRAFTS
        batch = StepBatch.of(plan, self.tokens_of, self.block_size, self.model.device, drafts)
        logits = self._forward(batch)
        likeliest: list[int] = logits.argmax(dim=-1).tolist()
        judged: dict[int, list[int]] = {}
        if speculation and plan.drafts:
            judged = speculation.judge(batch, logits, likeliest, self.texts, self.sampler)
        finished: dict[int, str] = {}
        counts: dict[int, int] = {}
        row = 0
        for request, asked in zip(batch.sampling, batch.num_sampled, strict=True):
            tokens = judged.get(request.id)
            if tokens is None:
                tokens = [self._draw(logits[row], likeliest[row], request.id)]
            row += asked
            text = self.texts[request.id]
            count = self._push(text, tokens)
            if count != 1:
                counts[request.id] = count
            if speculation and request.id in plan.decodes:
                speculation.counts.count(asked - 1, len(tokens) - 1, count)
            if text.finish_reason == "stop":
                finished[request.id] = "stop"
            if text.finish_reason:
                self.forget(request.id)
        if not speculation:
            return StepOutcome(finished=finished)
        running = [(r.id, self.texts[r.id]) for r in batch.sampling]
        proposed = speculation.propose(one for one in running if not one[1].finish_reason)
        return StepOutcome(tokens=counts, finished=finished, drafts=proposed)

    def forget(self, request_id: int) -> None:
        """A request has ended, by itself or by an abort."""
        self.sampler.forget(request_id)
        if self.speculation:
            self.speculation.forget(request_id)

    def _forward(self, batch: StepBatch) -> torch.Tensor:
        """Logits of the rows that are asked; a proposer that reads hidden states sees them."""
        if not self.speculation or not self.speculation.proposer.reads_hidden:
            return (self.graphs or self.model).forward(batch)
        hidden = self.model.hidden(batch)
        self.speculation.proposer.observe(batch, hidden)
        return self.model.logits(hidden[batch.sampled])

    def _draw(self, logits: torch.Tensor, likeliest: int, request_id: int) -> int:
        params = self.texts[request_id].params
        if params.temperature == 0:
            return likeliest
        return self.sampler.draw(logits, params, request_id)

    def _push(self, text: Generation, tokens: list[int]) -> int:
        """Append ``tokens`` until one of them ends the text; returns how many."""
        for count, token in enumerate(tokens, 1):
            text.push(token, self.model.config.eos_token_ids)
            if text.finish_reason:
                return count
        return len(tokens)
