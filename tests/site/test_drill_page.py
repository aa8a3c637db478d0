"""The drill in a real browser: a form in front of each answer, worked with the keyboard alone."""

from __future__ import annotations

from typing import Any

from built_site import Built

from site_browser import Visit
from site_server import serve

PREFIX = "/name/"


def test_a_choice_is_answered_and_unfolds_the_case(browser: Any, built: Built) -> None:
    with serve(built.html, PREFIX) as address:
        visit = Visit(browser, address)
        page = visit.go("book/drill.html")
        case = page.locator("#drill-template")
        answer = case.locator(".drill-answer")
        assert not answer.is_visible()
        case.locator("input[value=config_limit]").focus()
        page.keyboard.press("Space")
        case.locator("input[value=replica]").focus()
        page.keyboard.press("Space")
        case.get_by_role("button", name="Do it").focus()
        page.keyboard.press("Enter")
        said = case.locator(".drill-said").inner_text()
        assert "Right." in said and "of the best" in said and "1 of 1 suspects right" in said
        assert answer.is_visible()
        assert [str(one) for one in visit.findings] == []
        visit.close()


def test_without_a_choice_nothing_is_told(browser: Any, built: Built) -> None:
    with serve(built.html, PREFIX) as address:
        visit = Visit(browser, address)
        page = visit.go("book/drill.html")
        case = page.locator("#drill-template")
        case.get_by_role("button", name="Do it").click()
        assert case.locator(".drill-said").inner_text() == ""
        visit.close()


def test_without_javascript_the_answers_unfold(browser: Any, built: Built) -> None:
    with serve(built.html, PREFIX) as address:
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        page.goto(address.rstrip("/") + "/book/drill.html")
        assert page.locator(".drill-form").count() == 0
        answer = page.locator("#drill-template .drill-answer")
        assert not answer.locator("table").is_visible()
        answer.locator("summary").click()
        assert answer.locator("table").is_visible()
        context.close()
