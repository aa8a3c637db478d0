"""The local Sphinx extensions, part by part and without a build."""

from __future__ import annotations

import logging
import re
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from build_facts import hardware, notebook_facts, versions
from course_map import card
from lab_badges import badges
from math_fallback import mathml, with_fallback
from site_fix import FIXES, apply_fixes, is_stamped
from site_root import rebase, write_not_found
from svg_figure import inline_svg

ASSETS = Path(__file__).parents[2] / "book" / "assets"


@pytest.mark.parametrize(
    ("link", "at_root", "with_base"),
    [
        ("../_static/a.css?v=1", "_static/a.css?v=1", "/x/_static/a.css?v=1"),
        ("index.html", "book/index.html", "/x/book/index.html"),
        ("index.html#top", "book/index.html#top", "/x/book/index.html#top"),
        ("../", "./", "/x/"),
        ("../genindex.html", "genindex.html", "/x/genindex.html"),
        ("#main-content", "#main-content", "#main-content"),
        ("https://example.org/a", "https://example.org/a", "https://example.org/a"),
        ("/already/full", "/already/full", "/already/full"),
    ],
)
def test_a_link_keeps_its_target_when_its_page_moves(
    link: str, at_root: str, with_base: str
) -> None:
    assert rebase(link, "book", "") == at_root
    assert rebase(link, "book", "/x/") == with_base


def test_the_moved_page_leaves_text_alone(tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    page = '<html data-content_root="../"><a href="a.html">href="a.html"</a>'
    (tmp_path / "book" / "404.html").write_text(page)
    write_not_found(tmp_path, "/x/")
    assert (tmp_path / "404.html").read_text() == (
        '<html data-content_root="/x/"><a href="/x/book/a.html">href="a.html"</a>'
    )


def notebook(*texts: str, **metadata: Any) -> dict[str, Any]:
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "outputs": [{"output_type": "stream", "text": [text]}]}
        for text in texts
    ]
    cells += [{"cell_type": "code", "outputs": []}, {"cell_type": "markdown", "source": "data: no"}]
    return {"cells": cells, "metadata": metadata}


def test_a_notebook_s_own_words_on_data_and_versions_are_found() -> None:
    facts = notebook_facts(
        notebook(
            "versions: Python 3.11.7 on Linux, numpy 2.4.6\nGPU: none\nruns where: CPU\n"
            "data: no data folder: the stand-in\n",
            "metadata: not this\ndata: azure-conv-2023, stand-in\n",
            "data: azure-conv-2023, stand-in\n",
        )
    )
    assert facts.cells == 3
    assert facts.data == "azure-conv-2023, stand-in", "the general line says less"
    assert facts.made == "Python 3.11.7 on Linux, numpy 2.4.6; GPU: none"


def test_a_notebook_that_says_nothing_gets_no_invented_answer() -> None:
    assert notebook_facts(notebook("42\n")).data == ""
    assert notebook_facts(notebook("data: no data folder: the stand-in\n")).data.endswith(
        "stand-in"
    )


def test_metadata_goes_before_printed_lines() -> None:
    """The day stands in the metadata alone; it must not hide the versions, which are printed."""
    said = {"data": "new", "made": "2026-11-29"}
    facts = notebook_facts(notebook("data: old\nversions: numpy 2\n", minilab=said))
    assert (facts.data, facts.made) == ("new", "2026-11-29; numpy 2")


def test_a_package_that_is_not_there_is_listed_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("build_facts.PACKAGES", ("numpy", "no-such-package"))
    rows = dict(versions())
    assert rows["numpy"][0].isdigit()
    assert rows["no-such-package"] == "not installed"
    assert dict(hardware())["Cores"].isdigit()


def test_alternative_text_reaches_the_drawing_escaped() -> None:
    svg = inline_svg('<?xml version="1.0"?>\n<svg viewBox="0 0 1 1"><path/></svg>\n', 'a < "b"')
    assert svg.startswith('<svg role="img" aria-label="a &lt; &quot;b&quot;" viewBox')
    assert "<?xml" not in svg
    with pytest.raises(ValueError, match="no <svg>"):
        inline_svg("<html></html>", "text")


def test_a_card_is_linked_only_to_a_page_that_exists() -> None:
    entry = {"number": 0, "title": "T", "question": "Q?", "page": "book/a", "lab": "labs/a"}
    assert ":link: /book/a" in card(entry, {"book/a"})
    assert "chapter" in card(entry, {"book/a"})
    assert "chapter and lab" in card(entry, {"book/a", "labs/a"})
    assert "planned" in card(entry, {"labs/a"})
    assert not any(line.startswith(":link") for line in card(entry, set()))
    assert card(entry, set())[0].endswith("0 · T"), "chapter 0 lost its number"


@pytest.mark.parametrize(
    ("address", "stamped"),
    [("", False), ("https://OWNER.github.io/x/", False), ("https://ada.github.io/x/", True)],
)
def test_only_a_real_address_is_published(address: str, stamped: bool) -> None:
    assert is_stamped(address) == stamped


def test_badges_open_that_very_lab_at_the_tag_and_nobody_s_never() -> None:
    html = badges("labs/01_a", "https://github.com/ada/course", "v1.2.3")
    assert re.findall(r'href="([^"]+)"', html) == [
        "https://colab.research.google.com/github/ada/course/blob/v1.2.3/labs/01_a.ipynb",
        "https://kaggle.com/kernels/welcome?src="
        "https://raw.githubusercontent.com/ada/course/v1.2.3/labs/01_a.ipynb",
    ]
    pictures = re.findall(r'src="\.\./_static/([^"]+)"', html)
    assert len(pictures) == 2 == html.count('alt="Open this lab in ')
    assert all((ASSETS / name).exists() for name in pictures), "a picture that is not ours"
    assert badges("solutions/01_a", "https://github.com/ada/course", "v1.2.3") == ""
    assert badges("labs/01_a", "https://github.com/OWNER/course", "v1.2.3") == ""
    assert badges("labs/01_a", "", "") == ""


@pytest.mark.parametrize(
    ("tex", "said"),
    [
        (r"n f + s\,\frac{n(n-1)}{2}", "nf+sn(n-1)2"),
        ("a < b", "a<b"),
        (r"\begin{aligned}a &= b\\ c &= d\end{aligned}", "a=bc=d"),
    ],
)
def test_a_formula_becomes_mathml(tex: str, said: str) -> None:
    found = unescape(re.sub("<[^>]*>", "", mathml(tex, block=True) or ""))
    assert "".join(found.split()).replace("\u2212", "-") == said


@pytest.mark.parametrize("tex", [r"\unheardof{x}", r"\frac{a}{", "a & b"])
def test_a_formula_that_the_converter_gets_wrong_stays_tex(tex: str) -> None:
    assert mathml(tex, block=False) is None


def test_the_fallback_leaves_mathjax_its_tex_and_the_anchor_its_place() -> None:
    math = 'class="math notranslate nohighlight"'
    block = f'<div {math} id="e">\n<span class="eqno">(1)</span>\\[x\\]</div>'
    changed = with_fallback(block)
    head = block.removesuffix(r"\[x\]</div>")
    assert changed.startswith(head + r'<span class="tex">\[x\]</span>')
    assert changed.endswith("</math></noscript></div>")
    kept = rf"<pre>\(x\)</pre><span {math}>\(\nope{{x}}\)</span>"
    assert with_fallback(kept) == kept


def fake_app(folder: Path) -> Any:
    return SimpleNamespace(builder=SimpleNamespace(name="html"), outdir=str(folder))


PAGE = (
    '<html data-theme="auto"><script src="../_static/fontawesome/js/all.min.js?d=1"></script>'
    '<link rel="preload" href="x/fa-brands-400.woff2" />'
    '<link rel="preload" href="x/fa-solid-900.woff2" /><div role="list" class="citation-list">'
)


def test_every_fix_works_and_a_theme_that_outgrew_one_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = tmp_path / "a.html"
    page.write_text(PAGE)
    with caplog.at_level(logging.WARNING, logger="sphinx"):
        apply_fixes(fake_app(tmp_path), None)
        assert page.read_text() == '<html data-theme="light"><div class="citation-list">'
        assert caplog.records == []
        page.write_text(PAGE.replace("all.min.js", "icons.js"))
        apply_fixes(fake_app(tmp_path), None)
    assert [record.getMessage().startswith("site_fix: ") for record in caplog.records] == [True]
    assert len(FIXES) == 4, "a new fix needs its line in PAGE"
