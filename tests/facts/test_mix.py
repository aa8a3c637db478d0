"""Mixing workloads must not mix up who is who, whose text is whose, or who waits for whom."""

from __future__ import annotations

import pytest

from minilab.facts.errors import InputError
from minilab.facts.mix import mix
from minilab.facts.workload import closed_loop, sessions, synthetic


def test_requests_keep_their_part_and_order() -> None:
    chat, batch = synthetic(5.0, 40, 100, 20, seed=1), synthetic(2.0, 15, 4000, 300, seed=2)
    both = mix({"chat": chat, "batch": batch})
    assert [r.id for r in both.requests] == list(range(55))
    arrivals = [r.arrival for r in both.requests]
    assert arrivals == sorted(arrivals)
    assert sum(r.tenant == "chat" and r.prompt_tokens == 100 for r in both.requests) == 40
    assert {r.slo_class for r in both.requests if r.prompt_tokens == 4000} == {"batch"}


def test_texts_of_two_parts_never_meet_and_sessions_stay_whole() -> None:
    one, two = sessions(1.0, 5, 3, seed=1), sessions(1.0, 5, 3, seed=1)
    both = mix({"a": one, "b": two})
    text = {name: set() for name in "ab"}
    for request in both.requests:
        text[request.tenant] |= {content for content, _ in request.prompt or ()}
        text[request.tenant].add(request.output_content)
        if request.after is not None:
            before = both.requests[request.after]
            assert (before.tenant, before.session) == (request.tenant, request.session)
    assert not text["a"] & text["b"]


def test_what_cannot_be_mixed_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match="no workload given"):
        mix({})
    with pytest.raises(InputError, match="loop is a closed loop"):
        mix({"loop": closed_loop(4, 10)})
