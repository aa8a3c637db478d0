"""Slides of a built page: every figure with its words, in one file that fetches nothing."""

from __future__ import annotations

import base64
import re

import slides

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9"
    "awAAAABJRU5ErkJggg=="
)
ALT = "Goodput rises to 12 requests/s & falls beyond the knee."
ALT_HTML = ALT.replace("&", "&amp;")
PAGE = f"""<article><h1>Goodput<a class="headerlink" href="#x">#</a></h1>
<img src="badge.svg" alt="Open in Colab"><h2>The knee</h2><p>Text.</p>
<img src="../_images/a.png?v=1" alt="{ALT_HTML}">
<h2>The budget</h2>
<img src="data:image/png;base64,AAAA" alt="Attainment by token budget, flat to 2,048.">
</article>"""


def built(folder):
    (folder / "book").mkdir()
    (folder / "_images").mkdir()
    (folder / "_images" / "a.png").write_bytes(PNG)
    (folder / "book" / "goodput.html").write_text(PAGE)


def test_each_figure_becomes_a_slide_of_one_file(tmp_path, capsys):
    built(tmp_path)
    out = tmp_path / "s.html"
    assert slides.main(["goodput", "--html", str(tmp_path), "--out", str(out)]) == 0
    assert capsys.readouterr().out.endswith("2 slides\n")
    text = out.read_text()
    assert re.findall(r"<h2>(.*?)</h2>", text) == ["The knee", "The budget"]
    assert "<h1>Goodput</h1>" in text
    sources = re.findall(r'(?:src|href)="(.*?)"', text)
    assert len(sources) == 3 and all(one.startswith("data:") for one in sources)
    assert base64.b64encode(PNG).decode() in text
    assert f'alt="{ALT_HTML}"' in text and "<script" not in text


def test_a_page_without_figures_is_refused(tmp_path, capsys):
    built(tmp_path)
    (tmp_path / "book" / "bare.html").write_text("<article><h1>Bare</h1></article>")
    for page in ("bare", "none"):
        assert slides.main([page, "--html", str(tmp_path), "--out", str(tmp_path / "x")]) == 2
        assert capsys.readouterr().err.startswith(f"slides: {page}.html: ")
    assert not (tmp_path / "x").exists()
