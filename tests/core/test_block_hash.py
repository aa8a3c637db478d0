"""Block hashes: what shares a prefix shares hashes, and nothing else does."""

from __future__ import annotations

from driving import state
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.core.block_hash import SegmentHasher, TokenHasher, root_hash
from minilab.facts.request import Segment


def expand(text: tuple[Segment, ...]) -> list[tuple[int, int]]:
    """A segment text as the sequence of its tokens: (content, position in it)."""
    return [(content, at) for content, length in text for at in range(length)]


def hashes(text: tuple[Segment, ...], size: int, **keys: str) -> list[int]:
    tokens = sum(length for _, length in text)
    request = state(0, tokens, 1, text, **keys)
    SegmentHasher(size).extend(request, tokens)
    return request.block_hashes


SEGMENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=5)


@settings(max_examples=500)
@given(SEGMENTS, SEGMENTS, st.integers(1, 6))
def test_hashes_agree_exactly_where_the_prefix_does(
    one: list[Segment], two: list[Segment], size: int
) -> None:
    """Against the token-by-token comparison, for any split into segments.

    A segment boundary inside a block is part of the hash, so equal text must be cut alike; texts
    here are merged first (two segments in a row of one content are different text anyway).
    """
    a, b = tuple(one), tuple(two)
    first, second = expand(a), expand(b)
    for i, (x, y) in enumerate(zip(hashes(a, size), hashes(b, size), strict=False)):
        same = first[: (i + 1) * size] == second[: (i + 1) * size]
        assert (x == y) == same


@given(SEGMENTS, st.integers(1, 6), st.integers(0, 40))
def test_extending_in_two_calls_is_the_same(text: list[Segment], size: int, cut: int) -> None:
    tokens = sum(length for _, length in text)
    request = state(0, tokens, 20, tuple(text))
    hasher = SegmentHasher(size)
    hasher.extend(request, min(cut, tokens))
    hasher.extend(request, tokens)
    assert request.block_hashes == hashes(tuple(text), size)


def test_generated_text_continues_the_prompt() -> None:
    """The next turn quotes prompt and answer; its blocks must hash as the first turn's did."""
    hasher = SegmentHasher(4)
    first = state(0, 6, 7, ((1, 6),), output_content=77)
    hasher.extend(first, 12)
    second = state(1, 16, 1, ((1, 6), (77, 7), (5, 3)))
    hasher.extend(second, 16)
    assert second.block_hashes[:3] == first.block_hashes
    assert len(second.block_hashes) == 4


def test_own_text_is_shared_by_nobody() -> None:
    """Requests without content ids never match each other, prompt or answer."""
    hasher = SegmentHasher(2)
    seen: set[int] = set()
    for i in range(50):
        request = state(i, 4, 4)
        hasher.extend(request, 8)
        assert seen.isdisjoint(request.block_hashes)
        seen.update(request.block_hashes)


def test_extra_keys_are_tagged() -> None:
    """A salt that equals an adapter's name, an empty salt and no salt are four different things."""
    roots = [root_hash(None, None), root_hash("x", None), root_hash(None, "x"), root_hash("", None)]
    assert len(set(roots)) == 4
    text = ((1, 8),)
    different = [
        tuple(hashes(text, 4)),
        tuple(hashes(text, 4, cache_salt="x")),
        tuple(hashes(text, 4, adapter="x")),
        tuple(hashes(text, 4, cache_salt="")),
    ]
    assert len(set(different)) == 4


def test_token_hashes_see_every_token_and_the_salt() -> None:
    tokens = list(range(10, 26))

    def of(ids: list[int], **keys: str) -> list[int]:
        request = state(0, len(ids), 1, **keys)
        TokenHasher(4, lambda _: ids).extend(request, len(ids))
        return request.block_hashes

    base = of(tokens)
    assert len(base) == 4
    for position in range(16):
        changed = [*tokens]
        changed[position] += 1
        block = position // 4
        assert of(changed)[:block] == base[:block]
        assert all(x != y for x, y in zip(of(changed)[block:], base[block:], strict=True))
    assert set(of(tokens, cache_salt="a")).isdisjoint(base)
    # "1,23" and "12,3" must differ: ids are separated before they are hashed
    assert of([1, 23, 4, 5]) != of([12, 3, 4, 5])
