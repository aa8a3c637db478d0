"""The drill must grade by what the simulator does, and its truth must be in the settings."""

from __future__ import annotations

import pytest

from minilab.facts.errors import InputError
from minilab.facts.slo import attainment
from minilab.judge.advisor.table import IDS
from minilab.judge.drill.case import GOOD, Action, Case, play
from minilab.judge.drill.cases import CASES, ONE, case
from minilab.judge.drill.system import System, Traffic, differences, truth
from minilab.judge.drill.words import SUSPECTS, action_said, advisor_said, suspect_said
from minilab.sim.pd_experiment import PdExperiment

SOUND = 0.95
"""Attainment from which a system counts as healthy."""


@pytest.fixture(scope="module")
def runs():
    """Every case, simulated once."""
    return {one.key: play(one) for one in CASES}


def test_truths_are_ids_of_the_advisor_and_all_are_asked():
    """A choice that is never right, or a truth that cannot be chosen, would give itself away."""
    truths = [one.truth for one in CASES]
    assert len(truths) >= 8 and len(set(truths)) == len(truths)
    assert set(truths) == set(SUSPECTS) <= set(IDS)


def test_the_truth_is_read_off_the_settings():
    """Change the setting back, and the truth goes with it."""
    for one in CASES:
        assert set(differences(one.healthy, one.sick)) == set(one.sickness)
        assert truth(one.healthy, one.healthy) == "healthy"


def test_two_troubles_or_an_unknown_one_are_refused():
    system = System(ONE, Traffic())
    with pytest.raises(ValueError, match="several"):
        truth(system, system.with_(rate=50.0, kv_blocks=500))
    with pytest.raises(ValueError, match="stands for no suspect"):
        truth(system, system.with_(block_size=32))
    with pytest.raises(InputError, match="no_such"):
        system.with_(no_such=1)


def test_each_case_offers_four_to_six_actions_and_to_leave_it():
    for one in CASES:
        keys = [action.key for action in one.actions]
        assert 4 <= len(keys) <= 6 and len(set(keys)) == len(keys)
        assert [action.key for action in one.actions if not action.changes] == ["leave"]


def test_a_sick_system_misses_what_the_healthy_one_keeps(runs):
    """Else there is nothing to cure, or the system was ill before."""
    for key, run in runs.items():
        assert run.healthy.attainment >= SOUND, key
        assert (run.before.attainment < 0.6) == (run.case.truth != "healthy"), key


def test_an_action_is_graded_by_a_run_of_its_own_settings(runs):
    """The same settings, simulated here by hand, give the number that the drill shows."""
    run = runs["throughput"]
    (chunk,) = [one for one in run.case.actions if one.key == "chunk"]
    system = run.case.after(chunk)
    assert system.experiment.max_num_batched_tokens == 1024
    log = system.experiment.run(system.traffic.load())
    assert attainment(log, "ttft=1,itl=0.05") == run.after["chunk"].attainment
    assert log.meta["config"]["max_num_batched_tokens"] == 1024


def test_another_setting_gives_another_grade():
    """A table of outcomes would not notice that the action was changed."""
    old = case("template")
    actions = tuple(
        Action(one.key, one.label, {"max_num_seqs": 9}) if one.key == "more" else one
        for one in old.actions
    )
    new = Case(old.key, old.call, old.healthy, old.sickness, old.slo, actions)
    assert play(new).after["more"].attainment < 0.5 < SOUND <= play(old).after["more"].attainment


def test_the_best_first_action_beats_doing_nothing(runs):
    for key, run in runs.items():
        if run.case.truth == "healthy":
            assert run.good == ["leave"]
            continue
        assert run.score("leave") < 0.6, key
        assert run.good and len(run.good) <= 3, key
        assert max(run.score(one) for one in run.after) == 1.0


def test_undoing_the_change_is_the_healthy_system_again(runs):
    """The simulator is deterministic: the same settings are the same run."""
    for key, action in (("flag", "cache"), ("pools", "ratio"), ("bytes", "fp8-weights")):
        run = runs[key]
        assert run.after[action] == run.healthy


def test_more_gpus_count_against_an_action(runs):
    run = runs["nothing"]
    assert run.after["replica"].attainment == 1.0
    assert run.score("replica") < 0.6


def test_the_pages_are_those_of_the_sick_run(runs):
    """Counters of the pages add up to the requests of the run, over all servers of a role."""
    for run in runs.values():
        roles = {"prefill", "decode"} if run.case.sick.split else set(run.pages)
        assert set(run.pages) == roles
        for pages in run.pages.values():
            counts = [_count(page, "vllm:request_success_total") for page in pages]
            assert sum(counts) == len(run.log)


def _count(page: str, name: str) -> int:
    (line,) = [line for line in page.splitlines() if line.startswith(name)]
    return int(line.split()[-1])


def test_speculation_is_exported_with_its_acceptance(runs):
    """The counters are the drafter's own: 40 % of first guesses were set to be accepted."""
    page = runs["drafts"].pages[""][0]
    drafts = _count(page, "vllm:spec_decode_num_drafts_total")
    tokens = _count(page, "vllm:spec_decode_num_draft_tokens_total")
    accepted = _count(page, "vllm:spec_decode_num_accepted_tokens_total")
    assert 1 < tokens / drafts <= 5
    assert accepted / drafts == pytest.approx(sum(0.4**at for at in range(1, 6)), abs=0.03)
    assert "spec_decode" not in runs["monday"].pages[""][0]


def test_split_pools_show_their_own_side(runs):
    pages = runs["wire"].pages
    assert "nixl_xfer_time_seconds" in pages["decode"][0]
    assert "nixl_xfer_time_seconds" not in pages["prefill"][0]
    assert "inter_token_latency" not in pages["prefill"][0]


def test_the_advisor_is_reported_and_not_forced(runs):
    """It names most truths; where it does not, the drill says so."""
    right = [key for key, run in runs.items() if run.advice.diagnosis.first == run.case.truth]
    assert len(right) >= 8
    assert "first: nothing is wrong" in advisor_said(runs["nothing"])
    wrong = [run for key, run in runs.items() if key not in right]
    assert wrong and all("suspects first" in advisor_said(run) for run in wrong)


def test_the_two_mistakes_that_the_page_explains_are_made(runs):
    assert runs["flag"].advice.diagnosis.first == "kv_capacity"
    assert runs["drafts"].advice.diagnosis.first == "spec_low_acceptance"


def test_what_is_said_of_a_choice(runs):
    run = runs["monday"]
    assert suspect_said(run, "queueing") == "Right. What had changed: rate 8.0 → 48.0."
    assert suspect_said(run, "healthy").startswith("It was another: more requests arrive")
    assert "a good first action" in action_said(run, "replica")
    assert "of the best: Add a replica reaches" in action_said(run, "fewer")
    assert "for nothing" in action_said(runs["nothing"], "split")


def test_a_split_system_can_be_joined_and_a_whole_one_split():
    whole = System(ONE, Traffic())
    split = whole.with_(prefill_instances=1)
    assert isinstance(split.experiment, PdExperiment) and split.gpus == 2
    again = split.with_(prefill_instances=0)
    assert not again.split and again.gpus == 2
    assert split.with_(prefill_instances=2, instances=3).gpus == 5


def test_good_is_a_share_of_the_best(runs):
    for run in runs.values():
        assert all(run.score(key) >= GOOD for key in run.good)
