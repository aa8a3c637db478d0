"""The official client, unchanged: what it must get back, and what it must raise."""

from __future__ import annotations

import re

import openai
import pytest

from minilab.engine.load import load_llm
from minilab.engine.sampling import SamplingParams

PROMPT = "The quick brown fox"


@pytest.fixture(scope="module")
def offline() -> str:
    """What the engine itself says to PROMPT."""
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    return load_llm("tiny").generate(PROMPT, params)[0].text


def ask(client: openai.OpenAI, **more: object):
    fields = {"model": "tiny", "prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    return client.completions.create(**{**fields, "extra_body": {"ignore_eos": True}, **more})


def talk(client: openai.OpenAI, **more: object):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": PROMPT}]
    fields = {"model": "tiny", "messages": messages, "max_tokens": 12, "temperature": 0}
    return client.chat.completions.create(**{**fields, "extra_body": {"ignore_eos": True}, **more})


def test_a_completion_is_what_the_engine_says_offline(client, offline) -> None:
    got = ask(client)
    assert got.choices[0].text == offline
    assert got.choices[0].finish_reason == "length"
    assert (got.usage.prompt_tokens, got.usage.completion_tokens) == (len(PROMPT), 24)
    assert got.usage.total_tokens == len(PROMPT) + 24


def test_streamed_pieces_joined_are_the_whole(client, offline) -> None:
    """A lost, doubled or reordered piece would show; so would usage in the wrong event."""
    events = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert "".join(e.choices[0].text for e in events if e.choices) == offline
    assert [e.choices[0].finish_reason for e in events if e.choices][-1] == "length"
    assert all(e.usage is None for e in events[:-1]) and not events[-1].choices
    assert events[-1].usage.completion_tokens == 24
    assert len({e.id for e in events}) == 1


def test_usage_in_every_event_counts_up(client) -> None:
    """A piece may hold several tokens; a client that counts needs to be told how many."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = list(ask(client, stream=True, stream_options=options))
    counts = [event.usage.completion_tokens for event in events]
    assert counts == sorted(counts) and counts[0] >= 1 and counts[-1] == 24


def test_a_chat_streams_the_text_that_it_gives_at_once(client) -> None:
    whole = talk(client)
    assert whole.choices[0].message.role == "assistant"
    events = list(talk(client, stream=True))
    assert events[0].choices[0].delta.role == "assistant"
    assert all(event.choices[0].delta.role is None for event in events[1:])
    text = "".join(event.choices[0].delta.content or "" for event in events)
    assert text == whole.choices[0].message.content
    assert whole.usage.completion_tokens == 12


def test_a_chat_without_a_limit_may_fill_the_context(make_site) -> None:
    """OpenAI's chats have no default of 16 tokens; ours end at the model's own end, or its room."""
    site = make_site(max_model_len=120)
    client = site.openai()
    fields = {"max_tokens": openai.omit, "max_completion_tokens": openai.omit}
    got = talk(client, **fields)
    assert got.choices[0].finish_reason == "length"
    assert got.usage.total_tokens == 120
    assert talk(client, **fields | {"max_completion_tokens": 5}).usage.completion_tokens == 5


def test_token_ids_are_a_prompt_too(client, offline) -> None:
    assert ask(client, prompt=list(PROMPT.encode())).choices[0].text == offline
    assert ask(client, prompt=[PROMPT]).choices[0].text == offline  # a batch of one


def test_the_same_seed_draws_the_same_text(client) -> None:
    """Also beside other requests: each has a generator of its own."""
    drawn = [ask(client, temperature=1.0, seed=s).choices[0].text for s in (5, 5, 6)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_stop_string_ends_the_text_before_itself(client, offline) -> None:
    stop = re.findall("[!-~]{2}", offline)[0]
    got = ask(client, stop=[stop, "never"])
    assert got.choices[0].text == offline[: offline.index(stop)]
    assert got.choices[0].finish_reason == "stop"


def test_a_salt_keeps_the_cache_apart(make_site) -> None:
    """Equal prompts of other tenants must not hit: the time of an answer would tell them."""
    client = make_site().openai()
    long = PROMPT * 4

    def cached(salt: str | None) -> int:
        body = {"ignore_eos": True} | ({"cache_salt": salt} if salt else {})
        usage = ask(client, prompt=long, extra_body=body).usage
        return usage.prompt_tokens_details.cached_tokens

    assert [cached(s) for s in (None, "a", "b")] == [0, 0, 0]
    assert [cached(s) for s in (None, "a", "b")] == [64, 64, 64]


def test_models_are_listed_and_found(client) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_an_unknown_model_is_not_found(client) -> None:
    with pytest.raises(openai.NotFoundError, match="'gpt-4' is not served") as caught:
        ask(client, model="gpt-4")
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"n": 2}, "n is 2; this server draws one choice"),
        ({"max_tokens": 0}, "max_tokens is 0; give a whole number"),
        ({"temperature": -1}, "temperature is -1; give a number in 0..1000"),
        ({"top_p": 0}, "top_p is 0; give a number above 0"),
        ({"logprobs": 3}, "logprobs is 3; this server cannot do that"),
        ({"echo": True}, "echo is true"),
        ({"presence_penalty": 0.5}, "presence_penalty is 0.5"),
        ({"stop": [""]}, "stop is "),
        ({"prompt": []}, "prompt is "),
        ({"prompt": ["a", "b"]}, "one prompt per request"),
        ({"prompt": [1, 259]}, "outside 0..258"),
        ({"extra_body": {"top_k": 1.5}}, "top_k is 1.5"),
        ({"extra_body": {"cache_salt": ""}}, "cache_salt is"),
        ({"extra_body": {"stream_options": {"include_usage": True}}}, "it is for stream=true"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_cannot_be_done_is_refused_by_name(client, fields, words) -> None:
    """A field that is silently ignored gives a text that nobody asked for."""
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **fields)
    assert words in caught.value.body["message"]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "messages is []"),
        ([{"role": "robot", "content": "x"}], 'messages[0] has role "robot"'),
        ([{"role": "user", "content": 3}], "messages[0] has content 3"),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            'messages[0] has content "image_url"; this server reads text',
        ),
    ],
    ids=["none", "role", "number", "image"],
)
def test_messages_that_are_none_are_refused(client, messages, words) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        talk(client, messages=messages)
    assert words in caught.value.body["message"]


def test_text_parts_are_one_text(client) -> None:
    parts = [{"type": "text", "text": PROMPT[:5]}, {"type": "text", "text": PROMPT[5:]}]
    split = [{"role": "user", "content": parts}]
    whole = [{"role": "user", "content": PROMPT}]
    one, other = talk(client, messages=split), talk(client, messages=whole)
    assert one.choices[0].message.content == other.choices[0].message.content


def test_a_prompt_beyond_the_context_is_told_the_limit(client) -> None:
    with pytest.raises(openai.BadRequestError, match="a request may have 2048") as caught:
        ask(client, prompt="abc" * 700)
    assert caught.value.code == "context_length_exceeded"


def test_a_key_is_wanted_where_one_is_set(make_site) -> None:
    site = make_site(keys=("first-secret", "second-secret"))
    for key in ("first-secret", "second-secret"):
        assert ask(site.openai(key), max_tokens=2).usage.completion_tokens == 2
    for key in ("first-secre", "First-secret", "third"):
        with pytest.raises(openai.AuthenticationError) as caught:
            ask(site.openai(key))
        assert caught.value.code == "invalid_api_key"
