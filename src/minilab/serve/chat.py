"""Chats: messages read and checked, and the template that turns them into a prompt.

A template comes with the model, so it is a stranger's program: jinja2's immutable sandbox runs it.
What people write in a message is data to it and never template source. Marks of the model (such as
``<|im_end|>``) inside a message still become marks when the prompt is split into tokens; so does
vLLM, and whoever passes on text from strangers has to take them out.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from minilab.facts.errors import InputError
from minilab.serve.api_error import ApiError, bad_request
from minilab.serve.fields import Fields, check_text, shown

Message = dict[str, str]

PLAIN = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
"""What is used for a model without a template."""

ROLES = ("system", "developer", "user", "assistant", "tool")


def read_messages(fields: Fields) -> list[Message]:
    """The messages of a chat: role and content as text.

    Raises:
        ApiError: 400, naming the message.
    """
    value = fields.given("messages")
    if not isinstance(value, list) or not value:
        raise bad_request(
            f"messages is {shown(value)}; give a list of at least one message", "messages"
        )
    return [_message(one, f"messages[{at}]") for at, one in enumerate(value)]


def _message(value: Any, where: str) -> Message:
    if not isinstance(value, dict) or value.get("role") not in ROLES:
        role = value.get("role") if isinstance(value, dict) else value
        raise bad_request(
            f"{where} has role {shown(role)}; give an object with role and content, "
            f"role one of {', '.join(ROLES)}",
            where,
        )
    if value.get("tool_calls"):
        raise bad_request(f"{where} has tool_calls; this server cannot do that", where)
    return {"role": value["role"], "content": _content(value.get("content"), where)}


def _content(value: Any, where: str) -> str:
    if isinstance(value, str):
        return check_text(value, where)
    parts = value if isinstance(value, list) else [value]
    texts = []
    for part in parts:
        if not isinstance(part, dict) or part.get("type") != "text":
            kind = part.get("type") if isinstance(part, dict) else part
            raise bad_request(f"{where} has content {shown(kind)}; this server reads text", where)
        if not isinstance(part.get("text"), str):
            raise bad_request(f"{where} has a text part without text", where)
        texts.append(check_text(part["text"], where))
    return "".join(texts)


class ChatTemplate:
    """A compiled template.

    ``marks``: what it may name, such as bos_token and eos_token.

    Raises:
        InputError: ``source`` is not jinja2.
    """

    def __init__(self, source: str | None, marks: dict[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _refuse
        environment.filters["tojson"] = _tojson
        try:
            self._template = environment.from_string(source or PLAIN)
        except TemplateSyntaxError as error:
            raise InputError(
                f"chat template, line {error.lineno}: {error.message}; give another one "
                "(--chat-template FILE)"
            ) from None
        self._marks = marks

    def render(self, messages: list[Message]) -> str:
        """The prompt that asks for the next message of the assistant.

        Raises:
            ApiError: 400, the template refuses these messages; 500, it does what a template may
                not.
        """
        try:
            return self._template.render(
                messages=messages, add_generation_prompt=True, tools=None, **self._marks
            )
        except SecurityError as error:
            raise ApiError(500, f"the model's chat template is not safe: {error}") from None
        except (TemplateError, TypeError, ValueError, OverflowError) as error:
            raise bad_request(
                f"the model's chat template refuses these messages: {error}", "messages"
            ) from None


def _refuse(message: str) -> NoReturn:
    """``raise_exception`` of Hugging Face's templates."""
    raise TemplateError(message)


def _tojson(value: Any, indent: int | None = None) -> str:
    """Hugging Face's ``tojson``: jinja2's own one escapes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)
