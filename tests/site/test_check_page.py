"""The self-check in a real browser: a number is compared, a tick outlives the visit."""

from __future__ import annotations

from typing import Any

from built_site import Built

from site_browser import Visit
from site_server import serve

PREFIX = "/name/"
FLOOR = "li.check:has-text('a decode step must take at least')"


def test_a_right_number_ticks_and_the_tick_is_kept(browser: Any, built: Built) -> None:
    with serve(built.html, PREFIX) as address:
        visit = Visit(browser, address)
        page = visit.go("book/self-check.html")
        item = page.locator(FLOOR)
        item.locator("input[type=text]").focus()
        page.keyboard.type("9.6")
        page.keyboard.press("Enter")
        assert "too large, by a factor of 2.0" in item.get_by_role("status").inner_text()
        assert not item.locator("input[type=checkbox]").is_checked()
        item.locator("input[type=text]").fill("4.8")
        page.keyboard.press("Enter")
        assert "Right" in item.get_by_role("status").inner_text()
        page = visit.go("book/self-check.html")
        assert page.locator(FLOOR).locator("input[type=checkbox]").is_checked()
        assert "1 of 29 ticked" in page.locator("[data-check-count]").inner_text()
        page.get_by_role("button", name="Clear all ticks").click()
        page = visit.go("book/self-check.html")
        assert not page.locator(FLOOR).locator("input[type=checkbox]").is_checked()
        assert [str(one) for one in visit.findings] == []
        visit.close()


def test_words_are_not_a_number(browser: Any, built: Built) -> None:
    with serve(built.html, PREFIX) as address:
        visit = Visit(browser, address)
        item = visit.go("book/self-check.html").locator(FLOOR)
        item.locator("input[type=text]").fill("five")
        item.get_by_role("button", name="Compare").click()
        assert "Type a number" in item.get_by_role("status").inner_text()
        visit.close()


def test_without_javascript_boxes_tick_and_answers_unfold(browser: Any, built: Built) -> None:
    with serve(built.html, PREFIX) as address:
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        page.goto(address.rstrip("/") + "/book/self-check.html")
        item = page.locator(FLOOR)
        item.locator("input[type=checkbox]").check()
        item.locator("summary").click()
        assert "4.79 ms" in item.locator("details").inner_text()
        context.close()
