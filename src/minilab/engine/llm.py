"""LLM: prompts in, texts out, in one call, as vLLM's class of that name.

The loop is the whole engine: the scheduler plans a step, the executor computes it, the scheduler
counts what came out. It is the same scheduler that the simulator drives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minilab.core.block_hash import TokenHasher
from minilab.core.config import SchedulerConfig
from minilab.core.request import REJECTED, RequestState
from minilab.core.scheduler import Scheduler
from minilab.engine.config import DecoderConfig
from minilab.engine.executor import Generation, TorchExecutor
from minilab.engine.model import Decoder, Weights
from minilab.engine.record import EngineRecord
from minilab.engine.sampling import Sampler, SamplingParams
from minilab.facts.errors import InputError
from minilab.facts.request import Request


@dataclass(frozen=True)
class Output:
    """What a request came to.

    Attributes:
        token_ids: the generated tokens.
        finish_reason: "length", or "stop" for the end-of-text token.
        num_cached_tokens: prompt tokens whose KV was found in the prefix cache.
    """

    prompt_token_ids: list[int]
    token_ids: list[int]
    finish_reason: str
    num_cached_tokens: int


class LLM:
    """A model behind the serving core, for offline use.

    Attributes:
        scheduler, executor: the two halves; tests and labs drive them by hand.
        record: what happened when; ``record.to_runlog()`` is a run log like the simulator's.
        num_steps: forward passes so far.
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: Weights,
        limits: SchedulerConfig | None = None,
        seed: int = 0,
    ) -> None:
        limits = limits or SchedulerConfig(num_blocks=512)
        model = Decoder(config, weights, limits.num_blocks, limits.block_size)
        self.executor = TorchExecutor(model, limits.block_size, Sampler(seed))
        hasher = TokenHasher(limits.block_size, self.executor.tokens_of)
        self.scheduler = Scheduler(limits, hasher)
        self.record = EngineRecord(self.scheduler)
        self.num_steps = 0
        self._next_id = 0

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        cache_salt: str | None = None,
    ) -> list[Output]:
        """Continue every prompt (token ids), all of them in one batch that changes as they end.

        Raises:
            InputError: an empty prompt, a token outside the vocabulary, or a request that the KV
                pool could never hold.
        """
        chosen = params or SamplingParams()
        rules = [chosen] * len(prompts) if isinstance(chosen, SamplingParams) else list(chosen)
        states = [
            self.add(prompt, rule, cache_salt) for prompt, rule in zip(prompts, rules, strict=True)
        ]
        while self.step():
            pass
        return [self._output(state) for state in states]

    def add(
        self, prompt: Sequence[int], params: SamplingParams, cache_salt: str | None = None
    ) -> RequestState:
        """Queue one prompt; see ``generate`` for the errors."""
        vocabulary = self.executor.model.config.vocab_size
        if not prompt:
            raise InputError("prompt is empty; give at least one token id")
        if not all(0 <= token < vocabulary for token in prompt):
            raise InputError(f"prompt has a token id outside 0..{vocabulary - 1}")
        number = self._next_id
        spec = Request(number, 0.0, len(prompt), params.max_tokens, cache_salt=cache_salt)
        state = RequestState(spec)
        if not self.scheduler.add(state):
            assert state.status == REJECTED
            room = self.scheduler.config.num_blocks * self.scheduler.config.block_size
            raise InputError(
                f"{len(prompt)} prompt and up to {params.max_tokens} output tokens; the KV pool "
                f"holds {room}; shorten the request or give the pool more blocks"
            )
        self._next_id += 1
        self.record.arrived(state)
        self.executor.texts[number] = Generation([*prompt], len(prompt), replace(params))
        return state

    def step(self) -> bool:
        """One forward pass; False when nothing is left to do."""
        plan = self.scheduler.schedule()
        if not plan:
            return False
        self.record.begins(plan)
        result = self.scheduler.update(plan, self.executor.execute(plan))
        self.record.ends(plan, result)
        self.num_steps += 1
        return True

    def abort(self, state: RequestState) -> None:
        """Forget a request that ``add`` returned, wherever it stands."""
        self.scheduler.abort(state)
        self.executor.texts.pop(state.id, None)

    def _output(self, state: RequestState) -> Output:
        text = self.executor.texts.pop(state.id)
        cached = max(0, state.num_cached_tokens)
        prompt = text.tokens[: text.num_prompt_tokens]
        return Output(prompt, text.output, text.finish_reason, cached)
