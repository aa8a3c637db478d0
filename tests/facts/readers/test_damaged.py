"""Damaged files, 500 of them.

What these tests exist for: a traceback, or worse, a log made of what was left. Damage that leaves
a possible file may be read; what comes out must keep the rules of a log and be judged without a
fault.
"""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minilab.facts import readers, runlog_io
from minilab.facts.errors import InputError
from minilab.facts.slo import goodput, summary

VARIANTS = 500
ODD = [
    None, True, -1, 0, 1.5, 1e400, float("nan"), 10**400, 2**63, "", "x", "1", [], {}, [[]], [None],
    "\ud800", 1e308, -1e308, {"value": 1}, 10**12,
]  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in a JSON value."""
    found = [at] if at else []
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            found += places(value[key], (*at, key))
    return found


def parent(value: Any, way: tuple[Any, ...]) -> Any:
    for key in way[:-1]:
        value = value[key]
    return value


def replaced(rng: random.Random, lines: list[Any]) -> list[Any]:
    way = rng.choice(places(lines))
    parent(lines, way)[way[-1]] = rng.choice(ODD)
    return lines


def removed(rng: random.Random, lines: list[Any]) -> list[Any]:
    way = rng.choice(places(lines))
    del parent(lines, way)[way[-1]]
    return lines


def doubled(rng: random.Random, lines: list[Any]) -> list[Any]:
    """A list with one value twice: all others are one off."""
    ways = [way for way in places(lines) if isinstance(parent(lines, way), list)]
    way = rng.choice(ways)
    parent(lines, way).insert(way[-1], copy.deepcopy(parent(lines, way)[way[-1]]))
    return lines


def swapped(rng: random.Random, lines: list[Any]) -> list[Any]:
    one, other = (rng.choice(places(lines)) for _ in range(2))
    here = copy.deepcopy(parent(lines, one)[one[-1]])
    there = copy.deepcopy(parent(lines, other)[other[-1]])
    parent(lines, other)[other[-1]] = here
    with contextlib.suppress(KeyError, IndexError, TypeError):  # one inside the other
        parent(lines, one)[one[-1]] = there
    return lines


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def flipped(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def missing_middle(rng: random.Random, data: bytes) -> bytes:
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randint(1, 200) :]


VALUES = [replaced, replaced, removed, doubled, swapped]
BYTES = [cut, flipped, missing_middle]


def damage(rng: random.Random, examples: dict[str, list[Any]], own: bytes) -> bytes:
    """One file in which one thing is wrong, or more."""
    name = rng.choice([*examples, *examples, "minilab"])
    if name == "minilab":
        data = rng.choice(BYTES)(rng, own)
    else:
        lines = copy.deepcopy(examples[name])
        if rng.random() < 0.7:
            for _ in range(rng.randint(1, 2)):
                lines = rng.choice(VALUES)(rng, lines) if places(lines) else lines
        elif rng.random() < 0.2:
            lines += copy.deepcopy(examples[rng.choice(list(examples))])
        data = "\n".join(map(json.dumps, lines)).encode()
        if rng.random() < 0.3 and data:
            data = rng.choice(BYTES)(rng, data)
    if rng.random() < 0.2:
        data = gzip.compress(data, mtime=0)
        data = rng.choice(BYTES)(rng, data) if rng.random() < 0.7 else data
    return data


def small(examples: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """The recorded guidellm report is large, and most of it is not looked at."""
    kept = copy.deepcopy(examples)
    (report,) = kept["guidellm"]
    benchmark = report["benchmarks"][0]
    requests = benchmark["requests"]["successful"][:3]
    report["benchmarks"] = [
        {
            "config": {"strategy": benchmark["config"]["strategy"]},
            "metrics": {"request_totals": {"total": 3}},
            "requests": {"successful": requests, "errored": [], "incomplete": []},
            "duration": benchmark["duration"],
        }
    ]
    del report["config"]
    return kept


@pytest.fixture
def own(tmp_path: Path, small_log: Callable[..., Any]) -> bytes:
    path = tmp_path / "own.jsonl"
    runlog_io.write(small_log(), path)
    return path.read_bytes()


def test_500_damaged_files(tmp_path, examples, own):
    """Each is refused in one line that names it, or read as a log that keeps the rules."""
    rng, examples = random.Random(20260102), small(examples)
    path = tmp_path / "damaged.json"
    refused = 0
    for i in range(VARIANTS):
        path.write_bytes(damage(rng, examples, own))
        given = rng.choice([*[None] * 20, *readers.FORMATS])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                log = readers.read(path, format=given, part=rng.choice([None, 1, 1, 1]))
                log.check()
                goodput(log, "ttft=0.3,tpot=0.05,itl=0.1,stall=0.2,e2e=3")
                summary(log)
                readers.compare([log], "ttft=0.3,tpot=0.05,e2e=3")
            except InputError as refusal:
                refused += 1
                message = str(refusal)
                assert str(path) in message and "\n" not in message, (i, message)
                assert len(message) < len(str(path)) + 500, (i, message)
    assert VARIANTS * 0.6 < refused < VARIANTS  # some damage is outside of what is read


def test_undamaged_ones_are_read(save, examples):
    """Else the test above would be about something else."""
    for name, lines in small(examples).items():
        part = 1 if name == "sglang" else None
        assert len(readers.read(save(*lines), part=part)) in (3, 4)
