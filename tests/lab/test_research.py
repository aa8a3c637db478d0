"""The research map must name every work it promises, and lead only to what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from minilab.judge.advisor.table import rows
from minilab.lab.page import Links, table
from minilab.lab.research import core, entries, entries_for, entries_of, lines

ROOT = Path(__file__).resolve().parents[2]

NAMED = {
    "pd": ["DistServe", "Splitwise", "NVIDIA Dynamo disaggregation"],
    "kv": ["Mooncake", "LMCache", "vLLM connectors"],
    "prefix": ["SGLang", "RadixAttention", "vLLM prefix caching"],
    "decode": ["vLLM speculative decoding", "Medusa", "EAGLE", "MTP"],
    "bits": ["vLLM FP8", "Quantised KV cache", "AWQ", "GPTQ"],
    "moe": ["DeepSeek-V3", "DeepEP", "vLLM MoE kernels"],
}
"""What the course promises to place, thread by thread."""

NO_WORK_HELPS = {"numbers-disagree", "nothing-known"}
"""Rows that are about measuring; the map says so in its text."""


@pytest.fixture(scope="module")
def headings():
    """Page of the contents -> anchors that its headings get; labs' cells have no named ones."""
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    found = {}
    for page in re.findall(r"(?:file|root): (\S+)", toc):
        path = ROOT / f"{page}.md"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        titles = re.findall(r"^#{1,3} (.+)$", prose, re.MULTILINE)
        found[page] = {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in titles}
    return found


@pytest.fixture(scope="module")
def planned():
    """Pages that other pages may name before they are written."""
    rows_name = {f"book/{row.page}" for row in rows()}
    course = yaml.safe_load((ROOT / "book" / "course.yml").read_text(encoding="utf-8"))
    return rows_name | {one.get("page") for part in course.values() for one in part}


def test_every_promised_work_is_in_its_thread():
    assert [line.key for line in lines()] == list(NAMED)
    for line, names in NAMED.items():
        assert set(names) <= {entry.title for entry in entries_of(line)}


def test_an_unknown_thread_is_an_error():
    with pytest.raises(KeyError):
        entries_of("quantum")


def test_each_work_answers_the_three_questions_in_its_own_words():
    """A copied answer would say the same of two works."""
    for name in ("main", "bottleneck", "cost", "layer"):
        texts = [getattr(entry, name) for entry in entries()]
        assert all(len(text) > 20 and text.endswith(".") for text in texts)
        if name != "layer":
            assert len(set(texts)) == len(texts)


def test_fifteen_are_core_in_an_order_with_minutes():
    assert [entry.order for entry in core()] == list(range(1, 16))
    assert all(10 <= entry.minutes <= 120 for entry in core())
    assert {entry.line for entry in core()} == {line.key for line in lines()}
    assert all((entry.minutes > 0) == (entry.order > 0) for entry in entries())


def test_every_row_of_the_decision_table_leads_to_works():
    keys = {row.key for row in rows()}
    assert {row for entry in entries() for row in entry.rows} <= keys
    assert {row.key for row in rows() if not entries_for(row.key)} == NO_WORK_HELPS
    assert all(len(entries_for(row.key)) >= 2 for row in rows() if row.core)


def test_every_place_in_this_course_exists(headings, planned):
    """A page that is not written yet may be named; the map then leaves it out, so not it alone."""
    for entry in entries():
        pages = [place.partition("#")[0] for place in entry.here]
        assert set(pages) <= set(headings) | planned, entry.id
        assert any(page in headings for page in pages), f"{entry.id} leads nowhere"
        for place in entry.here:
            page, _, section = place.partition("#")
            assert not section or page not in headings or section in headings[page], place


def test_the_test_of_places_can_fail(headings):
    assert "the-break-even-prompt" in headings["book/pd-split"]
    assert "the-break-evn-prompt" not in headings["book/pd-split"]


def test_every_file_of_code_exists():
    missing = [path for entry in entries() for path in entry.code if not (ROOT / path).is_file()]
    assert missing == []


def test_titles_and_years_are_those_of_the_bibliography():
    text = (ROOT / "book" / "references.bib").read_text(encoding="utf-8")
    years = dict(re.findall(r"^@\w+\{(\w+),.*?^  year = \{(\d+)\}", text, re.M | re.S))
    for entry in entries():
        assert years.get(entry.bib) == str(entry.year), entry.id
    assert len(re.findall(r"^@", text, re.MULTILINE)) == len(years), "a key twice, or no year"


def test_production_names_its_version():
    for entry in entries():
        assert entry.production, entry.id
        for product in entry.production:
            assert re.search(r"\d", product.version), entry.id
            assert product.url == "" or product.url.startswith("https://")


def test_a_cell_of_links_is_escaped():
    html = table(["a"], [[Links((("B & C", 'x.html#"d"'),))]]).data
    assert '<a href="x.html#&quot;d&quot;">B &amp; C</a>' in html
