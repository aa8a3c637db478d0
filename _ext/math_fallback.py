r"""Formulas for readers without JavaScript: MathML beside the TeX that MathJax would draw.

Why not MathML for everybody: MathJax's output looks the same in each browser and is what a screen
reader gets told best. A formula that the converter does not know stays TeX, as it was.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any
from xml.etree import ElementTree

from latex2mathml.converter import convert
from sphinx.application import Sphinx

_FORMULA = re.compile(
    r'(?P<open><(?P<tag>span|div) class="math notranslate nohighlight"[^>]*>\s*'
    r'(?:<span class="eqno">.*?</span>\s*)?)'
    r"(?P<tex>\\\((?P<inline>.*?)\\\)|\\\[(?P<block>.*?)\\\])(?P<close>\s*</(?P=tag)>)",
    re.DOTALL,
)
HIDE_TEX = "<noscript><style>.math .tex { display: none }</style></noscript>\n"


def mathml(tex: str, block: bool) -> str | None:
    """The formula as MathML, or None where the converter has no answer or no sound one."""
    tex = re.sub(
        r"\{(?:aligned|align)\}", "{align*}", tex
    )  # the converter knows this one, unnumbered
    try:
        found = str(convert(tex, display="block" if block else "inline"))
        ElementTree.fromstring(found)
    except Exception:  # the converter raises a kind for each sort of TeX that it doesn't know
        return None
    return None if "\\" in found or "&#x00026;" in found else found


def with_fallback(body: str) -> str:
    """A page's HTML with the fallback beside each formula."""

    def add(match: re.Match[str]) -> str:
        block = match["block"] is not None
        found = mathml(unescape(match["block"] if block else match["inline"]).strip(), block)
        if found is None:
            return match[0]
        tex = f'<span class="tex">{match["tex"]}</span>'
        return f"{match['open']}{tex}<noscript>{found}</noscript>{match['close']}"

    return _FORMULA.sub(add, body)


def add_fallbacks(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """Rewrite the formulas of a page, and hide their TeX where no script will draw it."""
    body = context.get("body", "")
    changed = with_fallback(body)
    if changed != body:
        context["body"] = changed
        context["metatags"] = context.get("metatags", "") + HIDE_TEX


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("html-page-context", add_fallbacks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
