"""lab.report: one file to show, whole, with nothing fetched from anywhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import pytest

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from minilab import lab
from minilab.facts.errors import InputError
from minilab.lab.report import page

ALT = "Attainment falls from 1 to 0 & the knee lies near 12 requests/s."


class Page(HTMLParser):
    """Collects tags, attributes and text; fails on an element that is closed out of order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def session_with_everything() -> None:
    lab.predict("90.a", 12, 8, 15, 0.8, unit="1/s")
    lab.outcome("90.a", 10.0)
    lab.predict("90.b", 1, 0, 2, 0.6)
    lab.predict("91.a", 1, 0, 2, 0.6)
    lab.check("90.3", "queue time")
    lab.check("90.2", max)
    lab.hint("90.2")
    lab.show(plt.figure(), alt=ALT)


def test_the_report_holds_what_the_session_holds(
    session_with_everything: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    lab.report("90", conclusion="Bigger budgets lose <here>.\n\nSee the map.")
    assert re.fullmatch(r"Report: \S*work/report_90\.html\n", capsys.readouterr().out)
    text = (tmp_path / "work" / "report_90.html").read_text(encoding="utf-8")
    parsed = Page(text)
    assert parsed.open == []
    for said in (
        "Bigger budgets lose <here>.", "See the map.", "12 1/s", "hit; your value was 20% too high",
        "Calibration over 1", "1 of 3 core exercises pass", "The signal that alarms first",
        "not checked", "Python", "stand-in",
    ):  # fmt: skip
        assert said in parsed.text, said
    assert "91.a" not in parsed.text  # another lab's prediction
    assert "open" in parsed.text  # 90.b has no outcome, and that is said
    images = [attrs for tag, attrs in parsed.seen if tag == "img"]
    assert [image["alt"] for image in images] == [ALT]


def test_nothing_in_it_is_fetched_and_it_runs_no_script(session_with_everything: None) -> None:
    parsed = Page(page("90"))
    for tag, attrs in parsed.seen:
        assert tag not in ("script", "iframe", "object")
        for name in ("src", "href", "srcset", "action"):
            assert (attrs.get(name) or "data:").startswith("data:"), (tag, attrs)
    assert "url(" not in page("90") and "@import" not in page("90")
    tags = dict(parsed.seen)
    assert tags["html"]["lang"] == "en" and "title" in tags


def test_an_empty_session_still_makes_a_report() -> None:
    parsed = Page(page(90))
    assert "0 of 3 core exercises pass" in parsed.text and "None filed." in parsed.text
    assert "None filed" in Page(page("01")).text


def test_a_report_that_cant_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.report("90")
    path = tmp_path / "work" / "report_90.html"
    before = path.read_text()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(InputError, match="No space left"):
        lab.report("90", conclusion="another")
    assert path.read_text() == before
    assert [p.name for p in path.parent.iterdir()] == ["report_90.html"]


@pytest.mark.parametrize("name", ["goodput", "", "1.2", "../01"])
def test_a_lab_is_named_by_its_number(name: str) -> None:
    with pytest.raises(InputError, match="number"):
        lab.report(name)


def test_a_report_without_words_asks_for_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lab.report("90", conclusion=" ")
    assert 'Put them into conclusion="..."' in capsys.readouterr().out
    lab.report("90", conclusion="It loses at batch 8.")
    assert "conclusion=" not in capsys.readouterr().out
