"""The drill's page and widget: every answer folded, every choice answered by the simulator."""

from __future__ import annotations

import html
import json
import re

import pytest

from minilab.judge.drill.words import SUSPECTS, action_said
from minilab.lab import drill_widget
from minilab.lab.drill_page import case_html, played

KEY = "template"
"""The quickest case of one server, so that this file does not simulate them all again."""


@pytest.fixture(scope="module")
def text():
    return case_html(played(KEY), 2)


def test_without_a_script_the_answer_is_there_and_folded(text):
    opened = re.sub(r"<details.*?</details>", "", re.sub(r'data-drill="[^"]*"', "", text))
    run = played(KEY)
    assert run.case.call in opened and "waiting" in opened
    assert "max_num_seqs 256" not in opened and "goodput" not in opened
    assert "max_num_seqs 256 → 8" in text
    assert "Right" not in re.sub(r'data-drill="[^"]*"', "", text)
    assert all(html.escape(action.label) in text for action in run.case.actions)


def test_the_script_is_given_sentences_and_no_sums(text):
    data = json.loads(html.unescape(re.search(r'data-drill="([^"]*)"', text)[1]))
    run = played(KEY)
    assert data["truth"] == run.case.truth
    assert [row[0] for row in data["suspects"]] == list(SUSPECTS)
    for key, _, said, score in data["actions"]:
        assert said == action_said(run, key)
        assert score == pytest.approx(run.score(key), abs=1e-3)


def test_the_dashboard_shows_what_the_pages_export(text):
    """Nothing that only the simulator knows: speculation and transfers have no counters here."""
    assert "KV usage" in text
    assert "drafts accepted" not in text and "KV transfer" not in text


def test_the_widget_asks_and_answers(monkeypatch):
    pytest.importorskip("ipywidgets", reason="needs ipywidgets")
    only = tuple(one for one in drill_widget.CASES if one.key == KEY)
    monkeypatch.setattr(drill_widget, "CASES", only)
    call, shown, suspect, action, button, said = drill_widget.drill_widget().children
    assert call.value == KEY and "goodput" not in shown.value
    button.click()
    assert "first" in said.value
    suspect.value, action.value = "config_limit", "more"
    button.click()
    assert "Right." in said.value and "a good first action" in said.value
