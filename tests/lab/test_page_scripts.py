"""Pages with a script of their own: no other page loads it, and it sends nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

BOOK = Path(__file__).parents[2] / "book"

SCRIPTS = {"drill.md": "drill/drill.js", "self-check.md": "check/check.js"}


@pytest.mark.parametrize("page", SCRIPTS)
def test_the_page_loads_its_script_and_no_other_page_does(page: str) -> None:
    script = f"_static/{SCRIPTS[page]}"
    loading = [path for path in BOOK.glob("*.md") if script in path.read_text(encoding="utf-8")]
    assert [path.name for path in loading] == [page]


@pytest.mark.parametrize("page", SCRIPTS)
def test_the_script_sends_nothing(page: str) -> None:
    """What a learner answers is nobody else's business."""
    script = (BOOK / "assets" / SCRIPTS[page]).read_text(encoding="utf-8")
    assert not [word for word in ("fetch", "http", "sendBeacon") if word in script]
