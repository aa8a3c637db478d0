"""TorchExecutor: runs plans on a model. It holds the token ids; the core never does."""

from __future__ import annotations

from dataclasses import dataclass, field

from minilab.core.plan import StepOutcome, StepPlan
from minilab.core.request import RequestState
from minilab.engine.batch import StepBatch
from minilab.engine.model import Decoder
from minilab.engine.sampling import Sampler, SamplingParams


@dataclass
class Generation:
    """The text of one request: prompt, then output, as token ids."""

    tokens: list[int]
    num_prompt_tokens: int
    params: SamplingParams
    finish_reason: str = ""

    @property
    def output(self) -> list[int]:
        """The ids that were generated."""
        return self.tokens[self.num_prompt_tokens :]


@dataclass
class TorchExecutor:
    """See ``core.plan.Executor``.

    Attributes:
        model: weights and KV cache.
        block_size: of the scheduler that makes the plans.
        texts: token ids of every request, by id.
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
        finished: dict[int, str] = {}
        for row, request in zip(logits, batch.sampling, strict=True):
            text = self.texts[request.id]
            token = self.sampler.draw(row, text.params, request.id)
            text.tokens.append(token)
            if token in self.model.config.eos_token_ids and not text.params.ignore_eos:
                finished[request.id] = text.finish_reason = "stop"
            elif len(text.output) >= text.params.max_tokens:
                text.finish_reason = "length"
            if text.finish_reason:
                self.sampler.forget(request.id)
        return StepOutcome(finished=finished)
