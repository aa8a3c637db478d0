"""The one-minute guess: three different answers, folded, the selector's own, on both pages."""

from __future__ import annotations

import re
from pathlib import Path

from minilab.judge.selector.parameters import settings_of
from minilab.judge.selector.report import report
from minilab.judge.selector.tables import tables
from minilab.lab.guess_now import GUESSES, as_html

ROOT = Path(__file__).parents[2]


def test_a_reader_who_always_says_the_same_is_right_once_at_most() -> None:
    answers = [guess.answer() for guess in GUESSES]
    assert answers == ["decode_bandwidth", "kv_transfer", "kv_capacity"]


def test_the_answers_are_folded_and_finite() -> None:
    text = as_html()
    assert text.count("<details>") == text.count("<strong>") == 3
    opened = re.sub(r"<details>.*?</details>", "", text)
    assert "<strong>" not in opened
    assert not re.search(r"\b(inf|nan)\b", text)


def test_the_number_shown_is_the_selectors() -> None:
    for guess in GUESSES:
        told = dict(report(tables(), settings_of(dict(guess.given)))["bars"])
        assert f"{told[guess.answer()]:.2f}" in as_html()


def test_the_course_asks_before_and_after() -> None:
    for page in ("from-engine", "selector", "self-check"):
        text = (ROOT / "book" / f"{page}.md").read_text(encoding="utf-8")
        assert text.count("guess_now()") == 1, page
