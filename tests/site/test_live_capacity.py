"""The capacity calculator in a real browser: the package's own Python, in the page."""

from __future__ import annotations

import json
import random
from typing import Any

from asking import PREFIX, ask, differences
from built_site import Built

from minilab.judge.calculator.page import Page
from minilab.judge.calculator.tables import as_json, parameters, tables
from site_server import serve


def calculator() -> Page:
    return Page(as_json(), json.dumps(parameters()))


def random_settings(count: int) -> list[dict[str, Any]]:
    """Settings over the whole parameter space."""
    rng = random.Random(7)
    found = []
    for _ in range(count):
        values: dict[str, Any] = {}
        for row in parameters():
            words = row.get("choices") or sorted(tables().get(row.get("kind"), ()))
            low, high = row.get("min", 0), row.get("max", 0)
            if words:
                values[row["name"]] = rng.choice(words)
            elif row["scale"] == "log":
                values[row["name"]] = round(low * (high / low) ** rng.random())
            else:
                values[row["name"]] = round(low + (high - low) * rng.random(), 3)
        found.append(values)
    return found


def test_micropython_and_cpython_agree(live_page: tuple[Any, str]) -> None:
    """2,000 settings to 1e-12, words and launch lines to the letter; a planted change is seen."""
    tab, root = live_page
    settings = random_settings(2000)
    tab.goto(root + "book/capacity.html")
    (answer,) = ask(tab, root, "capacity", [["batch", settings]])
    ours = json.loads(calculator().batch(json.dumps(settings)))
    assert sum(row["fits"] for row in ours) > 800
    assert differences(ours, answer["answer"])[:5] == []
    settings[0]["utilization"] *= 1 + 1e-7
    changed = json.loads(calculator().batch(json.dumps(settings)))
    assert differences(changed, answer["answer"]) != []


def test_a_slider_moves_the_batch(live_page: tuple[Any, str]) -> None:
    """By keyboard: longer requests, fewer of them; the address keeps what was set."""
    tab, root = live_page
    tab.goto(root + "book/capacity.html")
    tab.wait_for_selector("[data-ready=true]")
    said = "() => document.querySelector('[data-out=batch]').innerText"
    before = tab.evaluate(said)
    assert before == str(json.loads(calculator().report("{}"))["batch"])
    tab.focus("#live-length")
    tab.keyboard.press("End")
    tab.wait_for_function(f"old => ({said})() !== old", arg=before)
    told = json.loads(calculator().report('{"length": 1048576}'))
    assert tab.evaluate(said) == str(told["batch"]) and "length=1048576" in tab.url


def test_without_javascript_the_default_is_there(browser: Any, built: Built) -> None:
    with serve(built.html, PREFIX) as address:
        context = browser.new_context(java_script_enabled=False)
        tab = context.new_page()
        tab.goto(address.rstrip("/") + "/book/capacity.html")
        shown = tab.inner_text(".live-default")
        told = json.loads(calculator().report("{}"))
        assert f"{told['tokens']:,}" in shown and told["flags"][0][2] in shown
        context.close()
