"""Load: probe a server, warm it, play a workload against it, and return the run log.

``measure`` is what ``minilab load`` calls and what a notebook may call; everything asynchronous
lies below it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from minilab.facts.errors import InputError
from minilab.facts.request import Request
from minilab.facts.runlog import RunLog
from minilab.facts.user_input import unknown_name
from minilab.facts.workload import Workload
from minilab.serve.load_client import TIMEOUT, LoadClient, Progress, session
from minilab.serve.load_log import to_runlog
from minilab.serve.load_probe import FORMS, Probe
from minilab.serve.load_prompts import IdPrompts, Prompts
from minilab.serve.load_wire import Target

WARM_TOKENS = (16, 4)
"""Prompt and output of a warm-up request, in tokens."""


@dataclass(frozen=True)
class Settings:
    """How the client plays a workload.

    Attributes:
        form: of the prompts: ``auto``, ``ids`` or ``text``.
        ids: token ids to draw from, [low, high); None: found out.
        seed: of the prompts' content.
        warmup: requests sent one after the other before the run (compilation, caches).
        max_concurrency, timeout: see ``LoadClient``.
    """

    form: str = "auto"
    ids: tuple[int, int] | None = None
    seed: int = 0
    warmup: int = 1
    max_concurrency: int | None = None
    timeout: float = TIMEOUT

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise unknown_name("form of prompts", self.form, FORMS)


def measure(
    target: Target,
    work: Workload,
    settings: Settings | None = None,
    tell: Callable[[str], None] | None = None,
) -> RunLog:
    """Play ``work`` against ``target``. The first Ctrl-C ends the run early and keeps its log.

    ``tell`` gets a line of progress now and then.

    Raises:
        InputError: the server cannot be reached or used (found out before the run).
    """
    return asyncio.run(play(target, work, settings or Settings(), tell))


async def play(
    target: Target,
    work: Workload,
    settings: Settings,
    tell: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> RunLog:
    """``measure`` inside a running event loop; setting ``stop`` ends the run."""
    async with session() as opened:
        prompts = await Probe(opened, target).prompts(settings.form, settings.ids, settings.seed)
    client = LoadClient(
        target,
        prompts,
        settings.max_concurrency,
        settings.timeout,
        None if tell is None else lambda progress: tell(_line(progress)),
    )
    await _warm(client, settings.warmup)
    with _stopped_by_interrupt(stop or asyncio.Event()) as stopped:
        sent = await client.run(work, stopped)
    return to_runlog(sent, work, _about(target, prompts, settings))


async def _warm(client: LoadClient, requests: int) -> None:
    """Send ``requests`` requests of another text than any of the workload's."""
    prompt, output = WARM_TOKENS
    for number in range(requests):
        one = Request(0, 0.0, prompt, output, prompt=(((1 << 61) + number, prompt),))
        sent = await client.run(Workload([one]))
        (reply,) = sent.replies
        if reply.status != "finished":
            raise InputError(f"{client.target.url}: the warm-up request failed: {reply.error}")


@contextmanager
def _stopped_by_interrupt(stop: asyncio.Event) -> Iterator[asyncio.Event]:
    """The first SIGINT sets ``stop``; a second one is Python's own KeyboardInterrupt.

    Only the main thread can listen to signals; elsewhere (a notebook's loop) ``stop`` is all.
    """
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        stop.set()

    listens = threading.current_thread() is threading.main_thread() and os.name == "posix"
    if listens:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield stop
    finally:
        if listens:
            loop.remove_signal_handler(signal.SIGINT)


def _line(progress: Progress) -> str:
    sent = f"{progress.sent} of {progress.total} requests sent"
    return f"{sent}, {progress.running} running, {progress.ended} ended"


def _about(target: Target, prompts: Prompts, settings: Settings) -> dict[str, Any]:
    form = "token ids" if isinstance(prompts, IdPrompts) else "words"
    return {
        "target": f"{target.model} at {target.endpoint}",
        "prompts": form,
        "max_concurrency": settings.max_concurrency,
        "timeout": settings.timeout,
    }
