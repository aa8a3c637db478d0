"""The live models in a real browser: the package's own Python under MicroPython, in the page."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

from asking import PREFIX, ask, differences
from built_site import Built

from minilab.facts import runlog_io
from minilab.facts.workload import synthetic
from minilab.judge.advisor.expose import expose
from minilab.judge.selector.filling import Page as Filling
from minilab.judge.selector.page import Page, finite
from minilab.judge.selector.parameters import choices, parameters, settings_of
from minilab.judge.selector.report import report
from minilab.judge.selector.tables import as_json, tables
from minilab.sim.experiment import Experiment
from site_server import serve


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


def test_micropython_and_cpython_agree(live_page: tuple[Any, str]) -> None:
    """2,000 settings over the whole space to 1e-12, and a planted change is seen."""
    tab, root = live_page
    settings = random_settings(2000)
    tab.goto(root + "book/selector.html")
    (answer,) = ask(tab, root, "selector", [["batch", settings]])
    ours = json.loads(Page(as_json(), json.dumps(parameters())).batch(json.dumps(settings)))
    assert sum(row is not None for row in ours) > 500
    assert differences(ours, answer["answer"])[:5] == []
    settings[0]["rate"] *= 1 + 1e-7
    settings[1]["rate"] *= 1 + 1e-7
    settings[2]["rate"] *= 1 + 1e-7
    changed = json.loads(Page(as_json(), json.dumps(parameters())).batch(json.dumps(settings)))
    assert differences(changed, answer["answer"]) != []


def test_whole_reports_agree(live_page: tuple[Any, str]) -> None:
    """The recommendation, its reasons and its words, for 30 settings."""
    tab, root = live_page
    settings = random_settings(30)
    tab.goto(root + "book/selector.html")
    answers = ask(tab, root, "selector", [["report", one] for one in settings])
    for given, answer in zip(settings, answers, strict=True):
        ours = finite(report(tables(), settings_of(given)))
        assert differences(ours, answer["answer"]) == []


def test_a_slider_moves_the_numbers(live_page: tuple[Any, str]) -> None:
    """By keyboard, as one who uses no mouse: the rate goes up, the goodput with it."""
    tab, root = live_page
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


def test_the_page_shows_what_the_package_computes(live_page: tuple[Any, str]) -> None:
    tab, root = live_page
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


def test_the_advisor_reads_what_is_pasted(live_page: tuple[Any, str]) -> None:
    tab, root = live_page
    text = Path(__file__).with_name("metrics.txt").read_text(encoding="utf-8")
    tab.goto(root + "book/decision-table.html")
    tab.wait_for_selector("[data-ready=true]")
    tab.fill("#live-after", text)
    tab.click(".live-button")
    tab.wait_for_selector("[data-out=first]")
    assert tab.inner_text("[data-out=first]") == "queueing"


def test_the_sliders_follow_pasted_metrics(live_page: tuple[Any, str]) -> None:
    """What the page could read moves its sliders, and what it could not is said."""
    tab, root = live_page
    text = Path(__file__).with_name("metrics.txt").read_text(encoding="utf-8")
    text += 'vllm:generation_tokens_total{model_name="Qwen/Qwen3-8B"} 4500\n'
    tab.goto(root + "book/selector.html")
    tab.wait_for_selector("[data-ready=true]")
    tab.click(".live-fill-box summary")
    tab.fill("#live-after", text)
    tab.fill("#live-seconds", "3")
    tab.click(".live-button")
    tab.wait_for_selector(".live-read li")
    assert tab.inner_text("output[for=live-rate]") == "3 requests/s"
    assert tab.inner_text("output[for=live-output]") == "500 tokens"
    assert "rate=3" in tab.url and "prompt" in tab.inner_text(".live-read")


def test_what_is_read_agrees(live_page: tuple[Any, str]) -> None:
    """Metrics and a run log, whole and cut off, read the same under MicroPython."""
    tab, root = live_page
    asked = [["fill", given] for given in readable()]
    tab.goto(root + "book/selector.html")
    page = Filling(as_json(), json.dumps(parameters()))
    for (_, given), answer in zip(asked, ask(tab, root, "fill", asked), strict=True):
        assert differences(json.loads(page.fill(json.dumps(given))), answer["answer"]) == []


def readable() -> list[dict[str, Any]]:
    """What may be pasted: pages of a simulated server, its run log, and half of each."""
    log = Experiment(model="qwen3-8b").run(synthetic(2.0, 60, 700, 30, seed=1))
    page = expose(log, start=1e9, model="Qwen/Qwen3-8B")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.jsonl")
        runlog_io.write(log, path)
        lines = path.read_text(encoding="utf-8")
    texts = [page, page[: len(page) // 2], lines, lines[: len(lines) // 2], "hello", "{", ""]
    return [{"before": "", "after": one, "seconds": 30, "now": 1e9 + 30} for one in texts]
