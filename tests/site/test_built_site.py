"""The built site, judged from its files: every defect listed here was seen in some build once."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from built_site import ROOT, SAMPLE, Built

from build_book import BuildError, build
from site_html import Site

ASSETS = ROOT / "book" / "assets"
MATHJAX = ASSETS / "mathjax"


def read(built: Built, page: str) -> str:
    return (built.html / page).read_text(encoding="utf-8")


def test_every_page_of_the_contents_is_there_and_no_other(built: Built) -> None:
    written = {p.relative_to(built.html).as_posix() for p in built.html.rglob("*.html")}
    written = {name for name in written if not name.startswith("_static/")}
    extra = {"index.html", "404.html", "genindex.html", "search.html"}
    assert written - extra == {f"{page}.html" for page in built.pages}


@pytest.mark.parametrize("base", ["/", "/name/"])
def test_no_dead_link_no_foreign_asset_no_silent_picture(built: Built, base: str) -> None:
    assert [str(one) for one in Site(built.html, base).findings()] == []


def test_scripts_name_no_other_host(built: Built) -> None:
    """Thebe, RequireJS and the widget manager would be loaded by a script, unseen in the HTML."""
    for path in built.html.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        for name in (
            "thebe",
            "require.js",
            "requirejs",
            "jsdelivr",
            "unpkg",
            "cdnjs",
            "googleapis",
        ):
            assert name not in text.lower(), f"{path.name} names {name}"


def test_font_awesome_comes_without_its_script(built: Built) -> None:
    assert "fontawesome" in read(built, "book/index.html"), "the icons are gone"
    assert "all.min.js" not in read(built, "book/index.html")


def test_mathjax_is_loaded_where_there_are_formulas_only(built: Built) -> None:
    assert "mathjax/tex-chtml.js" in read(built, "book/sample.html")
    assert "tex-chtml.js" not in read(built, "book/index.html")
    assert "tex-chtml.js" not in read(built, "book/glossary.html")


def test_labs_and_solutions_are_shown_as_stored(built: Built) -> None:
    """Running a lab here would fail at its first hole; a solution's stored run would be lost."""
    text = read(built, "labs/99_sample.html")
    assert "azure-conv-2023 (stand-in, seed 0)" in text
    assert "Traceback" not in text


def test_the_status_page_says_how_each_output_came_about(built: Built) -> None:
    rows = re.findall(r"<tr.*?</tr>", read(built, "book/status.html"), re.DOTALL)
    cells = [re.sub(r"<[^>]+>|\s+", " ", row) for row in rows]
    (computed,) = [row for row in cells if "A page with everything" in row]
    assert "by this site" in computed
    assert "sample (synthetic, seed 0)" in computed
    (stored,) = [row for row in cells if "A stored notebook" in row]
    assert "stored in the notebook" in stored
    assert "minilab 0.6.0, numpy 2.4.6; CPU" in stored
    assert "azure-conv-2023 (stand-in, seed 0)" in stored
    for name in ("Built", "Python", "numpy", "CPU", "Cores", "GPU"):
        assert any(row.split()[0] == name for row in cells), f"the table lacks {name}"


def test_no_row_of_the_status_page_is_left_blank(built: Built) -> None:
    """Each page of the course with outputs names its data, day and versions, as the sample does."""
    rows = re.findall(r"<tr.*?</tr>", read(built, "book/status.html"), re.DOTALL)
    cells = [re.sub(r"<[^>]+>|\s+", " ", row) for row in rows if 'href="' in row]
    stored = [row for row in cells if "Solution of" in row]
    assert len(stored) == len([page for page in built.pages if page.startswith("solutions/")])
    assert [row for row in cells if "none named" in row] == []
    for row in stored:
        assert re.search(r"20\d\d-\d\d-\d\d; Python \d.* numpy \d.* GPU: ", row), row


def test_a_chapter_is_linked_when_its_page_exists_and_planned_when_not(built: Built) -> None:
    course = yaml.safe_load((ROOT / "book" / "course.yml").read_text(encoding="utf-8"))
    text = read(built, "book/index.html")
    cards = re.findall(
        r'<div class="sd-card [^"]*\b(there|planned)\b.*?</div>\s*</div>', text, re.S
    )
    entries = [entry for part in course.values() for entry in part]
    expected = ["there" if entry.get("page") in built.pages else "planned" for entry in entries]
    assert cards == expected
    for entry, card in zip(entries, cards, strict=True):
        target = entry.get("page", "book/none").removeprefix("book/")
        linked = re.search(rf'class="sd-stretched-link[^>]*href="{target}\.html"', text)
        assert bool(linked) == (card == "there"), entry["title"]


def test_the_drawn_house_has_the_rooms_that_the_package_has() -> None:
    svg = (ASSETS / "house.svg").read_text(encoding="utf-8")
    rooms = re.findall(r'<g class="room([^"]*)" data-room="(\w+)">', svg)
    assert len(rooms) == 9
    for classes, room in rooms:
        exists = (ROOT / "src" / "minilab" / room).is_dir()
        assert ("planned" in classes) != exists, f"{room}: drawn wrong in house.svg"


def test_the_root_leads_to_the_start_page_and_lists_every_page(built: Built) -> None:
    assert 'url=book/index.html"' in read(built, "index.html")
    listed = re.findall(r"<loc>(.*?)</loc>", read(built, "sitemap.xml"))
    assert sorted(listed) == sorted(f"{page}.html" for page in built.pages)
    assert (built.html / ".nojekyll").exists(), "a host would leave out _static and _images"


def test_the_404_page_stands_at_the_root_and_in_no_menu(built: Built) -> None:
    assert not (built.html / "book" / "404.html").exists()
    assert 'href="book/index.html"' in read(built, "404.html")
    assert "404.html" not in read(built, "book/index.html")


def test_an_unstamped_copy_publishes_no_address(built: Built) -> None:
    for page in ("labs/99_sample.html", "book/index.html", "sitemap.xml"):
        text = read(built, page)
        assert "colab.research" not in text
        assert "kaggle.com" not in text
        assert "OWNER" not in text
        assert "og:url" not in text


def test_pages_carry_licences_description_and_preview(built: Built) -> None:
    text = read(built, "book/index.html")
    assert "creativecommons.org/licenses/by/4.0" in text
    assert "apache.org/licenses/LICENSE-2.0" in text
    assert text.count('name="description"') == 1
    assert 'property="og:title" content="Frontier Serving Lab"' in text


def test_the_glossary_gives_each_term_in_both_languages(built: Built) -> None:
    names = re.findall(r"<dt id=[^>]*?(lang=\"zh\")?>", read(built, "book/glossary.html"))
    chinese = sum(1 for lang in names if lang)
    assert chinese == len(names) - chinese >= 40


def test_a_chinese_word_finds_its_entry(built: Built) -> None:
    assert "投机解码" in (built.html / "genindex.html").read_text(encoding="utf-8")


def test_the_vendored_mathjax_is_the_one_described() -> None:
    told = (MATHJAX / "VENDORED.md").read_text(encoding="utf-8")
    script = hashlib.sha256((MATHJAX / "tex-chtml.js").read_bytes()).hexdigest()
    assert script in told
    lines = "".join(
        f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.relative_to(MATHJAX).as_posix()}\n"
        for p in sorted(MATHJAX.rglob("*.woff"))
    )
    assert hashlib.sha256(lines.encode()).hexdigest() in told
    assert "Apache License" in (MATHJAX / "LICENSE").read_text(encoding="utf-8")


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Path]:
    """A function that builds a site of few pages, its configuration changed, and gives its HTML."""

    def make(change: Callable[[str], str] = str, index: str = "# Small\n") -> Path:
        shutil.copytree(
            ROOT / "_ext", tmp_path / "_ext", ignore=shutil.ignore_patterns("__pycache__")
        )
        for name in ("book/assets", "book/references.bib", "book/404.md", "book/glossary.md"):
            origin, target = ROOT / name, tmp_path / name
            target.parent.mkdir(exist_ok=True)
            (shutil.copytree if origin.is_dir() else shutil.copy)(origin, target)
        (tmp_path / "book" / "index.md").write_text(index, encoding="utf-8")
        bibliography = "# References\n\n```{bibliography}\n:all:\n```\n"
        (tmp_path / "book" / "references.md").write_text(bibliography, encoding="utf-8")
        (tmp_path / "labs").mkdir()
        shutil.copy(SAMPLE / "sample.ipynb", tmp_path / "labs" / "99_sample.ipynb")
        config = (ROOT / "_config.yml").read_text(encoding="utf-8")
        (tmp_path / "_config.yml").write_text(change(config), encoding="utf-8")
        (tmp_path / "_toc.yml").write_text(
            "format: jb-book\nroot: book/index\nchapters:\n- file: book/glossary\n"
            "- file: book/references\n- file: labs/99_sample\n"
        )
        build(tmp_path, tmp_path)
        return tmp_path / "_build" / "html"

    return make


def test_a_stamped_copy_links_to_its_own_notebook_and_address(small: Callable[..., Path]) -> None:
    html = small(lambda text: text.replace("OWNER", "ada"))
    lab = (html / "labs" / "99_sample.html").read_text(encoding="utf-8")
    path = r"/github/ada/frontier-serving-lab/blob/v[\d.]+/labs/99_sample\.ipynb"
    assert re.search("https://colab.research.google.com" + path, lab)
    raw = r"https://raw\.githubusercontent\.com/ada/frontier-serving-lab/v[\d.]+/labs/99_sample"
    assert re.search(rf'href="https://kaggle\.com/kernels/welcome\?src={raw}\.ipynb"', lab)
    assert re.search(rf'<p class="lab-badges"><a href="https://colab[^"]+{path}"><img ', lab)
    assert "lab-badges" not in (html / "book" / "index.html").read_text(encoding="utf-8")
    base = "https://ada.github.io/frontier-serving-lab/"
    assert f"<loc>{base}labs/99_sample.html</loc>" in (html / "sitemap.xml").read_text()
    assert f'content="{base}labs/99_sample.html"' in lab, "no og:url"
    assert f'content="{base}_static/card.png"' in lab, "no preview picture"
    assert (html / "_static" / "card.png").exists()
    not_found = (html / "404.html").read_text(encoding="utf-8")
    assert 'href="/frontier-serving-lab/book/glossary.html"' in not_found
    assert 'data-content_root="/frontier-serving-lab/"' in not_found
    assert [str(one) for one in Site(html, "/frontier-serving-lab/").findings()] == []


@pytest.mark.parametrize(
    "planted",
    [
        "[nowhere](gone.md)",
        "{term}`no such word`",
        "{doc}`gone`",
        "{cite:t}`nobody`",
        "[](#no-such-heading)",
        "![A line that rises](gone.png)",
        "```{svg-figure} assets/house.svg\nno alt text\n```",
        "```{literalinclude} ../src/gone.py\n```",
    ],
)
@pytest.mark.slow
def test_a_broken_reference_fails_the_build(
    small: Callable[..., Path], planted: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BuildError, match="Jupyter Book failed"):
        small(index=f"# Small\n\n{planted}\n")


def test_a_cell_that_fails_fails_the_build(
    small: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    line = "raise ValueError('a page must not be built on an error')"
    with pytest.raises(BuildError):
        small(index=_with_a_cell(line))
    assert "Executing notebook failed" in capfd.readouterr().err


def test_the_status_page_still_names_what_a_second_build_takes_from_the_cache(
    small: Callable[..., Path], tmp_path: Path
) -> None:
    page = _with_a_cell('print("data: dice (synthetic, seed 7)")') + "\n```{page-status}\n```\n"
    index = small(index=page) / "book" / "index.html"
    first = _row_of(index, "dice")
    build(tmp_path, tmp_path)
    assert _row_of(index, "dice") == first


def _row_of(page: Path, word: str) -> str:
    rows = re.findall(r"<tr.*?</tr>", page.read_text(encoding="utf-8"), re.DOTALL)
    (found,) = [row for row in rows if word in row]
    return re.sub(r"<[^>]+>|\s+", " ", found)


def _with_a_cell(line: str) -> str:
    return (
        "---\njupytext:\n  text_representation: {extension: .md, format_name: myst}\n"
        "kernelspec: {display_name: Python 3, language: python, name: python3}\n---\n"
        f"# A page with a cell\n\n```{{code-cell}} ipython3\n{line}\n```\n"
    )
