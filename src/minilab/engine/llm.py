"""LLM: prompts in, texts out, in one call, as vLLM's class of that name.

The loop is the whole engine: the scheduler plans a step, the executor computes it, the scheduler
counts what came out. It is the same scheduler that the simulator drives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minilab.core.block_hash import TokenHasher
from minilab.core.config import SchedulerConfig
from minilab.core.request import RequestState
from minilab.core.scheduler import Scheduler
from minilab.engine.config import DecoderConfig
from minilab.engine.decode_graphs import DecodeGraphs
from minilab.engine.executor import TorchExecutor
from minilab.engine.families import Model, ModelConfig, new_model
from minilab.engine.generation import Generation
from minilab.engine.model import Decoder
from minilab.engine.output import Output
from minilab.engine.paged_model import Weights
from minilab.engine.prompts import Prompt, listed, rules_for, token_ids
from minilab.engine.record import EngineRecord
from minilab.engine.sampling import Sampler, SamplingParams
from minilab.engine.spec.speculation import Speculation
from minilab.facts.errors import InputError
from minilab.facts.request import Request

if TYPE_CHECKING:
    from minilab.engine.quant.kv_cache import QuantisedKV
    from minilab.engine.tiers import KVTiers
    from minilab.engine.tokenizer import Tokenizer


class LLM:
    """A model behind the serving core. ``load.load_llm`` makes one from a checkpoint.

    Attributes:
        scheduler, executor: the two halves; tests and labs drive them by hand.
        tokenizer: ``None``: prompts are token ids, and outputs have no text.
        record: what happened when; ``record.to_runlog()`` is a run log like the simulator's.
        num_steps: forward passes so far.

    ``kv``: keep the KV cache in another format (``quant.kv_cache``).
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        limits: SchedulerConfig | None = None,
        seed: int = 0,
        tokenizer: Tokenizer | None = None,
        kv: QuantisedKV | None = None,
        speculation: Speculation | None = None,
    ) -> None:
        limits = limits or SchedulerConfig(num_blocks=512)
        sizes = limits.num_blocks, limits.block_size
        model: Model
        if kv is None:
            model = new_model(config, weights, *sizes)
        elif not isinstance(config, DecoderConfig):
            raise InputError("kv: a cache of latents has one format, its weights' dtype; leave it")
        else:
            cache = kv.new_cache(config, *sizes, weights["model.embed_tokens.weight"].device)
            model = Decoder(config, weights, *sizes, kv.attention(cache), cache.codes)
        self.executor = TorchExecutor(
            model, limits.block_size, Sampler(seed), speculation=speculation
        )
        hasher = TokenHasher(limits.block_size, self.executor.tokens_of)
        self.scheduler = Scheduler(limits, hasher)
        self.tiers: KVTiers | None = None
        self.tokenizer = tokenizer
        self.record = EngineRecord(self.scheduler)
        self.num_steps = 0
        self._next_id = 0

    @property
    def max_model_len(self) -> int:
        """Most tokens of one request, prompt and output: the model's context, or the KV pool."""
        limits = self.scheduler.config
        pool = limits.num_blocks * limits.block_size + 1  # the last token needs no KV
        return min(pool, self.executor.model.config.max_position_embeddings or pool)

    def use_decode_graphs(self) -> DecodeGraphs:
        """Replay decode steps from CUDA graphs from now on; see ``decode_graphs`` for the cost.

        Raises:
            InputError: the model is not on a GPU that runs the Triton kernels, or has latents.
        """
        model = self.executor.model
        if not isinstance(model, Decoder):
            raise InputError("CUDA graphs are built for Llama-like models only; leave them off")
        limits = self.scheduler.config
        longest = -(-self.max_model_len // limits.block_size)
        self.executor.graphs = DecodeGraphs(model, longest)
        return self.executor.graphs

    def use_speculation(self, speculation: Speculation) -> None:
        """Guess several tokens ahead from now on; call it before the first request."""
        self.executor.speculation = speculation

    def use_tiers(self, tiers: KVTiers) -> None:
        """Keep KV blocks in CPU memory or on disk as well, from now on (see ``tiers``)."""
        tiers.attach(self.executor.model.kv_cache)
        self.tiers = tiers
        self.scheduler.use_tiers(tiers)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        cache_salt: str | None = None,
    ) -> list[Output]:
        """Continue every prompt, all of them in one batch that changes as they end.

        A prompt is a text, or a list of token ids. ``params`` are for all, or one for each.
        Nothing is queued unless every request can be served, and nothing stays if interrupted.

        Raises:
            InputError: an empty prompt, a token outside the vocabulary, a request longer than the
                model or the KV pool allows, a text but no tokenizer.
        """
        asked = listed(prompts)
        rules = rules_for(params or SamplingParams(), len(asked))
        ids = [token_ids(prompt, self.tokenizer) for prompt in asked]
        for prompt, rule in zip(ids, rules, strict=True):
            self.check(prompt, rule)
        states = [self.add(one, rule, cache_salt) for one, rule in zip(ids, rules, strict=True)]
        try:
            while self.step():
                pass
        except BaseException:
            for state in states:
                self.abort(state)
            raise
        texts = [prompt if isinstance(prompt, str) else None for prompt in asked]
        return [self.output(state, text) for state, text in zip(states, texts, strict=True)]

    def check(self, prompt_token_ids: Sequence[int], params: SamplingParams) -> None:
        """Raise the InputError of ``generate`` if such a request could never be served."""
        vocabulary = self.executor.model.config.vocab_size
        if not prompt_token_ids:
            raise InputError("prompt is empty; give at least one token")
        if not all(0 <= token < vocabulary for token in prompt_token_ids):
            raise InputError(f"prompt has a token id outside 0..{vocabulary - 1}")
        longest = len(prompt_token_ids) + params.max_tokens
        if longest > self.max_model_len:
            limits = self.scheduler.config
            raise InputError(
                f"{len(prompt_token_ids)} prompt and up to {params.max_tokens} output tokens, but "
                f"a request may have {self.max_model_len} (the KV pool holds "
                f"{limits.num_blocks * limits.block_size}); shorten the prompt or lower max_tokens"
            )
        if params.stop and self.tokenizer is None:
            raise InputError("stop strings need a tokenizer; give stop_token_ids instead")

    def add(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        cache_salt: str | None = None,
    ) -> RequestState:
        """Queue one prompt of token ids; see ``generate`` for the errors.

        While it runs, ``executor.texts[state.id]`` holds its tokens, text and finish reason;
        ``output(state)`` takes them out when it has ended.
        """
        self.check(prompt_token_ids, params)
        number = self._next_id
        count = len(prompt_token_ids)
        state = RequestState(Request(number, 0.0, count, params.max_tokens, cache_salt=cache_salt))
        if not self.scheduler.add(state):
            raise AssertionError(f"request {number} passed the check but does not fit the pool")
        self._next_id += 1
        self.record.arrived(state)
        self.executor.texts[number] = Generation([*prompt_token_ids], params, self.tokenizer)
        return state

    def step(self) -> bool:
        """One forward pass; False when nothing is left to do."""
        plan = self.scheduler.schedule()
        for request in plan.loads:
            assert self.tiers is not None
            self.tiers.load(request)
            self.scheduler.remote.finish_loading(request.id)
        if not plan:
            return bool(plan.loads)
        self.record.begins(plan)
        outcome = self.executor.execute(plan)
        self.record.moved(plan, outcome)
        result = self.scheduler.update(plan, outcome)
        self.record.ends(plan, result)
        self.num_steps += 1
        return True

    def abort(self, state: RequestState) -> None:
        """Forget a request that ``add`` returned, wherever it stands; one that has ended, too."""
        text = self.executor.texts.pop(state.id, None)
        if text is not None and not text.finish_reason:
            self.scheduler.abort(state)
            self.executor.forget(state.id)
            self.record.aborted(state)
        state.block_hashes.clear()  # the record keeps the request, but not what only a pool needs

    def output(self, state: RequestState, prompt: str | None = None) -> Output:
        """Take the result of a request that has ended; it is forgotten here."""
        text = self.executor.texts.pop(state.id)
        state.block_hashes.clear()
        return Output.of(text, state.num_cached_tokens, prompt)
