"""Lab 04: its references are the package's own."""

from __future__ import annotations

import random

import pytest

from minilab.lab import spec_texts
from minilab.lab.exercises.lab04.accept import DrawAt, accept
from minilab.lab.exercises.lab04.lookup import look_up
from minilab.lab.exercises.lab04.sampler import shipped, verify
from minilab.lab.exercises.lab04.table import draft_table, step_times
from minilab.lab.exercises.lab04.tree import tree_tokens
from minilab.lab.spec_law import distance


def test_the_rule_puts_out_the_exact_law() -> None:
    """The reference, integrated over a grid of coins, against the law that is summed elsewhere.

    With odds that are multiples of 1/8 and coins at the middles of 64 stretches the grid is exact.
    """
    law = pytest.importorskip("minilab.engine.spec.law", reason="needs torch")
    p = [[0.125, 0.5, 0.375], [0.25, 0.25, 0.5]]
    q = [[0.5, 0.25, 0.25]]
    grid = [(i + 0.5) / 512 for i in range(512)]
    found: dict[tuple[int, ...], float] = {}
    for token, chance in enumerate(q[0]):
        for coin in grid:
            for draw in (0.05, 0.2, 0.3, 0.45, 0.55, 0.7, 0.8, 0.95):
                out = tuple(accept([token], p, q, [coin], DrawAt(draw)))
                found[out] = found.get(out, 0.0) + chance / 512 / 8
    wanted = law.step(lambda text: p[len(text)], lambda text: q[len(text)], 1)
    one_token = {text: odds for text, odds in wanted.items() if len(text) == 1}
    assert sum(odds for text, odds in found.items() if len(text) == 2) == pytest.approx(
        sum(odds for text, odds in wanted.items() if len(text) == 2), abs=1e-12
    )
    assert {t for t in found if len(t) == 1} == set(one_token)
    for text, odds in one_token.items():
        assert found[text] == pytest.approx(odds, abs=0.07)


def test_the_shipped_sampler_is_wrong_only_where_nobody_looked() -> None:
    """Right for one request at T 0 and 1; wrong at other temperatures, and for four requests."""
    right = [(0.0, 1), (1.0, 1)]
    wrong = [(0.5, 1), (2.0, 1), (0.0, 4), (0.5, 4), (1.0, 4), (2.0, 4)]
    for temperature, requests in right + wrong:
        seen = distance(shipped, temperature, requests, 1500)
        assert (seen > 0.05) == ((temperature, requests) in wrong), (temperature, requests, seen)
        assert distance(verify, temperature, requests, 1500) < 0.05


def test_look_up_is_the_engines_where_one_place_matches() -> None:
    """The engine also looks at some older places, for one with more text behind it; where the
    newest has enough, both must guess the same."""
    pytest.importorskip("torch")
    from minilab.engine.sampling import SamplingParams
    from minilab.engine.spec.ngram import NGram
    from minilab.engine.spec.proposer import Drafting

    rng = random.Random(3)
    same = 0
    for _ in range(200):
        tokens = rng.choices(range(8), k=60)
        mine = look_up(tokens, 3, 3, 2)
        theirs = NGram(3, 2).continuation(Drafting(0, tokens, SamplingParams(temperature=0), 3))
        assert bool(mine) == bool(theirs)
        if len(mine) == 3:
            assert mine == theirs
            same += 1
    assert same > 50


def test_the_table_is_the_engines() -> None:
    pytest.importorskip("torch")
    from minilab.engine.spec.draft_table import DraftTable

    rng = random.Random(5)
    for _ in range(20):
        kept = sorted((rng.random() for _ in range(4)), reverse=True)
        times = step_times(7e-3, rng.uniform(2e-5, 2e-4), (1, 8, 32, 128, 512), 4)
        theirs = [list(row) for row in DraftTable.best(times, kept).rows]
        assert draft_table(times, kept) == theirs


def test_a_chain_is_the_formula() -> None:
    from minilab.facts.speculation import emitted, tree_emitted

    for k in (1, 4, 7):
        assert tree_tokens([*range(-1, k - 1)], [0.7] * k) == pytest.approx(emitted(0.7, k))
    parents, chances = [-1, -1, 0, 0, 1], [0.6, 0.2, 0.5, 0.3, 0.5]
    assert tree_tokens(parents, chances) == pytest.approx(tree_emitted(parents, chances))


@pytest.mark.parametrize("kind", spec_texts.KINDS)
def test_recorded_texts_count_as_the_engine_counts(kind: str) -> None:
    """Each kind is there, and walking a text with any proposer spells exactly that text."""
    pytest.importorskip("torch")
    from minilab.engine.sampling import SamplingParams
    from minilab.engine.spec.ngram import NGram
    from minilab.engine.spec.proposer import Drafting
    from minilab.engine.spec.replay import Text, replay

    (text, *_) = spec_texts.recorded(kind)
    engine = NGram(4, 2)

    def propose(tokens, most):
        return engine.continuation(Drafting(0, list(tokens), SamplingParams(temperature=0), most))

    steps = spec_texts.walk(propose, text, 4)
    counted = replay(NGram(4, 2), Text(list(text.tokens), text.num_prompt_tokens), 4)
    seen = spec_texts.Tally(tuple(steps))
    assert seen.tokens == counted.num_emitted_tokens
    assert (len(steps), sum(s.guessed for s in steps), sum(s.kept for s in steps)) == (
        counted.num_steps, counted.num_draft_tokens, counted.num_accepted_tokens,
    )  # fmt: skip
    assert seen.acceptance_length == pytest.approx(counted.acceptance_length)
    assert seen.expanded_batch == pytest.approx(counted.expanded_batch)
    assert seen.per_position == pytest.approx(counted.per_position)
    gaps = seen.gaps(spec_texts.recorded_seconds(1))
    assert len(gaps) == seen.tokens and sum(gap > 0 for gap in gaps) == len(steps)


def test_a_guess_never_looks_ahead() -> None:
    """The proposer is shown what is known so far, and no token of the text behind it."""
    text = spec_texts.recorded("story")[0]
    lengths = []

    def spy(tokens, most):
        assert tuple(tokens) == text.tokens[: len(tokens)]
        assert most <= len(text.tokens) - len(tokens) - 1
        lengths.append(len(tokens))
        return []

    steps = spec_texts.walk(spy, text, 4)
    assert len(steps) == len(text.tokens) - text.num_prompt_tokens - 1
    assert lengths == sorted(lengths)


def test_guesses_on_the_engine_leave_the_text_alone() -> None:
    """The lab's own run: a learner's function as proposer, and its counts."""
    pytest.importorskip("torch")
    from minilab.engine.tiny import TINY, random_weights
    from minilab.lab.spec_run import run, step_seconds

    checkpoint = TINY, random_weights(TINY)
    prompts = [[5, 6, 7, 5, 6, 7, 5], [9, 8, 9, 8, 9]]
    plain = run(checkpoint, prompts, 30)
    guessed = run(checkpoint, prompts, 30, lambda tokens, most: look_up(tokens, most, 3, 1))
    assert [one.tokens for one in plain] == [one.tokens for one in guessed]
    assert guessed[0].counts is not None and guessed[0].counts.num_accepted_tokens > 0
    assert len(guessed[0].steps) <= len(plain[0].steps) == 29
    assert step_seconds(checkpoint, (1, 3), 2, 20, 1).keys() == {1, 3}
