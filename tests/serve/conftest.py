"""A server of the tiny model in this process, on a port of its own, and clients for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from serving import Site

MakeSite = Callable[..., Site]


@pytest.fixture
def make_site() -> Iterator[MakeSite]:
    """``make_site(...)``: a server of one's own, ended after the test."""
    made: list[Site] = []

    def make(**more: Any) -> Site:
        made.append(Site(**more))
        return made[-1]

    yield make
    for site in made:
        site.stop()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """One server for the tests of a file that leave no trace in it."""
    made = Site()
    yield made
    made.stop()


@pytest.fixture
def client(site: Site) -> openai.OpenAI:
    """The official client, which tries nothing twice."""
    return site.openai()
