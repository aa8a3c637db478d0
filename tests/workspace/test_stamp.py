"""The repository's address stands in one place, and everything derived from it agrees."""

from __future__ import annotations

import os
import re
import shutil

import pytest

import stamp

NEW = stamp.Address("ada-l/serving.lab", "v0.7.0", "https://ada-l.github.io/serving.lab")
MAY_SHOW_ADDRESSES = ("tests/", "tools/", "_ext/", "src/minilab/lab/colab.py")
"""Code about addresses: its examples, and its placeholder, are not the address."""

NOTEBOOK = (
    '{"source": ["%pip install -q \\"minilab @ git+https://github.com/OLD_REPO@OLD_TAG\\"\\n",\n'
    '"REPO, TAG = \\"OLD_REPO\\", \\"OLD_TAG\\"\\n"]}\n'
)
README = (
    "[lab](https://colab.research.google.com/github/OLD_REPO/blob/OLD_TAG/labs/01_a.ipynb)\n"
    "[lab](https://kaggle.com/kernels/welcome?src=https://raw.githubusercontent.com/OLD_REPO/OLD_TAG"
    "/labs/01_a.ipynb)\n"
    "[site](OLD_PAGES/book/index.html) of mini-vLLM OLD_TAG, not of OLD_REPO-fork or x-OLD_REPO\n"
)


@pytest.fixture
def tree(root, tmp_path):
    """A copy of every file that names the address, plus one of each kind that may."""
    for path in stamp.files(root):
        copy = tmp_path / path.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    old = stamp.read_address(root)
    samples = {"labs/99_sample.ipynb": NOTEBOOK, "book/sample.md": README}
    for name, text in samples.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(filled(text, old))
    return tmp_path


def filled(text: str, address: stamp.Address) -> str:
    """A sample with an address in it."""
    text = text.replace("OLD_REPO", address.repo).replace("OLD_TAG", address.tag)
    return text.replace("OLD_PAGES", address.pages)


def everything(tree) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()}


def test_tree_agrees_with_repo_toml(texts, root):
    """Two addresses in one tree send half of the readers to the wrong place."""
    address = stamp.read_address(root)
    assert address.pages == stamp.pages_of(address.repo)
    _, name = address.repo.split("/")
    for path in ("README.md", "CITATION.cff", "pyproject.toml", "_config.yml"):
        assert f"github.com/{address.repo}" in texts[path], path
        assert address.pages in texts[path], path
    host = r"(?:github\.com|/github|raw\.githubusercontent\.com)"
    ours = re.compile(rf"{host}/([\w.-]+/{re.escape(name)})(?:(?:@|/blob/|/)(v[\w.]+))?")
    for path, text in texts.items():
        if path.startswith(MAY_SHOW_ADDRESSES):
            continue
        for repo, tag in ours.findall(text):
            assert repo.removesuffix(".git") == address.repo, path
            assert tag in ("", address.tag), path


def test_address_stands_only_where_the_stamp_reaches(texts, root):
    """A file that names the repository but isn't in the table keeps the old address for ever."""
    address = stamp.read_address(root)
    reached = {path.relative_to(root).as_posix() for path in stamp.files(root)}
    named = {path for path, text in texts.items() if address.repo in text}
    assert not {path for path in named - reached if not path.startswith(MAY_SHOW_ADDRESSES)}


def test_readme_has_both_badges_of_one_lab(texts, root):
    """The address that Kaggle reads has another form than Colab's, and is as easily left old."""
    address = stamp.read_address(root)
    repo, tag = address.repo, address.tag
    readme = texts["README.md"]
    colab = re.findall(rf"colab\.research\.google\.com/github/{repo}/blob/{tag}/(\S+)\)", readme)
    raw = rf"raw\.githubusercontent\.com/{repo}/{tag}/(\S+)\)"
    kaggle = re.findall(rf"kaggle\.com/kernels/welcome\?src=https://{raw}", readme)
    assert colab == kaggle != []
    assert not [lab for lab in colab if not (root / lab).exists()]


def test_every_place_moves(tree):
    """The old address is gone, the new one is in each place, prose that looks like it stays."""
    old = stamp.read_address(tree)
    changed = stamp.stamp(tree, NEW)
    assert stamp.read_address(tree) == NEW
    assert {"README.md", "_config.yml", "CITATION.cff", "pyproject.toml"} <= set(changed)
    assert changed[-1] == "repo.toml"
    assert (tree / "labs/99_sample.ipynb").read_text() == filled(NOTEBOOK, NEW)
    lines = (tree / "book/sample.md").read_text().splitlines()
    assert lines[:2] == filled(README, NEW).splitlines()[:2]
    assert lines[2] == (
        f"[site]({NEW.pages}/book/index.html) of mini-vLLM {old.tag},"
        f" not of {old.repo}-fork or x-{old.repo}"
    )
    for path in stamp.files(tree):
        if path.name != "sample.md":
            assert old.repo not in path.read_text(), path
    assert f"branch: {NEW.tag}" in (tree / "_config.yml").read_text()


def test_there_and_back_is_nothing(tree):
    """A stamp that loses a character somewhere would spoil a release unseen."""
    before, old = everything(tree), stamp.read_address(tree)
    stamp.stamp(tree, NEW)
    assert everything(tree) != before
    stamp.stamp(tree, old)
    assert everything(tree) == before
    assert stamp.stamp(tree, old) == []


def test_a_full_disk_changes_nothing(tree, monkeypatch):
    """Half a stamp is two addresses in one tree."""
    before, real, calls = everything(tree), os.replace, []

    def fail_third(source, target):
        calls.append(target)
        if len(calls) == 3:
            raise OSError(28, "No space left on device", str(target))
        real(source, target)

    monkeypatch.setattr(stamp.os, "replace", fail_third)
    with pytest.raises(OSError, match="No space"):
        stamp.stamp(tree, NEW)
    assert len(calls) == 3
    assert everything(tree) == before


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["https://github.com/a/b", "v0.6.0"], "is not owner/name"),
        (["a/b/c", "v0.6.0"], "is not owner/name"),
        (["a/b", "main"], "is not a version tag"),
        (["a/b", "0.6.0"], "is not a version tag"),
        (["a/b"], "give a repository and a tag"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, reason, tree, monkeypatch, capsys):
    """A branch for a tag is the slip that makes last year's notebook install this year's code."""
    monkeypatch.setattr(stamp, "ROOT", tree)
    before = everything(tree)
    assert stamp.main(arguments) == 2
    message = capsys.readouterr().err
    assert reason in message and message.count("\n") == 1
    assert everything(tree) == before


def test_good_input_is_done_and_told(tree, monkeypatch, capsys):
    """The command itself, with the tag of a release candidate and a page of the owner's own."""
    monkeypatch.setattr(stamp, "ROOT", tree)
    assert stamp.main(["Ada/ada.github.io", "v1.0.0rc1"]) == 0
    assert "README.md" in capsys.readouterr().out
    assert stamp.read_address(tree).pages == "https://ada.github.io"
