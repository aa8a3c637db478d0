"""Expert load: skew, chance, and what a placement can and cannot mend."""

import json

import numpy as np
import pytest

from minilab.core.expert_balance import balance_layers
from minilab.facts.errors import InputError
from minilab.facts.expert_load import ExpertLoad, parse_load

IN_ORDER = [tuple(range(256))] * 4


@pytest.mark.parametrize(("sigma", "plain"), [(0.3, 1.27), (0.6, 1.65), (1.0, 2.16)])
def test_lognormal_imbalance_and_what_eplb_leaves_of_it(sigma, plain):
    """E=256 on 32 GPUs: 1.27 / 1.65 / 2.16 in order, at most 1.07 with 288 replicas placed."""
    load = parse_load(f"lognormal:{sigma}", 256, 8)
    assert load.slowest(10**6, 32, IN_ORDER).imbalance == pytest.approx(plain, rel=0.07)
    plans = balance_layers(load.table.tolist(), 288, 32)
    placed = load.slowest(10**6, 32, [p.slots for p in plans]).imbalance
    assert 1.0 < placed < 1.07


def test_few_tokens_are_uneven_whatever_the_placement():
    """40 tokens on 128 equal experts, top-8: single experts far above the mean, by chance alone."""
    load = parse_load("uniform", 128, 8)
    alone = load.slowest(40, 128, [tuple(range(128))] * 4)
    assert 2.5 < alone.imbalance < 4
    assert load.slowest(40_000, 128, [tuple(range(128))] * 4).imbalance < 1.1


def test_chance_agrees_with_counting_real_draws():
    """Binomial counts per expert against top-k drawn without replacement."""
    rng = np.random.default_rng(3)
    seen = []
    for _ in range(60):
        picks = np.argsort(rng.random((64, 32)), axis=1)[:, :4]
        counts = np.bincount(picks.ravel(), minlength=32)
        seen.append(counts.max() / counts.mean())
    load = parse_load("uniform", 32, 4)
    assert load.slowest(64, 32, [tuple(range(32))] * 4).imbalance == pytest.approx(
        np.mean(seen), rel=0.05
    )


def test_zipf_is_steeper_than_uniform_and_seeded():
    flat, steep = parse_load("uniform", 64, 4), parse_load("zipf:1.0", 64, 4)
    assert flat.max_over_mean() == pytest.approx(1.0) and steep.max_over_mean() > 10
    again = parse_load("zipf:1.0", 64, 4)
    assert (steep.table == again.table).all()
    assert (steep.table != parse_load("zipf:1.0", 64, 4, seed=1).table).any()


def test_between_follows_slowest():
    load, slots = parse_load("lognormal:0.6", 256, 8), tuple(IN_ORDER)
    for tokens in (1, 7, 64, 300, 5000):
        quick, exact = load.between(tokens, 32, slots), load.slowest(tokens, 32, slots)
        assert quick.imbalance == pytest.approx(exact.imbalance, rel=0.08)
        assert quick.touched == pytest.approx(exact.touched, abs=0.08)
    assert load.between(0, 32, slots) == (1.0, 0.0)


def test_recorded_counts(tmp_path):
    file = tmp_path / "counts.json"
    file.write_text(json.dumps([[4, 1, 1, 2]]))
    assert parse_load(f"recorded:{file}", 4, 2).max_over_mean() == 2.0
    with pytest.raises(InputError, match="the model has 8"):
        parse_load(f"recorded:{file}", 8, 2)
    file.write_text("{}")
    with pytest.raises(InputError, match="list of layers"):
        parse_load(f"recorded:{file}", 4, 2)


@pytest.mark.parametrize(
    ("text", "word"), [("pareto:1", "give uniform"), ("zipf", "number"), ("zipf:-1", "0 to 10")]
)
def test_unknown_loads_are_refused(text, word):
    with pytest.raises(InputError, match=word):
        parse_load(text, 8, 2)


@pytest.mark.parametrize(
    ("table", "top_k", "word"),
    [
        ([], 1, "layers"),
        ([[1, 2], [1]], 1, "different numbers"),
        ([[-1, 2]], 1, "0 or more"),
        ([[0, 0]], 1, "no expert"),
        ([[1, 1]], 3, "top_k"),
    ],
)
def test_bad_tables_are_refused(table, top_k, word):
    with pytest.raises(InputError, match=word):
        ExpertLoad(table, top_k)
