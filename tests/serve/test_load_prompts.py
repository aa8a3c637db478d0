"""Prompts of exactly N tokens: ids where the server takes them, single-token words elsewhere."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from fake_server import DONE, FakeServer, bill, chunk, sse

from minilab.facts.errors import InputError
from minilab.facts.request import Request
from minilab.serve.load_client import session
from minilab.serve.load_probe import Probe
from minilab.serve.load_prompts import WORDS, IdPrompts, TextPrompts
from minilab.serve.load_wire import Target


def test_longer_segment_begins_like_a_shorter_one() -> None:
    """Two segments of one content id are two prefixes of one text (``facts.request``)."""
    prompts = IdPrompts()
    short = prompts.of(Request(0, 0.0, 10, 1, prompt=((7, 10),)))
    long = prompts.of(Request(1, 0.0, 600, 1, prompt=((7, 600),)))
    assert long[:10] == short and len(long) == 600
    assert len(set(long)) > 300 and min(long) >= 100 and max(long) < 1000


def test_seed_and_request_change_the_text() -> None:
    """Two runs against one warm server must not hit the first one's cache by accident."""
    one, two = Request(0, 0.0, 50, 1), Request(1, 0.0, 50, 1)
    assert IdPrompts().of(one) != IdPrompts().of(two)
    assert IdPrompts(seed=1).of(one) != IdPrompts().of(one) == IdPrompts().of(one)


def tokenizer(split: set[str], overhead: int):
    """A server that adds ``overhead`` tokens and takes the words in ``split`` as two tokens."""

    def script(body):
        prompt = body["messages"][0]["content"] if "messages" in body else body["prompt"]
        if isinstance(prompt, list):
            return web.Response(status=400, text='{"error": {"message": "prompt must be text"}}')
        words = prompt.split()
        size = overhead + len(words) + sum(word in split for word in words)
        if "messages" in body:
            first = sse({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
            return [first, sse({"choices": [{"delta": {"content": "x"}}]}), bill(size, 1), DONE]
        return [chunk(), bill(size, 1), DONE]

    return script


def probed(script, form="auto", chat=False, ids=None):
    async def run():
        async with FakeServer(script) as server, session() as opened:
            target = Target(server.url, "m", chat=chat)
            prompts = await Probe(opened, target, 5.0).prompts(form, ids, 0)
            counted = []
            if isinstance(prompts, TextPrompts):
                for n in (5, 40, 333):
                    text = prompts.of(Request(n, 0.0, n, 1))
                    counted.append((await Probe(opened, target).count(text))[0])
            return prompts, counted

    return asyncio.run(run())


@pytest.mark.parametrize(("chat", "overhead"), [(False, 0), (False, 1), (True, 9)])
def test_text_of_exactly_n_tokens(chat, overhead) -> None:
    """The begin token and the chat template are the server's; words it splits are not used."""
    split = {"people", "called", "which"}
    prompts, counted = probed(tokenizer(split, overhead), chat=chat)
    assert isinstance(prompts, TextPrompts)
    assert not split & set(prompts.words) and len(prompts.words) > len(WORDS) - 8
    assert prompts.overhead == overhead
    assert counted == [max(5, overhead + 1), 40, 333]


def test_ids_where_they_are_taken() -> None:
    """Exact without any counting."""
    prompts, _ = probed(lambda body: [chunk(), bill(len(body["prompt"]), 1), DONE])
    assert isinstance(prompts, IdPrompts)


def test_every_word_is_split() -> None:
    """No word is a single token: lengths come near, and the log has the server's own counts."""
    prompts, counted = probed(tokenizer(set(WORDS), 3), chat=True)
    assert isinstance(prompts, TextPrompts) and len(prompts.words) == len(WORDS)
    assert counted == pytest.approx([5, 40, 333], abs=1)


def test_small_vocabulary() -> None:
    """A model over bytes has no id 999: the ids are those it has, and lengths stay exact."""

    def script(body):
        if max(body["prompt"]) > 258:
            return web.Response(status=400, text='{"error": {"message": "outside 0..258"}}')
        return [chunk(), bill(len(body["prompt"]), 1), DONE]

    prompts, _ = probed(script, ids=None)
    assert isinstance(prompts, IdPrompts) and prompts.high == 256
    with pytest.raises(InputError, match=r"100\.\.999: HTTP 400: outside"):
        probed(script, "ids", ids=(100, 1000))


@pytest.mark.parametrize(
    ("form", "chat", "said"),
    [("ids", True, "takes text only"), ("ids", False, "prompt must be text")],
)
def test_form_refused(form, chat, said) -> None:
    """Better than a run in which every request fails."""
    with pytest.raises(InputError, match=said):
        probed(tokenizer(set(), 0), form, chat)


def test_nobody_answers() -> None:
    """One line, before the run."""

    async def run():
        async with session() as opened:
            await Probe(opened, Target("http://127.0.0.1:9", "m")).prompts("auto", (100, 1000), 0)

    with pytest.raises(InputError, match=r"127\.0\.0\.1:9.*Connect"):
        asyncio.run(run())
