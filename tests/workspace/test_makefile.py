"""The targets of the Makefile do what `make help` says, and refuse in one line."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

TARGETS = (
    *("book", "serve", "test", "test-slow", "ci-deps", "labs", "start", "check"),
    *("new", "bench", "aot", "shots", "stamp", "lint", "clean"),
)
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS", "MINILAB"))}
INPUTS = ("Makefile", "requirements.txt", "pyproject.toml")

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


@pytest.fixture
def copy(root, tmp_path):
    """A folder with what the Makefile reads, two labs, and no environment."""
    here = tmp_path / "check out"
    for name in (*INPUTS, "tools/make_venv.py", "src/minilab/__init__.py"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, here / name)
    (here / "labs").mkdir()
    (here / "labs" / "01_goodput.ipynb").write_text("the lab")
    (here / "labs" / "02_split.ipynb").write_text("the other lab")
    (here / "show.mk").write_text("show: ; @printenv MINILAB_DATA\n")
    return here


@pytest.fixture
def make(run, copy):
    """Run make in the copy, without the variables of a make that may have started the tests."""
    return lambda *words, **more: run("make", *words, cwd=copy, env={**CLEAN, **more})


def test_help_lists_every_target(make):
    """A target that `make help` doesn't show is one that nobody finds."""
    listed = re.findall(r"^  make ([\w-]+) +\S.*$", make("help").stdout, re.MULTILINE)
    assert sorted(listed) == sorted((*TARGETS, "help"))


def test_help_is_the_default(make):
    """Bare `make` must not start to install or to build."""
    assert make().stdout == make("help").stdout


def test_start_copies_and_never_overwrites(make, copy):
    """An afternoon's work lost to a second `make start` is the worst this Makefile could do."""
    mine = copy / "work" / "01_goodput.ipynb"
    assert make("start", "LAB=01").returncode == 0
    assert mine.read_text() == "the lab"
    assert [path.name for path in mine.parent.iterdir()] == ["01_goodput.ipynb"]
    mine.write_text("my answers")
    again = make("start", "LAB=01")
    assert again.returncode == 0
    assert "stays as it is" in again.stdout
    assert mine.read_text() == "my answers"


def test_start_names_the_labs_there_are(make, copy):
    """LAB=1 is the likely slip."""
    refused = make("start", "LAB=1")
    assert refused.returncode != 0
    assert "no lab 1; there are: 01 02" in refused.stderr
    assert not (copy / "work").exists()


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["start"], "make start LAB=01"),
        (["check"], "make check LAB=01"),
        (["new"], "make new CHAPTER=spec-decode"),
        (["stamp"], "make stamp REPO=owner/name"),
        (["stamp", "REPO=a/b"], "TAG is missing: make stamp REPO=owner/name TAG"),
    ],
)
def test_missing_variable_is_told(make, copy, words, advice):
    """Refused before anything is installed: no environment exists in the copy."""
    refused = make(*words)
    assert refused.returncode != 0
    assert advice in refused.stderr
    assert not (copy / ".venv").exists()


def installs(dry_run) -> bool:
    """Whether a dry run would make or refresh the environment."""
    return "tools/make_venv.py" in dry_run.stdout


@pytest.mark.parametrize("changed", [*INPUTS[1:], "src/minilab/__init__.py"])
def test_changed_lock_reinstalls(make, copy, changed):
    """Judged by content: git sets the time of a file to that of the checkout, not of the change."""
    first = make("-n", "book")
    assert installs(first)
    stamp = re.search(r"\.venv/\.lock-\d+$", first.stdout, re.MULTILINE)
    assert stamp is not None
    (copy / ".venv").mkdir()
    (copy / stamp[0]).touch()
    (copy / changed).touch()
    assert not installs(make("-n", "book"))
    with (copy / changed).open("a") as file:
        file.write("# changed\n")
    assert installs(make("-n", "book"))


def test_data_folder_beside_the_checkout_is_found(make, copy):
    """Tests run in other folders, so the path handed to them has to be a full one."""
    show = ("-f", "Makefile", "-f", "show.mk", "show")
    assert make(*show).stdout.strip() == ""
    beside = copy.parent / "shared" / "data"
    beside.mkdir(parents=True)
    assert Path(make(*show).stdout.strip()) == beside
    assert make("MINILAB_DATA=/elsewhere", *show).stdout.strip() == "/elsewhere"


def test_data_folder_of_the_environment_wins(make):
    """A reader who set MINILAB_DATA means it."""
    show = ("-f", "Makefile", "-f", "show.mk", "show")
    assert make(*show, MINILAB_DATA="/mine").stdout.strip() == "/mine"


def test_ci_runs_what_a_reader_can(root):
    """CI has no private step: what it checks, a reader can check."""
    script = (root / ".ci" / "run").read_text()
    assert "set -euo pipefail" in script
    assert re.findall(r"^make (.+)$", script, re.MULTILINE) == ["ci-deps", "test", "test-slow"]
    assert (root / ".ci" / "run").stat().st_mode & 0o111


def test_ci_deps_needs_no_root(make, tmp_path):
    """On a machine of one's own, without root, it says what is missing and goes on."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("make", "cat", "cksum"):
        (tools / name).symlink_to(shutil.which(name))
    (tools / "id").write_text("#!/bin/sh\necho 1000\n")
    (tools / "id").chmod(0o755)
    done = make("ci-deps", PATH=str(tools))
    assert done.returncode == 0, done.stderr
    assert "needs chromium" in done.stdout
