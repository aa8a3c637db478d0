"""Small corrections of what the theme puts on every page, listed in one table.

Why: the theme and its parts were made for sites that may call other hosts and have weight to spare.
Each fix is a pattern in the written HTML, and a fix that matches no page at all is reported as a
warning (a strict build fails), so that an upgrade of the theme cannot quietly undo one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

LOG = logging.getLogger(__name__)
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_TABLE_BOX = '<div class="pst-scrollable-table-container"'
PLACEHOLDER = "OWNER"
"""Stands in the addresses of `_config.yml` until the repository has been given its real one."""


@dataclass(frozen=True)
class Fix:
    """One replacement in the HTML of every page.

    why: the defect it prevents. pattern, replacement: as for re.sub.
    """

    why: str
    pattern: re.Pattern[str]
    replacement: str


def _fix(why: str, pattern: str, replacement: str = "") -> Fix:
    return Fix(why, re.compile(pattern, re.DOTALL), replacement)


FIXES = (
    _fix(
        "Font Awesome's script is 540 KB (gzip) and draws the icons that its style sheet draws too",
        r'\s*<script src="[^"]*fontawesome[^"]*all\.min\.js[^"]*"></script>',
    ),
    _fix(
        "fonts of icons are fetched early: 140 KB that no page uses, and an error on file://",
        r'\s*<link rel="preload"[^>]*fa-(?:brands-400|regular-400|solid-900)\.woff2[^>]*>',
    ),
    _fix(
        "without JavaScript the theme has no colours for the mode it calls auto",
        r'(<html[^>]*data-theme=")auto"',
        r'\1light"',
    ),
    _fix(
        "a list of works announced as a list without entries",
        r'<div role="list" class="citation-list">',
        '<div class="citation-list">',
    ),
)


def is_stamped(address: str) -> bool:
    """True when an address is a real one: given, and without the placeholder."""
    return bool(address) and PLACEHOLDER not in address


def mark_chinese_terms(app: Sphinx, doctree: nodes.document) -> None:
    """Tell a screen reader which words of the glossary to read in Chinese."""
    for term in doctree.findall(nodes.term):
        if _CHINESE.search(term.astext()):
            term["classes"].append("language-zh")  # docutils writes it as lang="zh"


def hide_unstamped_addresses(app: Sphinx, config: Config) -> None:
    """Publish no launch button and no full address while they'd lead to nobody's repository."""
    theme: dict[str, Any] = config.html_theme_options
    if not is_stamped(theme.get("repository_url", "")):
        theme["launch_buttons"] = {}
    if is_stamped(config.html_baseurl):
        config.ogp_site_url = config.html_baseurl
    else:
        config.html_baseurl = ""


def drop_relative_previews(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """A link preview needs full addresses; without a base address, leave those two tags out."""
    if not app.config.html_baseurl:
        context["metatags"] = re.sub(
            r'<meta property="og:(?:url|image)" [^>]*>\n?', "", context.get("metatags", "")
        )


def drop_unused_mathjax(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """Sphinx loads MathJax (260 KB) also where only sub-pages hold formulas: the start page."""
    if app.env.get_domain("math").data["has_equations"].get(pagename):
        return
    context["script_files"] = [
        script
        for script in context["script_files"]
        if "mathjax" not in str(getattr(script, "filename", script)).lower()
        and not getattr(script, "attributes", {}).get("body", "").startswith("window.MathJax")
    ]


def let_keys_reach_tables(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object
) -> None:
    """A table that is wider than a phone scrolls in a box, and without this no key gets there."""
    if "body" in context:
        context["body"] = context["body"].replace(_TABLE_BOX, _TABLE_BOX + ' tabindex="0"')


def apply_fixes(app: Sphinx, exception: Exception | None) -> None:
    """Rewrite each page once all are written; warn of a fix that found nothing to do."""
    if exception is not None or app.builder.name != "html":
        return
    unused = set(FIXES)
    for path in sorted(Path(app.outdir).rglob("*.html")):
        if "_static" in path.parts:
            continue
        old = text = path.read_text(encoding="utf-8")
        for fix in FIXES:
            text, count = fix.pattern.subn(fix.replacement, text)
            if count:
                unused.discard(fix)
        if text != old:
            path.write_text(text, encoding="utf-8")
    if len(unused) == len(FIXES):  # a second build over the same, already corrected pages
        return
    for fix in sorted(unused, key=lambda f: f.why):
        LOG.warning("site_fix: %r no longer matches any page; look at the theme", fix.why)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("config-inited", hide_unstamped_addresses, priority=900)
    app.connect("doctree-read", mark_chinese_terms)
    app.connect("html-page-context", drop_relative_previews, priority=900)
    app.connect("html-page-context", drop_unused_mathjax, priority=900)
    app.connect("html-page-context", let_keys_reach_tables, priority=900)
    app.connect("build-finished", apply_fixes, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
