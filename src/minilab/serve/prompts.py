"""Prompts: texts and chats as token ids, refused early where they cannot be served."""

from __future__ import annotations

import asyncio

from minilab.engine.llm import LLM
from minilab.engine.sampling import SamplingParams
from minilab.facts.errors import InputError
from minilab.serve.api_error import bad_request
from minilab.serve.chat import ChatTemplate
from minilab.serve.request_form import Chat, Completion

_LONG = 4096  # characters from which on a text is split in a thread, not on the event loop


class Prompts:
    """The way from a request form to what the engine computes.

    Raises:
        InputError: the model has no tokenizer, or its chat template is not jinja2.
    """

    def __init__(self, llm: LLM, max_model_len: int, chat_template: str | None = None) -> None:
        if llm.tokenizer is None:
            raise InputError("the model has no tokenizer; the server needs one: tokenizer.json")
        self._llm = llm
        self._tokenizer = llm.tokenizer
        self._most = max_model_len
        template = chat_template or self._tokenizer.chat_template
        ends = self._tokenizer.eos_token_ids
        mark = self._tokenizer.backend.id_to_token(ends[0]) if ends else ""
        self._template = ChatTemplate(template, {"bos_token": "", "eos_token": mark or ""})
        vocabulary = self._tokenizer.backend.get_vocab(with_added_tokens=True)
        self._widest = max(len(token.encode()) for token in vocabulary)

    async def of(self, form: Completion | Chat) -> list[int]:
        """The token ids of a form's prompt.

        Raises:
            ApiError: 400, the prompt is longer than the model allows, or the template refuses it.
        """
        if isinstance(form, Chat):
            return await self._split(self._template.render(form.messages), marks=False)
        if isinstance(form.prompt, str):
            return await self._split(form.prompt, marks=True)
        return form.prompt

    def check(self, prompt: list[int], params: SamplingParams) -> None:
        """Raise the ApiError of a request that could never be served."""
        most = params.max_tokens
        if len(prompt) + most > self._most:
            raise bad_request(
                f"the prompt has {len(prompt)} tokens and max_tokens is {most}, but a request may "
                f"have {self._most} of both; shorten one of them",
                code="context_length_exceeded",
            )
        try:
            self._llm.check(prompt, params)
        except InputError as error:
            raise bad_request(str(error)) from None

    async def _split(self, text: str, marks: bool) -> list[int]:
        """Ids of ``text``; with the model's begin token if ``marks``.

        No token covers more bytes than the longest of the vocabulary, so a text may be too long
        for certain before anybody splits it.
        """
        least = len(text.encode()) // self._widest
        if self._tokenizer.byte_level and least > self._most:
            raise bad_request(
                f"the prompt has {len(text)} characters, at least {least} tokens, but a request "
                f"may have {self._most}; shorten the prompt",
                code="context_length_exceeded",
            )
        if len(text) < _LONG:
            return self._tokenizer.encode(text, marks)
        return await asyncio.to_thread(self._tokenizer.encode, text, marks)
