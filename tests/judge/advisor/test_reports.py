"""Public reports in words: the class that its thread came to must be among the first suspects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minilab.judge.advisor.symptoms import suspects_of

REPORTS = json.loads((Path(__file__).parent / "reports.json").read_text("utf-8"))


def test_first_suspect_of_public_reports():
    firsts = [suspects_of(row["report"])[0].id in row["suspects"] for row in REPORTS]
    assert len(firsts) > 60
    assert sum(firsts) >= 0.8 * len(firsts)


def test_first_two_suspects_of_public_reports():
    hits = [
        bool({found.id for found in suspects_of(row["report"])[:2]} & set(row["suspects"]))
        for row in REPORTS
    ]
    assert sum(hits) >= 0.9 * len(hits)


@pytest.mark.parametrize("text", ["", "the weather is fine today", "1 2 3", "{}"])
def test_words_without_a_symptom_are_unknown(text):
    assert [found.id for found in suspects_of(text)] == ["unknown"]


def test_words_never_make_a_fault():
    """Words alone must not outrank what a server's own numbers show."""
    for row in REPORTS:
        assert all(found.kind != "fault" for found in suspects_of(row["report"]))
