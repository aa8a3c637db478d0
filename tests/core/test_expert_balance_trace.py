"""EPLB on a real model's choices: planned from training text, tried on text that was held out."""

import pytest

from minilab.core.expert_balance import balance, contiguous
from minilab.facts.routing_trace import expert_loads, load_routes, loads_without_bias, train_loads

OTHER = {"code": "prose", "prose": "code"}


def mean_imbalance(served, planned_from=None):
    """Fullest of 16 GPUs over the mean, mean of the layers; 16 replicas where there is a plan."""
    found = []
    for layer, loads in enumerate(served.tolist()):
        plan = contiguous(32, 16)
        if planned_from is not None:
            plan = balance(planned_from[layer].tolist(), 48, 16)
        found.append(plan.imbalance(loads))
    return sum(found) / len(found)


@pytest.mark.parametrize("text", OTHER)
def test_a_plan_for_its_text_helps_and_one_for_the_other_harms(text):
    """What the page says; a plan scored on the counts it was made from would hide both."""
    served = expert_loads(load_routes(text))
    untouched = mean_imbalance(served)
    assert 1.2 < untouched < 1.4
    assert mean_imbalance(served, train_loads(text)) <= 1.15
    assert mean_imbalance(served, train_loads(OTHER[text])) > max(1.25, untouched)


@pytest.mark.parametrize("text", OTHER)
def test_without_the_bias_a_plan_has_more_to_mend(text):
    planned_from, served = loads_without_bias(text)
    assert mean_imbalance(served) >= 1.5
    assert mean_imbalance(served, planned_from) <= 1.15


@pytest.mark.parametrize("text", OTHER)
def test_the_plan_looks_better_on_its_own_counts(text):
    loads = train_loads(text)
    assert mean_imbalance(loads, loads) < mean_imbalance(expert_loads(load_routes(text)), loads)
