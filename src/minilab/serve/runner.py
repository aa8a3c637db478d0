"""Runner: an aiohttp application on a socket until it is told to end, and then a clean end.

SIGTERM or Ctrl-C begins the end: the listener stays open, so that newcomers get 503 and not a
refused connection, while what runs may finish. A second one ends at once.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

from minilab.facts.errors import InputError

_FLUSH = 5.0  # seconds for replies that are complete to reach their clients

Drain = Callable[[], Awaitable[None]]


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one.

    Raises:
        InputError: the address is taken, or is not ours.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise InputError(f"host {host!r}: {error.strerror or error}; give one of ours") from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(1024)
    except OSError as error:
        found.close()
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{host}:{port}: {reason}; give another --port or --host") from None
    return found


def url_of(place: socket.socket) -> str:
    """The address of a listening socket, as clients write it."""
    host, port = place.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def run_app(
    app: web.Application,
    place: socket.socket,
    drain: Drain,
    stop: asyncio.Event,
    hurry: asyncio.Event,
) -> None:
    """Serve until ``stop`` is set; then ``drain()``, which ``hurry`` cuts short."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=_FLUSH)
    await runner.setup()
    await web.SockSite(runner, place).start()
    await stop.wait()
    ending = asyncio.ensure_future(drain())
    cut = asyncio.ensure_future(hurry.wait())
    await asyncio.wait([ending, cut], return_when=asyncio.FIRST_COMPLETED)
    for task in (ending, cut):
        task.cancel()
    await asyncio.gather(ending, cut, return_exceptions=True)
    await runner.cleanup()


@contextmanager
def signals(stop: asyncio.Event, hurry: asyncio.Event) -> Iterator[None]:
    """While inside, SIGTERM and SIGINT set ``stop``, and once that is set, ``hurry``."""
    loop = asyncio.get_running_loop()

    def told() -> None:
        (hurry if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
