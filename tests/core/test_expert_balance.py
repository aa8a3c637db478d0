"""EPLB: the published example to the digit, and what every plan must keep."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minilab.core.expert_balance import (
    ExpertPlan,
    balance,
    balance_layers,
    contiguous,
    greedy_bound,
    pack,
    replicate,
)

# deepseek-ai/EPLB, README: two layers of 12 experts, 16 replicas, 4 groups, 2 nodes, 8 GPUs.
PUBLISHED_LOADS = [
    [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
    [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
]
PUBLISHED_PLAN = [
    (5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1),
    (7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1),
]


def test_published_example_to_the_digit():
    """Any other tie rule, sort order or numbering of slots moves an expert and fails here."""
    plans = balance_layers(PUBLISHED_LOADS, 16, 8, groups=4, nodes=2)
    assert [plan.slots for plan in plans] == PUBLISHED_PLAN
    imbalance = [p.imbalance(w) for p, w in zip(plans, PUBLISHED_LOADS, strict=True)]
    assert imbalance == pytest.approx([1.208, 1.242], abs=5e-4)


def test_global_form_ignores_nodes_and_is_flatter_on_the_example():
    plans = balance_layers(PUBLISHED_LOADS, 16, 8)
    imbalance = [p.imbalance(w) for p, w in zip(plans, PUBLISHED_LOADS, strict=True)]
    assert imbalance == pytest.approx([1.073, 1.190], abs=5e-4)
    untouched = [contiguous(12, 4).imbalance(w) for w in PUBLISHED_LOADS]
    assert untouched == pytest.approx([1.278, 1.785], abs=5e-4)


def test_groups_that_do_not_divide_by_nodes_fall_back_to_the_global_form():
    loads = PUBLISHED_LOADS[0]
    assert balance(loads, 16, 8, groups=3, nodes=2) == balance(loads, 16, 8)


@st.composite
def worlds(draw):
    """(loads, slots, gpus, groups, nodes) that divide as they must."""
    nodes = draw(st.integers(1, 3))
    per_node, groups = draw(st.integers(1, 3)), nodes * draw(st.integers(1, 2))
    width = draw(st.integers(1, 4))
    experts, gpus = groups * width, nodes * per_node
    slots = experts + draw(st.integers(0, 3))
    slots += -slots % gpus
    whole = st.integers(0, 1000)
    loads = draw(st.lists(whole, min_size=experts, max_size=experts))
    return loads, slots, gpus, groups, nodes


@given(worlds())
def test_every_expert_is_placed_and_every_gpu_keeps_its_capacity(world):
    """A lost expert answers nothing; a GPU with one too many runs out of memory."""
    loads, slots, gpus = world[:3]
    plan = balance(*world)
    assert len(plan.slots) == slots and plan.slots_per_gpu * gpus == slots
    assert set(plan.slots) == set(range(len(loads)))
    assert sum(plan.gpu_loads(loads)) == pytest.approx(sum(loads))
    assert plan.imbalance(loads) >= 1 - 1e-9


@given(worlds())
def test_hierarchical_plan_keeps_a_group_on_one_node(world):
    """Group-limited routing then crosses few machines: the reason for the hierarchy."""
    loads, slots, _, groups, nodes = world
    plan = balance(*world)
    width, node = len(loads) // groups, slots // nodes
    homes = {}
    for slot, expert in enumerate(plan.slots):
        assert homes.setdefault(expert // width, slot // node) == slot // node


@given(worlds())
def test_greedy_bound(world):
    loads, slots, gpus, _, _ = world
    plan = balance(loads, slots, gpus)
    assert max(plan.gpu_loads(loads)) <= greedy_bound(loads, plan) + 1e-9


@given(st.lists(st.integers(0, 100), min_size=1, max_size=12), st.integers(0, 12))
def test_another_replica_never_makes_the_fullest_one_fuller(loads, more):
    def fullest(slots):
        replicas = replicate(loads, slots)
        return max(loads[e] / replicas.count(e) for e in replicas)

    assert fullest(len(loads) + more + 1) <= fullest(len(loads) + more)


def test_greedy_can_be_worse_than_leaving_the_map_alone():
    """5 5 2 | 4 4 4 is even; heaviest-first splits the fives and ends at 13 against 12."""
    loads = [5, 5, 2, 4, 4, 4]
    assert max(contiguous(6, 2).gpu_loads(loads)) == 12
    assert max(balance(loads, 6, 2).gpu_loads(loads)) == 13


def test_worse_than_untouched_is_rare_on_skewed_loads_and_not_on_flat_ones():
    """On skewed loads a plan made for them helps; where there is nothing to gain it may harm."""

    def worse(sigma, trials=200):
        rng = random.Random(7)
        found = 0
        for _ in range(trials):
            loads = [rng.lognormvariate(0, sigma) for _ in range(12)]
            found += balance(loads, 12, 4).imbalance(loads) > contiguous(12, 4).imbalance(loads)
        return found / trials

    assert 0 < worse(0.05) < 0.1
    assert worse(1.0) < worse(0.05) + 0.05


def test_plan_for_other_traffic_is_worse_than_no_plan():
    """Replicas of yesterday's hot experts leave today's on one GPU each."""
    yesterday = [9, 9, 9, 9, 1, 1, 1, 1]
    today = yesterday[::-1]
    plan = balance(yesterday, 16, 8)
    assert plan.imbalance(yesterday) < contiguous(8, 8).imbalance(yesterday)
    assert plan.imbalance(today) >= contiguous(8, 8).imbalance(today)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (([], 4, 2), "at least one expert"),
        (([1, -1], 2, 2), "0 or more"),
        (([1, 1, 1], 2, 2), "slots"),
        (([1, 1, 1], 5, 2), "does not divide"),
        (([1, 1, 1], 4, 2, 2), "experts / groups"),
        (([1, 1, 1, 1], 6, 3, 2, 2), "gpus / nodes"),
        (([1, 1], 2, 0), "gpus is 0"),
    ],
)
def test_numbers_that_cannot_work_are_named(arguments, word):
    with pytest.raises(ValueError, match=word):
        balance(*arguments)


def test_pack_and_plan_corner_cases():
    assert pack([1, 9], 2) == [[0], [1]]  # one each: stays in order, as published
    assert ExpertPlan((0, 1), 2).imbalance([0, 0]) == 1.0
    with pytest.raises(ValueError, match="do not divide"):
        contiguous(12, 5)
