"""How long a step of an engine takes on this machine: real steps, made to order and timed.

A point is a step's make-up: so many decodes at such a context, and a chunk of prompt. Getting there
(a batch of long contexts) would cost far more than the step itself, so the way there is planned by
the real scheduler but not computed: the KV cache then holds noise, and noise takes as long to read.

The engine is given, not imported: this module runs where torch is missing, and knows of an engine
only its two halves.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from minilab.facts.cost import StepShape
from minilab.facts.errors import InputError
from minilab.judge.engine_clock import Clock, WallClock

MakeRules = Callable[[int], Any]
"""From a number of output tokens to the engine's sampling parameters (greedy, no early end)."""


STEPS = 3
"""Steps timed in a row at a point of decodes only."""

BLOCK = 64
"""Tokens of the pool left free for each sequence, whatever the block size."""


class Point(NamedTuple):
    """A step to order: ``decodes`` sequences with ``context`` KV tokens each, the new one included,
    and a chunk of ``chunk`` prompt tokens (0: none) behind ``start`` computed ones. ``start`` is 0
    beside decodes, else a multiple of the step's budget: a scheduler puts no other there.
    """

    decodes: int
    context: int
    chunk: int = 0
    start: int = 0

    @property
    def name(self) -> str:
        """As a store and a reader know it."""
        decodes = [f"{self.decodes} x {self.context}"] if self.decodes else []
        chunk = [f"{self.chunk} @ {self.start}"] if self.chunk else []
        return " + ".join(decodes + chunk)

    def output(self, budget: int, steps: int) -> int:
        """Tokens that its first sequence needs to go on for: while the others' prompts are put in
        place, ``budget`` tokens a step, the first ones decode already.
        """
        return steps + 4 + 2 * -(-self.decodes * self.context // budget)

    def fits(self, budget: int, pool: int, longest: int) -> bool:
        """Whether an engine with these limits (tokens) can do it."""
        own = self.context + self.output(budget, STEPS) if self.decodes else 0
        most = max(own, self.start + self.chunk + 2)
        whole = self.decodes * (own + BLOCK) + self.start + self.chunk + BLOCK
        reached = self.start % budget == 0 and not (self.start and self.decodes)
        small = self.decodes + self.chunk <= budget
        return reached and small and most <= longest and whole <= pool


class Timed(NamedTuple):
    """One step: what it did and how long it took (s, planning and bookkeeping included)."""

    shape: StepShape
    seconds: float


def default_points(max_num_seqs: int, budget: int, pool: int, longest: int) -> list[Point]:
    """Decodes, prefills and mixed steps that an engine with these limits can do.

    ``budget``: tokens of a step. ``pool``: KV tokens. ``longest``: tokens of one request. Batches
    and chunks grow by factors of 2 to 4, since errors are judged as shares.
    """
    top = max(2, min(longest - 8, 768))
    contexts = sorted({max(2, top // 24), max(2, top // 3), top})
    batches = [b for b in (1, 2, 4, 8, 16, 32, 64) if b <= max_num_seqs]
    points = [Point(b, c) for b in batches for c in contexts]
    chunks = [n for n in (8, 32, 96, 256, 512, 1024) if n <= min(budget, longest - 2)]
    points += [Point(0, 0, n) for n in chunks]
    points += [Point(0, 0, n, budget) for n in chunks]
    mixed = sorted({max_num_seqs // 4, max_num_seqs // 2, max_num_seqs - 1} - {0})
    points += [Point(b, contexts[1], n) for b in mixed for n in chunks]
    return [point for point in points if point.fits(budget, pool, longest)]


class StepBench:
    """Orders steps of one engine.

    Args:
        llm: an ``engine.llm.LLM`` with nothing to do; its prefix cache must be off.
        rules: see MakeRules.
        seed: of the prompts.
        clock: what to time by; real time, if not given.
    """

    def __init__(
        self, llm: Any, rules: MakeRules, seed: int = 0, clock: Clock | None = None
    ) -> None:
        if llm.scheduler.config.enable_prefix_caching:
            raise InputError("the engine's prefix cache is on; steps could skip what is measured")
        self._llm, self._rules, self._clock = llm, rules, clock or WallClock()
        self._dice = random.Random(seed)
        self._vocabulary = int(llm.executor.model.config.vocab_size)
        llm.executor.model.kv_cache.normal_()

    def measure(self, point: Point, steps: int = STEPS) -> list[Timed]:
        """Time ``steps`` steps of a pure decode point, or the one step that has the chunk.

        The engine is empty again afterwards, also when it is interrupted.

        Raises:
            InputError: a point that this engine cannot do.
        """
        limits = self._llm.scheduler.config
        budget, pool = limits.max_num_batched_tokens, limits.num_blocks * limits.block_size
        if not point.fits(budget, pool, self._llm.max_model_len):
            raise InputError(f"step {point.name}: not with {budget} tokens a step, {pool} of KV")
        states: list[Any] = []
        try:
            with self._uncomputed():
                output = point.output(budget, steps)
                for _ in range(point.decodes):
                    states.append(self._add(max(1, point.context - 1), output))
                while self._llm.scheduler.num_waiting or any(not s.decoding for s in states):
                    self._step()
                if point.chunk and point.start:
                    states.append(self._add(point.start + point.chunk, 2))
                    while states[-1].num_computed_tokens < point.start:
                        self._step()
            if point.chunk and not point.start:
                states.append(self._add(point.chunk, 2))
            return [self._step() for _ in range(1 if point.chunk else steps)]
        finally:
            for state in states:
                self._llm.abort(state)

    def _add(self, tokens: int, output: int) -> Any:
        prompt = [self._dice.randrange(self._vocabulary) for _ in range(tokens)]
        return self._llm.add(prompt, self._rules(output))

    def _step(self) -> Timed:
        """``LLM.step`` in its parts, so that the plan can be looked at."""
        llm = self._llm
        begin = self._clock.now()
        plan = llm.scheduler.schedule()
        shape = StepShape(plan.num_tokens, plan.num_seqs, plan.context, plan.pairs)
        llm.scheduler.update(plan, llm.executor.execute(plan))
        return Timed(shape, self._clock.now() - begin)

    @contextmanager
    def _uncomputed(self) -> Iterator[None]:
        """Steps that cost nothing: the model answers without having looked."""
        model, size = self._llm.executor.model, self._vocabulary

        def answer(batch: Any) -> Any:
            return model.kv_cache.new_zeros((len(batch.sampled), size))

        model.forward = answer
        try:
            yield
        finally:
            del model.forward


def sweep(
    bench: StepBench,
    points: Sequence[Point],
    rounds: int,
    known: Callable[[int, Point], list[Timed] | None],
    keep: Callable[[int, Point, list[Timed]], None],
    tell: Callable[[str], None] | None = None,
    seed: int = 0,
) -> dict[Point, list[Timed]]:
    """Measure every point in every round, each round in another order.

    A machine gets slower and faster over minutes; in rounds, that hits all points alike. ``known``
    says what an earlier, interrupted sweep has measured, ``keep`` notes what this one does.
    """
    found: dict[Point, list[Timed]] = {point: [] for point in points}
    for number in range(rounds):
        order = list(points)
        random.Random(seed * 1000 + number).shuffle(order)
        for point in order:
            timed = known(number, point)
            if timed is None:
                timed = bench.measure(point)
                keep(number, point, timed)
            found[point] += timed
        if tell is not None:
            tell(f"round {number + 1} of {rounds}: {len(points)} kinds of steps measured")
    return found
