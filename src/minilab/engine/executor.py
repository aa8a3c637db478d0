"""TorchExecutor: runs plans on a model. It holds the token ids; the core never does."""

from __future__ import annotations

from dataclasses import dataclass, field

from minilab.core.plan import StepOutcome, StepPlan
from minilab.core.request import RequestState
from minilab.engine.batch import StepBatch
from minilab.engine.generation import Generation
from minilab.engine.model import Decoder
from minilab.engine.sampling import Sampler


@dataclass
class TorchExecutor:
    """See ``core.plan.Executor``.

    Attributes:
        model: weights and KV cache.
        block_size: of the scheduler that makes the plans.
        texts: tokens and text of every request that nobody has fetched yet, by id.
    """

    model: Decoder
    block_size: int
    sampler: Sampler = field(default_factory=Sampler)
    texts: dict[int, Generation] = field(default_factory=dict)

    def tokens_of(self, request: RequestState) -> list[int]:
        """Prompt and output so far of ``request``."""
        return self.texts[request.id].tokens

    def execute(self, plan: StepPlan) -> StepOutcome:
        """One forward pass; draws a token for each sequence that is computed to its end."""
        batch = StepBatch.of(plan, self.tokens_of, self.block_size, self.model.device)
        logits = self.model.forward(batch)
        likeliest = logits.argmax(dim=-1).tolist()
        finished: dict[int, str] = {}
        for row, request in enumerate(batch.sampling):
            text = self.texts[request.id]
            token = likeliest[row]
            if text.params.temperature > 0:
                token = self.sampler.draw(logits[row], text.params, request.id)
            text.push(token, self.model.config.eos_token_ids)
            if text.finish_reason == "stop":
                finished[request.id] = "stop"
            if text.finish_reason:
                self.sampler.forget(request.id)
        return StepOutcome(finished=finished)
