"""The live models in a real browser: the package's own Python under MicroPython, in the page."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from built_site import Built

from minilab.judge.selector.page import Page, finite
from minilab.judge.selector.parameters import choices, parameters, settings_of
from minilab.judge.selector.report import report
from minilab.judge.selector.tables import as_json, tables
from site_server import serve

PREFIX = "/name/"
SECONDS = 60_000

ASK = """async ([root, asked]) => {
  const worker = new Worker(root + '_static/live/worker.mjs', {type: 'module'});
  const answer = ([method, given]) => new Promise((resolve) => {
    worker.onmessage = ({data}) => resolve(data);
    worker.postMessage({id: 1, kind: 'selector', method, given});
  });
  const found = [];
  for (const one of asked) found.push(await answer(one));
  worker.terminate();
  return found;
}"""


@pytest.fixture
def page(browser: Any, built: Built) -> Iterator[tuple[Any, str]]:
    with serve(built.html, PREFIX) as address:
        context = browser.new_context()
        tab = context.new_page()
        tab.set_default_timeout(SECONDS)
        yield tab, address.rstrip("/") + "/"
        context.close()


def random_settings(count: int) -> list[dict[str, Any]]:
    """Settings over the whole parameter space."""
    rng = random.Random(2026)
    found = []
    for _ in range(count):
        values: dict[str, Any] = {}
        for parameter in parameters():
            words = choices(parameter)
            low, high = parameter.get("min", 0), parameter.get("max", 0)
            if words:
                values[parameter["name"]] = rng.choice(words)
            elif parameter["scale"] == "log":
                values[parameter["name"]] = round(low * (high / low) ** rng.random(), 3)
            elif parameter["scale"] == "whole":
                values[parameter["name"]] = rng.randint(int(low), min(int(high), 64))
            else:
                values[parameter["name"]] = round(low + (high - low) * rng.random(), 3)
        found.append(values)
    return found


def differences(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Places where two JSON values differ by more than 1e-12 of their size."""
    if isinstance(ours, dict):
        return [
            one for key in ours for one in differences(ours[key], theirs.get(key), f"{where}.{key}")
        ]
    if isinstance(ours, list):
        if len(ours) != len(theirs):
            return [f"{where}: {len(ours)} against {len(theirs)}"]
        return [d for at, (a, b) in enumerate(zip(ours, theirs, strict=True))
                for d in differences(a, b, f"{where}[{at}]")]  # fmt: skip
    if isinstance(ours, float) and isinstance(theirs, (int, float)):
        near = abs(ours - theirs) <= 1e-12 * max(abs(ours), abs(theirs), 1e-300)
        return [] if near else [f"{where}: {ours!r} against {theirs!r}"]
    return [] if ours == theirs else [f"{where}: {ours!r} against {theirs!r}"]


def test_micropython_and_cpython_agree(page: tuple[Any, str]) -> None:
    """2,000 settings over the whole space to 1e-12, and a planted change is seen."""
    tab, root = page
    settings = random_settings(2000)
    tab.goto(root + "book/selector.html")
    (answer,) = tab.evaluate(ASK, [root, [["batch", settings]]])
    ours = json.loads(Page(as_json(), json.dumps(parameters())).batch(json.dumps(settings)))
    assert sum(row is not None for row in ours) > 500
    assert differences(ours, answer["answer"])[:5] == []
    settings[0]["rate"] *= 1 + 1e-7
    settings[1]["rate"] *= 1 + 1e-7
    settings[2]["rate"] *= 1 + 1e-7
    changed = json.loads(Page(as_json(), json.dumps(parameters())).batch(json.dumps(settings)))
    assert differences(changed, answer["answer"]) != []


def test_whole_reports_agree(page: tuple[Any, str]) -> None:
    """The recommendation, its reasons and its words, for 30 settings."""
    tab, root = page
    settings = random_settings(30)
    tab.goto(root + "book/selector.html")
    answers = tab.evaluate(ASK, [root, [["report", one] for one in settings]])
    for given, answer in zip(settings, answers, strict=True):
        ours = finite(report(tables(), settings_of(given)))
        assert differences(ours, answer["answer"]) == []


def test_a_slider_moves_the_numbers(page: tuple[Any, str]) -> None:
    """By keyboard, as one who uses no mouse: the rate goes up, the goodput with it."""
    tab, root = page
    tab.goto(root + "book/selector.html")
    tab.wait_for_selector("[data-ready=true]")
    before = tab.inner_text(".live-answer")
    tab.focus("#live-rate")
    for _ in range(40):
        tab.keyboard.press("ArrowRight")
    tab.wait_for_function(
        "old => document.querySelector('.live-answer').innerText !== old", arg=before
    )
    assert "rate=" in tab.url
    again = tab.context.new_page()
    again.goto(tab.url)
    again.wait_for_selector("[data-ready=true]")
    assert again.inner_text("output[for=live-rate]") == tab.inner_text("output[for=live-rate]")


def test_the_page_shows_what_the_package_computes(page: tuple[Any, str]) -> None:
    tab, root = page
    tab.goto(root + "book/selector.html#rate=20&prompt=4000&gpus=2")
    tab.wait_for_selector("[data-ready=true]")
    told = report(tables(), settings_of({"rate": 20, "prompt": 4000, "gpus": 2}))
    assert tab.inner_text("[data-out=bottleneck]") == told["bottleneck"].replace("_", " ")


def test_without_javascript_the_default_is_there(browser: Any, built: Built) -> None:
    with serve(built.html, PREFIX) as address:
        context = browser.new_context(java_script_enabled=False)
        tab = context.new_page()
        tab.goto(address.rstrip("/") + "/book/selector.html")
        told = report(tables(), settings_of({}))
        assert told["bottleneck"] in tab.inner_text(".live-default")
        context.close()


def test_the_advisor_reads_what_is_pasted(page: tuple[Any, str]) -> None:
    tab, root = page
    text = Path(__file__).with_name("metrics.txt").read_text(encoding="utf-8")
    tab.goto(root + "book/decision-table.html")
    tab.wait_for_selector("[data-ready=true]")
    tab.fill("#live-after", text)
    tab.click(".live-button")
    tab.wait_for_selector("[data-out=first]")
    assert tab.inner_text("[data-out=first]") == "queueing"
