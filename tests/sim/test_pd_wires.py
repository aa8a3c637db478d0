"""Wires share fairly, and a better wire never makes a transfer later."""

from __future__ import annotations

from heapq import heappop, heappush

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.facts.cost_transfer import transfer_seconds
from minilab.facts.errors import InputError
from minilab.facts.hardware import Link
from minilab.facts.ticks import to_seconds, to_ticks
from minilab.sim.pd_wires import Cargo, Wires
from minilab.sim.topology import Topology

Send = tuple[float, int, int, Cargo]  # start (s), source, target, what


def replay(
    sends: list[Send],
    topology: Topology,
    nodes: int = 4,
    alpha: float = 0.0,
    limit: int | None = None,
) -> list[tuple[float, float]]:
    """(begin, end) in seconds of each of a fixed set of transfers."""
    events: list[tuple[int, int, object]] = []
    serial = iter(range(10**9))

    def at(tick: int, action: object) -> None:
        heappush(events, (tick, next(serial), action))

    wires = Wires(at, alpha, limit)
    places = topology.place([1] * nodes)
    begun, ended = [-1.0] * len(sends), [-1.0] * len(sends)

    def go(k: int) -> None:
        start, source, target, cargo = sends[k]
        wires.start(
            to_ticks(start),
            topology.path(places, source, target),
            cargo,
            lambda tick: ended.__setitem__(k, to_seconds(tick)),
            lambda tick: begun.__setitem__(k, to_seconds(tick)),
        )

    for k, send in enumerate(sends):
        at(to_ticks(send[0]), lambda k=k: go(k))
    while events:
        heappop(events)[2]()  # type: ignore[operator]
    return list(zip(begun, ended, strict=True))


def one_per_node(bandwidth: float, latency: float = 0.0, nics: int | None = None) -> Topology:
    link = Link("wire", bandwidth, latency)
    return Topology(1, link, link, nics)


def test_alone_it_costs_what_the_formula_says() -> None:
    topology = one_per_node(1e6, 0.002)
    ((_, end),) = replay([(1.0, 0, 1, Cargo(5e5, 100))], topology, alpha=1e-4)
    link = topology.between
    assert end - 1.0 == pytest.approx(transfer_seconds(5e5, link, 100, 1e-4), abs=1e-12)


def test_two_at_once_take_turns_byte_by_byte() -> None:
    """A has 1 s of work, B comes at 0.5 with 1 s: A's second half and B's first take 1 s."""
    sends = [(0.0, 0, 1, Cargo(1e6, 0)), (0.5, 0, 1, Cargo(1e6, 0))]
    (_, first), (_, second) = replay(sends, one_per_node(1e6))
    assert first == pytest.approx(1.5) and second == pytest.approx(2.0)


def test_other_pairs_are_not_in_the_way_but_a_shared_card_is() -> None:
    sends = [(0.0, 0, 2, Cargo(1e6, 0)), (0.0, 1, 3, Cargo(1e6, 0))]
    apart = replay(sends, one_per_node(1e6))
    assert [end for _, end in apart] == pytest.approx([1.0, 1.0])
    link = Link("wire", 1e6, 0.0)
    shared = replay(sends, Topology(2, link, link, nics_per_node=1))
    assert [end for _, end in shared] == pytest.approx([2.0, 2.0])


def test_a_transfer_that_must_wait_for_its_turn_says_so() -> None:
    sends = [(0.0, 0, 1, Cargo(1e6, 0)), (0.0, 0, 2, Cargo(1e6, 0))]
    spans = replay(sends, one_per_node(1e6), limit=1)
    assert spans[0] == pytest.approx((0.0, 1.0)) and spans[1] == pytest.approx((1.0, 2.0))


def test_many_pieces_cost_more_than_their_bytes_unless_gathered() -> None:
    """sgl-project/sglang#35036: the fixed cost of each entry, not the wire, is the time."""
    scattered, gathered = Cargo(1e6, 4096), Cargo(1e6, 1, staging=1e-3)
    topology = one_per_node(5e9)
    slow = replay([(0.0, 0, 1, scattered)], topology, alpha=1e-5)[0][1]
    fast = replay([(0.0, 0, 1, gathered)], topology, alpha=1e-5)[0][1]
    assert slow > 0.04 and fast == pytest.approx(2e-3 + 1e-5 + 2e-4, rel=1e-6)


sends = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 0.1, 0.2, 0.7]),
        st.integers(0, 1),
        st.integers(2, 3),
        st.builds(Cargo, st.sampled_from([0.0, 1e4, 2e5, 1e6]), st.integers(0, 50), st.just(0.0)),
    ),
    min_size=1,
    max_size=10,
)


@settings(max_examples=150, deadline=None)
@given(sends, st.floats(1e5, 1e7), st.floats(1.0, 8.0), st.sampled_from([None, 1]))
def test_more_bandwidth_delays_nobody(
    fixed: list[Send], bandwidth: float, factor: float, nics: int | None
) -> None:
    """For a fixed set of transfers, each of them, so also their mean."""
    fixed = sorted(fixed, key=lambda send: send[0])
    slow = replay(fixed, one_per_node(bandwidth, nics=nics), alpha=1e-4)
    fast = replay(fixed, one_per_node(bandwidth * factor, nics=nics), alpha=1e-4)
    for (_, late), (_, early) in zip(slow, fast, strict=True):
        assert early <= late + 1e-9


@settings(max_examples=80, deadline=None)
@given(sends)
def test_no_port_carries_more_than_it_can(fixed: list[Send]) -> None:
    """All that leaves instance 0 needs at least its bytes over the bandwidth."""
    fixed = sorted(fixed, key=lambda send: send[0])
    ends = replay(fixed, one_per_node(1e6))
    mine = [(send, end) for send, (_, end) in zip(fixed, ends, strict=True) if send[1] == 0]
    if mine:
        work = sum(send[3].nbytes for send, _ in mine) / 1e6
        assert max(end for _, end in mine) >= min(send[0] for send, _ in mine) + work - 1e-9
        for send, end in mine:
            assert end >= send[0] + send[3].nbytes / 1e6 - 1e-9


def test_instances_are_not_torn_between_machines() -> None:
    link = Link("wire", 1e6, 0.0)
    places = Topology(8, link, link).place([4, 4, 4, 8])
    assert [place.node for place in places] == [0, 0, 1, 2]
    apart = Topology(8, link, link).place([2, 2], new_node_at=1)
    assert [place.node for place in apart] == [0, 1]


def test_inside_a_machine_the_inner_link_carries() -> None:
    inside, between = Link("nvlink", 4e11, 0.0), Link("net", 1e9, 0.0)
    topology = Topology(2, inside, between)
    places = topology.place([1, 1, 1])
    assert topology.path(places, 0, 1).link is inside
    assert topology.path(places, 0, 2).link is between


def test_refused_limits_name_the_way_out() -> None:
    link = Link("wire", 1e6, 0.0)
    with pytest.raises(InputError, match="gpus_per_node is 0"):
        Topology(0, link, link)
    with pytest.raises(InputError, match="max_transfers is 0"):
        Wires(lambda tick, action: None, 0.0, 0)
