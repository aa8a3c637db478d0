"""No block is shared across tenants, whatever they send: the salt is part of every block's name.

An adversary knows the victim's prompt to the token, may choose its own salt and adapter freely, and
may name its adapter as the victim names its salt.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from driving import check, config, state
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.core.block_hash import SegmentHasher, TokenHasher, root_hash
from minilab.core.request import FINISHED
from minilab.core.scheduler import Scheduler

NAMES = st.sampled_from([None, "", "a", "b", "salt", "adapter", "a'), ('adapter', 'b", "None"])
KEYS = st.tuples(NAMES, NAMES)


def test_every_pair_of_extra_keys_has_a_root_of_its_own() -> None:
    """A salt equal to an adapter's name, an empty salt and none, quotes that imitate the form."""
    names = [None, "", "a", "b", "None", "a'), ('adapter', 'b", "('adapter', 'a')"]
    pairs = list(itertools.product(names, names))
    assert len({root_hash(salt, adapter) for salt, adapter in pairs}) == len(pairs)


@settings(max_examples=200, deadline=None)
@given(KEYS, KEYS, st.integers(1, 6), st.integers(6, 40))
def test_equal_prompts_share_hashes_exactly_under_equal_keys(
    one: tuple[str | None, str | None],
    two: tuple[str | None, str | None],
    size: int,
    tokens: int,
) -> None:
    """For traces and for real tokens alike, at every block."""
    for hasher in (SegmentHasher(size), TokenHasher(size, lambda request: [7] * tokens)):
        rows = []
        for i, (salt, adapter) in enumerate((one, two)):
            request = state(i, tokens, 1, ((3, tokens),), cache_salt=salt, adapter=adapter)
            hasher.extend(request, tokens)
            rows.append(request.block_hashes)
        shared = set(rows[0]) & set(rows[1])
        assert bool(shared) == (one == two)
        assert one != two or rows[0] == rows[1]


@pytest.mark.parametrize("index", ["hash-chain", "radix"])
@settings(max_examples=60, deadline=None)
@given(st.lists(KEYS, min_size=2, max_size=8), st.integers(8, 40))
def test_no_block_is_ever_held_by_two_tenants(
    index: str, tenants: list[tuple[str | None, str | None]], blocks: int
) -> None:
    """Equal prompts and equal answers under pressure; nobody is served from another's cache."""
    limits = config(blocks, enable_prefix_caching=True, prefix_index=index)
    scheduler = Scheduler(limits)
    requests = []
    for i, (salt, adapter) in enumerate(tenants * 2):
        request = state(i, 13, 6, ((0, 13),), cache_salt=salt, adapter=adapter, output_content=5)
        scheduler.add(request)
        requests.append(request)
    first_of: dict[Any, int] = {}
    while plan := scheduler.schedule():
        owner: dict[int, Any] = {}
        running = [c.request for c in plan.prefills] + list(plan.decodes.values())
        for request in running:
            spec: Any = request.request
            keys = (spec.cache_salt, spec.adapter)
            for block in request.block_table:
                assert owner.setdefault(block, keys) == keys, "one block, two tenants"
        scheduler.update(plan)
        check(scheduler)
    for request in requests:
        spec = request.request
        keys = (spec.cache_salt, spec.adapter)
        assert request.status == FINISHED
        if first_of.setdefault(keys, request.id) == request.id:
            assert request.num_cached_tokens == 0, "the first of a tenant finds nothing"


def test_a_picture_is_part_of_the_name_of_every_block_it_reaches_into() -> None:
    """All pictures have the same placeholder tokens: the key alone tells them apart."""

    def hashes(*images: tuple[int, int, str]) -> list[int]:
        request = state(0, 24, 1)
        TokenHasher(4, lambda _: [9] * 24, lambda _: images).extend(request, 24)
        return request.block_hashes

    plain, cat, dog = hashes(), hashes((6, 8, "cat")), hashes((6, 8, "dog"))
    assert cat[0] == dog[0] == plain[0], "before the picture all is shared"
    assert not set(cat[1:]) & set(dog[1:]) and not set(cat[1:]) & set(plain[1:])
    assert hashes((6, 8, "cat")) == cat
    assert hashes((7, 8, "cat"))[1] != cat[1], "the same picture one token later"
