"""EPLB on a real model's choices: planned from training text, tried on text that was held out."""

import pytest

from minilab.core.expert_balance import balance, contiguous
from minilab.facts.routing_trace import expert_loads, load_routes, train_loads

OTHER = {"code": "prose", "prose": "code"}


def mean_imbalance(text, plan_from=None):
    """Fullest of 16 GPUs over the mean, mean of the layers; 16 replicas where there is a plan."""
    found = []
    for layer, loads in enumerate(expert_loads(load_routes(text)).tolist()):
        plan = contiguous(32, 16)
        if plan_from is not None:
            plan = balance(train_loads(plan_from)[layer].tolist(), 48, 16)
        found.append(plan.imbalance(loads))
    return sum(found) / len(found)


@pytest.mark.parametrize("text", OTHER)
def test_a_plan_for_its_text_helps_and_one_for_the_other_harms(text):
    """What the page says; a plan scored on the counts it was made from would hide both."""
    assert mean_imbalance(text, text) < 0.97 * mean_imbalance(text)
    assert mean_imbalance(text, OTHER[text]) > 1.03 * mean_imbalance(text)


@pytest.mark.parametrize("text", OTHER)
def test_the_plan_looks_better_on_its_own_counts(text):
    loads = train_loads(text).tolist()
    own = [balance(layer, 48, 16).imbalance(layer) for layer in loads]
    assert sum(own) / len(own) < mean_imbalance(text, text)
