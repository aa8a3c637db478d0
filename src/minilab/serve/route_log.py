"""The proxy's event log: JSON lines that say what it saw and what it chose, and their replay.

Prompts stand in it as hashes of pages, salts as hashes too: it shows who shares a prefix with whom
and no text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from minilab.core.routers import make_router
from minilab.facts.errors import InputError
from minilab.serve.route_state import Fleet

VERSION = 1


class Choice(NamedTuple):
    """A request (its placement's id), where it went, and where the replay sends it."""

    id: int
    live: int
    again: int


class EventLog:
    """Writes events to a file, or nowhere."""

    def __init__(self, file: IO[str] | None, router: str, seed: int, replicas: int) -> None:
        self._file = file
        self.write({"minilab_route": VERSION, "router": router, "seed": seed, "replicas": replicas})

    def write(self, event: dict[str, Any]) -> None:
        """One line."""
        if self._file is not None:
            self._file.write(json.dumps(event, separators=(",", ":")) + "\n")

    def flush(self) -> None:
        """Make what was written readable by others."""
        if self._file is not None:
            self._file.flush()


def replay(path: str | Path, router: str | None = None) -> list[Choice]:
    """Feed a log to a fresh policy: the one that it names, or ``router`` to ask "what if".

    Other policies see the load that the live choices made, so their answers are those of an adviser
    who is not listened to.

    Raises:
        InputError: not such a log, or damaged; with the line.
    """
    events = _read(path)
    head = next(events)
    fleet = Fleet(head["replicas"], make_router(router or head["router"], head["seed"]))
    choices = []
    for event in events:
        if event["event"] != "arrival":
            fleet.apply(event)
            continue
        again = fleet.apply(event)
        assert again is not None
        choices.append(Choice(event["id"], event["choice"], again))
        if again != event["choice"]:
            fleet.move(event["id"], event["choice"])
    return choices


def _read(path: str | Path) -> Iterator[dict[str, Any]]:
    number = 0
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                event = json.loads(line)
                wanted = "minilab_route" if number == 1 else "event"
                if wanted not in event:
                    raise ValueError(f"no {wanted!r} in it")
                yield event
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give a route log") from None
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}:{number}: not a line of a route log ({error})") from None
    if not number:
        raise InputError(f"{path}: is empty; give a log that `minilab route --events` wrote")
