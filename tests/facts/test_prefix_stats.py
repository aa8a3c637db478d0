"""The sequential reader of block ids: what a hit is, LRU order, policies, published tables."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilab.facts import traces
from minilab.facts.errors import InputError
from minilab.facts.prefix_stats import (
    Hits,
    LruCache,
    Prompt,
    block_prompts,
    chained_block,
    hit_curve,
    lru_hits,
    replica_hits,
)
from minilab.facts.request import Request
from minilab.facts.request_columns import from_columns
from minilab.facts.workload import synthetic

CAPACITIES = [1000, 3000, 5859, 10000, 20000, 30000, 50000, 100000, None]
CURVES = {
    "conversation": [0.0445, 0.0653, 0.1361, 0.2116, 0.2878, 0.3257, 0.3546, 0.3637, 0.3664],
    "synthetic": [0.0841, 0.1906, 0.3094, 0.4239, 0.5718, 0.6242, 0.6396, 0.6396, 0.6396],
}
THREE = {"conversation": (0.3664, 0.3736, 0.4094), "synthetic": (0.6396, 0.6512, 0.4315)}
REPLICAS = [
    ("conversation", 4, None, (0.1918, 1.02), (0.1911, 1.01), (0.3664, 4.00)),
    ("conversation", 8, None, (0.1363, 1.04), (0.1329, 1.04), (0.3664, 8.00)),
    ("conversation", 8, 5859, (0.1133, 1.04), (0.1124, 1.04), (0.1361, 8.00)),
    ("synthetic", 8, None, (0.2264, 1.05), (0.2328, 1.17), (0.6396, 1.15)),
    ("synthetic", 8, 5859, (0.1943, 1.05), (0.1969, 1.17), (0.6396, 1.15)),
]


def prompts(*ids: str, last: int = 512) -> list[Request]:
    """Requests from strings of one-letter blocks; the last block of each has ``last`` tokens."""
    rows = [[ord(letter) for letter in word] for word in ids]
    sizes = [512 * (len(row) - 1) + last for row in rows]
    return from_columns([0.0] * len(rows), sizes, [1] * len(rows), block_prompts(sizes, rows))


@pytest.fixture(scope="module")
def mooncake(data_folder: Callable[[str], Path]) -> Callable[[str], list[Request]]:
    folder = data_folder("mooncake-fast25").parent
    return cache(lambda name: traces.load(f"mooncake-{name}", folder=folder).requests)


def test_three_definitions_of_a_hit() -> None:
    """A table that mixes them up is off by up to a third on a real trace."""
    rows = prompts("ABC", "AB", last=128)  # 1,152 and 640 tokens; 2 hits in 5 blocks
    assert lru_hits(rows) == Hits(2 / 5, 640 / (1152 + 640), 0.5)
    rows = prompts("ABC", "ABD", "X", last=128)
    assert lru_hits(rows) == Hits(2 / 7, 1024 / (1152 * 2 + 128), 1024 / 1152 / 3)


def test_a_hit_is_a_leading_run() -> None:
    """Counting every resident block would credit text whose beginning is gone."""
    assert lru_hits(prompts("ABC", "XBC")).block == 0
    assert lru_hits(prompts("ABC", "ABX")).block == pytest.approx(2 / 6)


def test_the_tail_goes_first() -> None:
    """Evicting heads first leaves tails that no prompt can reach."""
    cache = LruCache(4)
    first, second = (r.prompt for r in prompts("ABC", "XY"))
    assert first and second
    cache.add(first)
    cache.add(second)
    assert (cache.match(first), cache.match(second)) == (2, 2)


def test_a_prompt_beyond_the_capacity_keeps_its_head() -> None:
    """Evicting before the insertion would leave more blocks than there is room for."""
    cache = LruCache(2)
    prompt = prompts("ABCD")[0].prompt
    assert prompt
    cache.add(prompt)
    assert cache.match(prompt) == 2
    assert lru_hits(prompts("AB", "AB"), 0).block == 0


def test_ties_go_to_the_replica_with_least_tokens() -> None:
    """Ties to the first replica would send everything there."""
    rows = prompts("AAAA", "B", "C", "D", "E", "AAAA")
    split = replica_hits(rows, 2, "prefix")
    assert split.tokens == (8 * 512, 4 * 512)
    assert split.imbalance == pytest.approx(8 / 6)
    assert split.hits.block == pytest.approx(4 / 12)


def test_round_robin_deals_in_turn() -> None:
    """A dealer that keeps to one replica would hit all four repeats."""
    split = replica_hits(prompts("A", "B", "A", "B", "A", "A"), 2, "round-robin")
    assert split.hits.block == pytest.approx(3 / 6) and split.tokens == (1536, 1536)


def test_random_takes_a_seed() -> None:
    """An unseeded policy makes a table nobody can repeat."""
    rows = synthetic(1, 300, 100, groups=9, shared_tokens=512).requests
    runs = [replica_hits(rows, 4, "random", seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


@given(
    st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=6, unique=True), min_size=1),
    st.integers(0, 15),
    st.integers(0, 5),
)
def test_hits_never_fall_with_capacity(words: list[list[int]], small: int, more: int) -> None:
    """LRU has the inclusion property; a cache that touches or evicts in another order loses it."""
    sizes = [512 * len(word) for word in words]
    rows = from_columns([0.0] * len(words), sizes, sizes, block_prompts(sizes, words))
    low, high, most = hit_curve(rows, [small, small + more, None])
    assert all(a <= b <= c for a, b, c in zip(low, high, most, strict=True))


@pytest.mark.parametrize("top", [5, 1 << 62])
def test_block_prompts_cut_the_last_block(top: int) -> None:
    """A full last block makes a prompt longer than it is; a table up to a hash fits nowhere."""
    made: list[Prompt] = block_prompts([1024, 513, 7], [[0, top], [0, 3], [4]])
    assert made == [((0, 512), (top, 512)), ((0, 512), (3, 1)), ((4, 7),)]
    assert made[0][0] is made[1][0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: lru_hits(prompts("A"), -1),
        lambda: lru_hits([]),
        lambda: lru_hits(synthetic(1, 3).requests),
        lambda: replica_hits(prompts("A"), 0, "random"),
        lambda: replica_hits(prompts("A"), 2, "sticky"),
    ],
)
def test_bad_arguments_are_one_line(call: object) -> None:
    """A division by zero is no way to say that a trace has no block ids."""
    with pytest.raises(InputError) as error:
        call()  # type: ignore[operator]
    assert "\n" not in str(error.value) and str(error.value).count(";") == 2


@pytest.mark.parametrize("name", CURVES)
def test_published_hit_curve(mooncake: Callable[[str], list[Request]], name: str) -> None:
    """Counting full blocks only, or hits beyond the leading run, moves these by more than 0.005."""
    curve = hit_curve(mooncake(name), CAPACITIES)
    assert [hits.block for hits in curve] == pytest.approx(CURVES[name], abs=0.0005)
    assert curve[-1] == pytest.approx(THREE[name], abs=0.0005)


@pytest.mark.parametrize(("name", "n", "capacity", "turns", "chance", "prefix"), REPLICAS)
def test_published_replica_table(
    mooncake: Callable[[str], list[Request]],
    name: str,
    n: int,
    capacity: int | None,
    turns: tuple[float, float],
    chance: tuple[float, float],
    prefix: tuple[float, float],
) -> None:
    """The hotspot of prefix affinity (imbalance N) must come out, and what round robin loses."""
    rows = mooncake(name)
    wanted = (
        ("round-robin", turns, 0.0005, 0.01),
        ("random", chance, 0.01, 0.1),
        ("prefix", prefix, 0.0005, 0.01),
    )
    for policy, (hit, imbalance), near, even in wanted:
        got = replica_hits(rows, n, policy, capacity, seed=1)
        assert got.hits.block == pytest.approx(hit, abs=near), policy
        assert got.imbalance == pytest.approx(imbalance, abs=even), policy


def test_ids_that_name_their_whole_prefix_are_told_from_those_that_do_not() -> None:
    """Taken for hashes by mistake, plain content ids would make a cache hit where text differs."""
    chained = [((0, 4), (1, 4), (9, 2)), ((0, 4), (2, 4)), None]
    assert chained_block(chained) == 4
    assert chained_block([*chained, ((2, 4), (1, 4))]) is None
    assert chained_block([((7, 3),)]) == 3
    assert chained_block([None]) is None
