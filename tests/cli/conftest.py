"""The command line called in this process, and small traces whose results can be told by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from minilab.cli.main import main
from minilab.sim import workload_spec

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"


class Called(NamedTuple):
    """What a call of the command line did."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def _fresh():
    """A trace is read once per process, also where a test has since moved the data away."""
    workload_spec._load.cache_clear()
    workload_spec._read.cache_clear()


@pytest.fixture
def cli(capsys):
    """``cli("sim", "--limit", 5)``: call it, and see that nobody gets a traceback unasked."""

    def call(*words: object) -> Called:
        capsys.readouterr()
        status = main([str(word) for word in words])
        called = Called(status, *capsys.readouterr())
        assert "Traceback" not in called.out + called.err or "--debug" in words
        return called

    return call


@pytest.fixture
def refused(cli):
    """Call it, see it refuse in one line with status 2 and no result, and return that line."""

    def call(*words: object) -> str:
        called = cli(*words)
        assert called.status == 2, called
        assert called.out == ""
        assert called.err.count("\n") == 1 and called.err.startswith("minilab: "), called.err
        return called.err

    return call


@pytest.fixture
def no_data(monkeypatch, tmp_path):
    """A reader without the data folder and with an empty cache: stand-ins answer."""
    monkeypatch.delenv("MINILAB_DATA", raising=False)
    monkeypatch.setenv("MINILAB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def azure_file(tmp_path):
    """A trace file of (seconds, prompt, output) rows."""

    def write(*rows: tuple[object, object, object], name: str = "own.csv") -> Path:
        path = tmp_path / name
        path.write_text("\n".join([AZURE, *(",".join(map(str, row)) for row in rows)]) + "\n")
        return path

    return write


@pytest.fixture
def shared_prompts(tmp_path):
    """Two equal prompts of two 512-token blocks, 100 s apart: only their first block can hit."""
    row = {"input_length": 1024, "output_length": 4, "hash_ids": [1, 2]}
    path = tmp_path / "shared.jsonl"
    path.write_text("".join(json.dumps({"timestamp": t, **row}) + "\n" for t in (0, 100_000)))
    return path
