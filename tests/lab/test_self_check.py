"""Every key of the self-check is worked out here a second time, by hand and without the package."""

from __future__ import annotations

import html
import json
import math
import re
from pathlib import Path

import pytest
import yaml

from minilab.lab.self_check import chapters, checks

ROOT = Path(__file__).parents[2]
QUESTIONS = [question for questions in chapters().values() for question in questions]

H100 = {"flops": 989e12, "bytes": 3.35e12}
LLAMA = {"params": 8_030_261_248, "embedding": 128_256 * 4096, "kv": 2 * 32 * 8 * 128 * 2}

KEYS = {
    "floor": 1e3 * 2 * LLAMA["params"] / H100["bytes"],
    "ridge": H100["flops"] / H100["bytes"],
    "utilisation": 100
    * (2 * (LLAMA["params"] - LLAMA["embedding"]) / H100["flops"])
    / (2 * LLAMA["params"] / H100["bytes"]),
    "goodput": 7 / 10 / 2,
    "tpot": 1e3 * (2.5 - 0.5) / 40,
    "stall": 2000 - 39 * 25,
    "price": 2 * 2 / 3600 / (7 / 10) * 1000,
    "kv-bytes": 4000 * LLAMA["kv"] / 1e6,
    "wire": 1e3 * 4000 * LLAMA["kv"] / (100e9 / 8),
    "pools": 8 * 25 / 100,
    "full-hit": 16,
    "shared-part": 1000 // 16 * 16,
    "round-robin": 100 * (10 - 4) / 10,
    "salt": 3,
    "tier-bandwidth": LLAMA["kv"]
    / (2 * (LLAMA["params"] - LLAMA["embedding"]) / H100["flops"])
    / 1e9,
    "tier-tokens": 256 * 2**30 / LLAMA["kv"],
    "tier-time": 1e3 * 8000 * LLAMA["kv"] / 64e9,
    "emitted": (1 - 0.8**6) / (1 - 0.8),
    "positions": 1 + 0.74 + 0.48 + 0.26,
    "loses": 3 / 4.4,
    "kept": 1 - (abs(0.5 - 0.6) + abs(0.3 - 0.2) + abs(0.2 - 0.2)) / 2,
    "mtp": 1.85 / 1.05,
    "fp8-break-even": (6.58 - 6.44) / (4.37e-5 - 2.37e-5),
    "fp8-gain": 100
    * (
        (2 * LLAMA["params"] + 32768 * LLAMA["kv"])
        / (2 * LLAMA["params"] + 32768 * LLAMA["kv"] / 2)
        - 1
    ),
    "fp8-tokens": math.floor(40e9 / (LLAMA["kv"] / 2) / 16) * 16,
    "mla-bytes": 61 * (512 + 64) * 2,
    "mla-ratio": 2 * 126 * 8 * 128 * 2 / (61 * (512 + 64) * 2),
    "experts-per-gpu": (256 + 32) / 144,
    "dispatch": 8 * (7168 + 7168 / 128 * 4),
}
"""The answers by hand, from configurations and data sheets, without any function of the package."""


def test_every_key_is_worked_out_here():
    assert [question.key for question in QUESTIONS] == list(KEYS)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.key)
def test_the_key_is_right(question):
    """A wrong key teaches a wrong number to everybody who trusts it."""
    assert question.value() == pytest.approx(KEYS[question.key], rel=2e-3)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.key)
def test_the_arithmetic_shown_leads_to_the_answer(question):
    """The sentence shows the computed answer, and a reader who types what it shows is right."""
    assert question.how.count("{answer}") == 1
    shown = float(re.sub(r"[^\d.]", "", question.answer().split()[0]))
    value = question.value()
    assert abs(shown - value) <= max(question.tolerance, 5e-3) * abs(value)


def test_every_chapter_has_statements():
    course = yaml.safe_load((ROOT / "book" / "course.yml").read_text(encoding="utf-8"))
    pages = [one["page"].removeprefix("book/") for one in course["chapters"] if "page" in one]
    assert set(pages) == set(chapters())
    assert all(len(questions) >= 3 for questions in chapters().values())
    assert all(question.says.startswith("I can ") for question in QUESTIONS)


def test_the_page_asks_all_chapters_and_ends_with_the_guess():
    text = (ROOT / "book" / "self-check.md").read_text(encoding="utf-8")
    assert re.findall(r'^checks\("(.+)"\)$', text, re.MULTILINE) == list(chapters())
    assert text.index("guess_now()\n```") > text.index("## As an interviewer would ask")
    assert text.count(":::{dropdown} Answer") >= 8
    assert 'Not "two to three times as fast"' in text


def test_the_list_is_whole_without_a_script():
    """Box, question and folded answer are in the page; the answer is not outside the fold."""
    text = checks("goodput").data
    questions = chapters()["goodput"]
    assert text.count('type="checkbox"') == text.count("<details>") == len(questions)
    unfolded = re.sub(r"<details>.*?</details>|data-check=\"[^\"]*\"", "", text)
    assert "1,025" not in unfolded and html.escape(questions[2].asks) in unfolded
    (data,) = [json.loads(html.unescape(one)) for one in
               re.findall(r'data-check="([^"]*)"', text) if "stall" in one]  # fmt: skip
    assert data["value"] == pytest.approx(1025)


def test_an_unknown_chapter_is_an_error():
    with pytest.raises(KeyError):
        checks("no-such-page")
