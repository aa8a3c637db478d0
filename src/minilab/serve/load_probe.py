"""Probe: find out how a server counts prompts, before the run, by its own usage counts.

Token ids are exact wherever the server takes them. Where it does not (a chat, or a strict server),
prompts are words: the probe asks which words are one token each, and how many tokens the server
adds to every prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

from minilab.facts.errors import InputError
from minilab.facts.request import Request
from minilab.serve.load_prompts import WORDS, IdPrompts, Prompts, TextPrompts
from minilab.serve.load_reply import Reply, ask
from minilab.serve.load_wire import Target

FORMS = ("auto", "ids", "text")
ID_RANGES = ((100, 1000), (16, 256))
"""Token ids that most vocabularies have, marks left out; the second is for bytes."""

FEWEST = 16
"""Single-token words without which texts would repeat themselves."""

PROBE = Request(0, 0.0, 1, 1)


@dataclass(frozen=True)
class Probe:
    """Asks ``target`` short questions; each answer must come within ``timeout`` seconds."""

    session: aiohttp.ClientSession
    target: Target
    timeout: float = 60.0

    async def prompts(self, form: str, ids: tuple[int, int] | None, seed: int) -> Prompts:
        """Prompts in the form asked for; ``auto`` prefers ids, which are exact.

        ``ids``: draw from these, [low, high); None: from the first of ID_RANGES that is taken.

        Raises:
            InputError: nobody answers, or not in this form; it says what the server said.
        """
        if form == "ids" and self.target.chat:
            raise InputError("--prompts ids: a chat takes text only; leave --chat or ids out")
        if form != "text" and not self.target.chat:
            for low, high in ID_RANGES if ids is None else (ids,):
                given = [low + i * (high - 1 - low) // 7 for i in range(8)]
                counted, refusal = await self.count(given)
                if counted == len(given):
                    return IdPrompts(low, high, seed)
            if form == "ids":
                said = refusal or f"it counted {counted} tokens for {len(given)} ids"
                raise InputError(f"{self.target.url}: takes no token ids {low}..{high - 1}: {said}")
        return await self._words(seed)

    async def count(self, prompt: str | list[int]) -> tuple[int | None, str]:
        """(tokens that the server counts in the prompt, None if it did not say; its refusal)."""
        reply = Reply(PROBE, 0.0)
        await ask(self.session, self.target, self.target.body(prompt, 1), reply, self.timeout)
        return reply.prompt_tokens, reply.error

    async def _words(self, seed: int) -> TextPrompts:
        texts = TextPrompts(seed=seed)
        total, refusal = await self.count(" ".join(WORDS))
        if refusal:
            raise InputError(f"{self.target.url}: {self.target.model}: {refusal}")
        if total is None:
            return texts  # no usage: lengths are as good as the words
        first, _ = await self.count(" ".join(WORDS[:1]))
        both, _ = await self.count(" ".join(WORDS[:1] * 2))
        if first is None or both is None:
            return texts
        overhead = 2 * first - both
        single = await self._single(WORDS, overhead, total)
        if len(single) < FEWEST:
            mean = max(1.0, (total - overhead) / len(WORDS))
            return TextPrompts(WORDS, max(0, overhead), seed, mean)
        return TextPrompts(single, max(0, overhead), seed)

    async def _single(
        self, words: Sequence[str], overhead: int, total: int | None = None
    ) -> list[str]:
        """The words that are one token each, found by halving the list."""
        if total is None:
            total, _ = await self.count(" ".join(words))
        if total == len(words) + overhead:
            return list(words)
        if len(words) == 1:
            return []
        half = len(words) // 2
        left = await self._single(words[:half], overhead)
        return [*left, *await self._single(words[half:], overhead)]
