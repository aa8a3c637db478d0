"""The two request forms of OpenAI, read and checked: what to continue, how, and how to reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minilab.engine.sampling import SamplingParams
from minilab.facts.errors import InputError
from minilab.serve.api_error import bad_request
from minilab.serve.chat import Message, read_messages
from minilab.serve.fields import Fields, check_text, shown

_MOST_STOPS = 16
_SEEDS = (-(1 << 63), (1 << 63) - 1)
_TOP_K = 1 << 31

# What would change the reply and is not built, with the values that leave it off.
_OFF: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (0,),
    "suffix": ("",),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "min_p": (0,),
    "min_tokens": (0,),
    "use_beam_search": (False,),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "structured_outputs": ({},),
    "guided_json": (),
    "guided_regex": (),
    "chat_template": (),
    "modalities": (["text"],),
    "audio": (),
    "skip_special_tokens": (True,),
    "ignore_eos": (False, True),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
}
_WHY = {
    "n": "this server draws one choice per request; send the request several times",
    "best_of": "this server draws one choice per request; send the request several times",
    "chat_template": "a template is code; the one of the model is used",
}


@dataclass(frozen=True)
class Form:
    """What both forms have.

    Attributes:
        model: the name asked for, None for whatever is served.
        max_tokens: None where the form leaves it open.
        sampling: the keywords of ``SamplingParams``, ``max_tokens`` left out.
        usage: "none", "end" (a last event) or "each" (in every event) of a stream.
    """

    model: str | None
    max_tokens: int | None
    sampling: dict[str, Any]
    cache_salt: str | None
    stream: bool
    usage: str

    def params(self, room: int) -> SamplingParams:
        """The rule to draw by; without ``max_tokens`` the text may fill ``room`` tokens."""
        most = room if self.max_tokens is None else self.max_tokens
        try:
            return SamplingParams(max_tokens=most, **self.sampling)
        except InputError as error:
            raise bad_request(str(error)) from None


@dataclass(frozen=True)
class Completion(Form):
    """``/v1/completions``: ``prompt`` is a text or token ids."""

    prompt: str | list[int]


@dataclass(frozen=True)
class Chat(Form):
    """``/v1/chat/completions``."""

    messages: list[Message]


def read_completion(fields: Fields) -> Completion:
    """Read a body of ``/v1/completions``.

    Raises:
        ApiError: 400, naming the field.
    """
    prompt = _prompt(fields)
    most = fields.whole("max_tokens", 16, 1, _TOP_K)
    return Completion(prompt=prompt, **_common(fields, most))


def read_chat(fields: Fields) -> Chat:
    """Read a body of ``/v1/chat/completions``; errors as above."""
    messages = read_messages(fields)
    most = fields.whole("max_tokens", None, 1, _TOP_K)
    most = fields.whole("max_completion_tokens", most, 1, _TOP_K)
    return Chat(messages=messages, **_common(fields, most))


def _common(fields: Fields, max_tokens: int | None) -> dict[str, Any]:
    for name, allowed in _OFF.items():
        value = fields.given(name)
        # False == 0: what is off may be said in either way
        if value is not None and value not in allowed:
            fields.refuse(name, _WHY.get(name, "this server cannot do that; leave it out"))
    stream = fields.flag("stream")
    return {
        "model": fields.text("model"),
        "max_tokens": max_tokens,
        "sampling": _sampling(fields),
        "cache_salt": _salt(fields),
        "stream": stream,
        "usage": _usage(fields, stream),
    }


def _sampling(fields: Fields) -> dict[str, Any]:
    top_p = fields.number("top_p", 1.0, 0.0, 1.0)
    if top_p == 0:
        fields.refuse("top_p", "give a number above 0 and up to 1; temperature 0 is greedy")
    return {
        "temperature": fields.number("temperature", 1.0, 0.0, 1000.0),
        "top_p": top_p,
        "top_k": fields.whole("top_k", 0, -1, _TOP_K),
        "seed": fields.whole("seed", None, *_SEEDS),
        "ignore_eos": fields.flag("ignore_eos"),
        "include_stop_str_in_output": fields.flag("include_stop_str_in_output"),
        "stop": _stops(fields),
        "stop_token_ids": _token_ids(fields, "stop_token_ids"),
    }


def _stops(fields: Fields) -> tuple[str, ...]:
    value = fields.given("stop")
    stops = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        fields.refuse("stop", "give a text that is not empty, or a list of such")
    if len(stops) > _MOST_STOPS:
        raise bad_request(f"stop has {len(stops)} texts; give at most {_MOST_STOPS}", "stop")
    return tuple(check_text(stop, "stop") for stop in stops)


def _token_ids(fields: Fields, name: str) -> tuple[int, ...]:
    value = fields.given(name) or []
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        fields.refuse(name, "give a list of token ids")
    return tuple(value)


def _salt(fields: Fields) -> str | None:
    salt = fields.text("cache_salt")
    if salt == "":
        fields.refuse("cache_salt", "give a text that is not empty, or leave it out")
    return salt


def _usage(fields: Fields, stream: bool) -> str:
    options = fields.given("stream_options")
    if options is None:
        return "none"
    if not stream:
        fields.refuse("stream_options", "it is for stream=true; leave one of the two out")
    if not isinstance(options, dict):
        fields.refuse("stream_options", 'give an object such as {"include_usage": true}')
    inner = Fields(options)
    if not inner.flag("include_usage"):
        return "none"
    return "each" if inner.flag("continuous_usage_stats") else "end"


def _prompt(fields: Fields) -> str | list[int]:
    value = fields.given("prompt")
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], (str, list)):
        value = value[0]  # a batch of one
    if isinstance(value, str):
        return check_text(value, "prompt")
    if isinstance(value, list) and value and all(type(token) is int for token in value):
        return value
    if isinstance(value, list) and value and all(isinstance(one, (str, list)) for one in value):
        raise bad_request(
            f"prompt is a list of {len(value)}; this server takes one prompt per request; "
            "send them side by side, they are batched all the same",
            "prompt",
        )
    raise bad_request(
        f"prompt is {shown(value)}; give a text, or a list of token ids that is not empty", "prompt"
    )
