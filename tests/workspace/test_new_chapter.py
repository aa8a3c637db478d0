"""`make new CHAPTER=name` writes a page that has every part and builds."""

from __future__ import annotations

import re
import shutil
import sys

import pytest
import yaml
from site_outputs import take_outputs

import new_chapter
from chapter_parts import PARTS

TOC = """\
# reading order
format: jb-book
root: book/index
parts:
  - caption: Chapters # in the order of the course
    chapters:
      - file: book/goodput
        sections:
          - file: labs/01_goodput

  - caption: Reference
    chapters:
      - file: book/glossary
"""
CONF = """
project = "one page"
extensions = ["myst_nb", "sphinx_design"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
root_doc = "book/kv-tiers"
exclude_patterns = ["src"]
"""


@pytest.fixture
def course(tmp_path):
    """A course with one chapter."""
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "goodput.md").write_text("# Goodput\n")
    (tmp_path / "_toc.yml").write_text(TOC)
    return tmp_path


def test_page_has_every_part_in_order(course):
    """A chapter without a regime map or a ledger is one that claims and doesn't show."""
    path = new_chapter.create(course, "kv-tiers")
    text = (course / path).read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == [part.name for part in PARTS]
    assert re.findall(r"^# (.+)$", text, re.MULTILINE) == ["Kv tiers"]
    head = yaml.safe_load(text.split("---")[1])
    assert head["myst"]["html_meta"]["description"].startswith("Kv tiers")
    assert "$" not in text


def test_a_template_that_lacks_a_part_is_refused(course, monkeypatch):
    """Template and list are two files; a part added to one alone would be missed by every page."""
    short = new_chapter.TEMPLATE.read_text().replace("## Evidence ledger", "## Ledger")
    (course / "short.template").write_text(short)
    monkeypatch.setattr(new_chapter, "TEMPLATE", course / "short.template")
    with pytest.raises(ValueError, match="'Evidence ledger' is missing"):
        new_chapter.create(course, "kv-tiers")
    assert not (course / "book" / "kv-tiers.md").exists()


def test_page_stands_last_among_the_chapters(course):
    """Its line comes after the sections of the last chapter, before the reference part."""
    new_chapter.create(course, "kv-tiers")
    expected = TOC.replace(
        "          - file: labs/01_goodput\n",
        "          - file: labs/01_goodput\n      - file: book/kv-tiers\n",
    )
    assert (course / "_toc.yml").read_text() == expected


def test_first_chapter_gets_a_part_of_its_own():
    """With nothing but a reference part, a chapter must not end up among the glossary."""
    parts = yaml.safe_load(TOC)["parts"]
    only_reference = TOC[: TOC.index("  - caption")] + TOC[TOC.index("  - caption: Reference") :]
    changed = yaml.safe_load(new_chapter.with_page(only_reference, "book/x"))
    assert changed["parts"] == [{"caption": "Chapters", "chapters": [{"file": "book/x"}]}, parts[1]]


def test_the_course_itself_can_grow(root):
    """The form of our own _toc.yml is one that the tool can extend."""
    toc = (root / "_toc.yml").read_text()
    changed = new_chapter.with_page(toc, "book/a-page-to-come")
    assert new_chapter.pages_in(changed) - new_chapter.pages_in(toc) == {"book/a-page-to-come"}
    captions = [part["caption"] for part in yaml.safe_load(changed)["parts"]]
    home = [
        part["caption"]
        for part in yaml.safe_load(changed)["parts"]
        if {"file": "book/a-page-to-come"} in part["chapters"]
    ]
    assert len(home) == 1 and home[0] in captions
    assert home[0] not in new_chapter.NOT_CHAPTERS


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("goodput", "is already there"),
        ("KV tiers", "is not a name"),
        ("kv--tiers", "is not a name"),
        ("../outside", "is not a name"),
        ("7-tiers", "is not a name"),
        ("k" * 41, "at most 40"),
        ("", "is not a name"),
    ],
)
def test_bad_name_is_refused_in_one_line(name, reason, course, monkeypatch, capsys):
    """Nothing is written, least of all over a chapter that exists or outside of book/."""
    monkeypatch.setattr(new_chapter, "ROOT", course)
    before = sorted(course.rglob("*"))
    assert new_chapter.main([name]) == 2
    message = capsys.readouterr().err
    assert reason in message and message.count("\n") == 1
    assert sorted(course.rglob("*")) == before
    assert (course / "book" / "goodput.md").read_text() == "# Goodput\n"
    assert (course / "_toc.yml").read_text() == TOC


def test_name_in_the_contents_is_refused(course):
    """A page that is planned in _toc.yml but not written would be listed twice."""
    with pytest.raises(ValueError, match="already stands in _toc"):
        new_chapter.create(course, "glossary")
    assert not (course / "book" / "glossary.md").exists()


def test_unwritable_contents_leave_no_page(course, monkeypatch):
    """A page that is in no table of contents is built by nobody and missed by nobody."""

    def fail(source, target):
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(new_chapter.os, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        new_chapter.create(course, "kv-tiers")
    assert not (course / "book" / "kv-tiers.md").exists()


def test_page_builds_without_a_warning(course, root, run):
    """The scaffold is taken as the example; a warning in it would be copied into every chapter."""
    new_chapter.create(course, "kv-tiers")
    (course / "book" / "goodput.md").unlink()
    (course / "src").symlink_to(root / "src")
    (course / "conf.py").write_text(CONF)
    flags = ("-W", "--keep-going", "-n", "-q", "-b", "html")
    done = run(sys.executable, "-m", "sphinx", *flags, ".", "_build", cwd=course)
    assert done.returncode == 0, done.stderr
    page = (course / "_build" / "book" / "kv-tiers.html").read_text()
    assert "1200 tokens when it ends" in re.sub(r"<[^>]+>", "", page)
    assert "prompt_tokens" in page


@pytest.mark.slow
def test_site_builds_with_a_new_chapter(sources, root, run, tmp_path, pytestconfig):
    """The whole site, strict as always, takes the new page and shows it in its menu.

    Outputs that an earlier build of these sources left are used.
    """
    for path in sources:
        copy = tmp_path / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    take_outputs(pytestconfig, tmp_path / "_build")
    tools = tmp_path / "tools"
    made = run(sys.executable, tools / "new_chapter.py", "a-page-to-come", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    built = run(sys.executable, tools / "build_book.py", cwd=tmp_path)
    assert built.returncode == 0, built.stdout[-3000:] + built.stderr[-3000:]
    pages = tmp_path / "_build" / "html" / "book"
    assert (pages / "a-page-to-come.html").exists()
    assert "a-page-to-come.html" in (pages / "index.html").read_text()
