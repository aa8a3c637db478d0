"""The rows of a sweep on disk: torn, doubled, old, foreign, and on a full disk.

Failures these tests exist for: a store that a kill made unreadable, a file of someone else's that
is cut or appended to, a row of other code or other data that passes for this sweep's.
"""

from __future__ import annotations

import csv
import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import minilab
from minilab.facts.errors import InputError
from minilab.sim import sweep_store, sweep_tasks
from minilab.sim.experiment import Experiment
from minilab.sim.sweep import grid, sweep
from minilab.sim.sweep_store import SweepStore, code_version, identity_of

COST = json.dumps({"w": 0.005, "f": 1e-4, "k": 1e-7, "s": 1e-5})
SMALL = Experiment(cost=COST, kv_blocks=400).with_(trace="synthetic", limit=4, output_tokens=4)
THREE = grid(SMALL, seed=[0, 1, 2])


def run(out: Path | None = None, experiments: list[Experiment] = THREE) -> list[dict[str, Any]]:
    return sweep(experiments, "ttft=0.5", out=out, progress=False)


def stored(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    run(tmp_path / "rows.jsonl")
    return tmp_path / "rows.jsonl"


# --- torn and doubled lines ----------------------------------------------------------------------


@pytest.mark.parametrize("left", [1, 2, 17, 18, 300, -1])
def test_a_torn_last_line_is_dropped_with_a_notice(
    store: Path, left: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kill may cut a write anywhere: after one byte, within the mark, before the newline."""
    first, second, last = store.read_bytes().splitlines(keepends=True)
    store.write_bytes(first + second + last[:left])
    assert run(store) == run()
    told = capsys.readouterr().err
    assert f"dropped a torn last line ({len(last[:left])} bytes" in told
    assert store.read_bytes() == first + second + last


def test_of_two_rows_with_one_identity_the_later_counts(store: Path) -> None:
    again = stored(store)[1] | {"completed": 3}
    with SweepStore(store) as opened:
        opened.append({name: value for name, value in again.items() if name != "minilab_sweep"})
    assert [row["completed"] for row in run(store)] == [4, 3, 4]
    assert len(stored(store)) == 4, "nothing ran again"


def test_blank_lines_of_an_editor_do_no_harm(store: Path) -> None:
    store.write_bytes(store.read_bytes() + b"\n\n")
    assert run(store) == run()


# --- files that are not ours ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b'{"minilab_runlog": 1, "meta": {}}\n{"request": {}}\n', 1),
        (b"my notes, on one line without an end", 1),
        (b'{"minilab_sweep": 1, "key": "0"}\n', 1),
        (b'{"minilab_sweep": []}\n', 1),
    ],
)
def test_a_file_of_something_else_is_refused_and_kept(
    content: bytes, line: int, tmp_path: Path
) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"mine\.jsonl:{line}: .* is not a row of a sweep"):
        run(path)
    assert path.read_bytes() == content


def test_a_damaged_line_in_the_middle_is_named_not_dropped(store: Path) -> None:
    first, second, last = store.read_bytes().splitlines(keepends=True)
    store.write_bytes(first + second[:50] + b"\n" + last)
    with pytest.raises(InputError, match=r"rows\.jsonl:2: .*remove that line") as error:
        run(store)
    assert "\n" not in str(error.value)


def test_a_newer_format_and_a_folder_that_is_not_there_are_told(store: Path) -> None:
    store.write_text(store.read_text().replace('"minilab_sweep": 1', '"minilab_sweep": 2'))
    with pytest.raises(InputError, match=r"rows\.jsonl:1: sweep format 2; .* reads up to 1"):
        run(store)
    with pytest.raises(InputError, match=r"no such file or directory; name a file in a folder"):
        run(store.parent / "nowhere" / "rows.jsonl")


# --- other code, other data ----------------------------------------------------------------------


def test_rows_of_another_version_run_again(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = stored(store)
    monkeypatch.setattr(sweep_tasks, "code_version", lambda: "9.9.9+code.0")
    run(store)
    assert "3 rows were made by another version" in capsys.readouterr().err
    assert [row["version"] for row in stored(store)] == [old[0]["version"]] * 3 + [
        "9.9.9+code.0"
    ] * 3
    run(store)
    assert len(stored(store)) == 6, "once was enough"


def test_the_version_changes_with_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between releases the version stands still, and in a learner's checkout always."""
    (tmp_path / "core").mkdir()
    code = tmp_path / "core" / "scheduler.py"
    found = []
    monkeypatch.setattr(minilab, "__file__", str(tmp_path / "__init__.py"))
    for text in ("budget = 512", "budget = 513", "budget = 512"):
        code.write_text(text)
        code_version.cache_clear()
        found.append(code_version())
    code_version.cache_clear()
    assert found[0] == found[2] != found[1] and found[0].startswith(minilab.__version__)


OF_A_FILE = """
import sys
sys.path.insert(0, {folder!r})
from test_sweep_store import SMALL, run
print(run({out!r}, [SMALL.with_(file={trace!r}, limit=None)])[0]["ttft_p50"])
"""


def test_another_content_behind_the_same_name_runs_again(tmp_path: Path) -> None:
    """The experiment's key holds a name; a stand-in and the real trace, or two files, share it."""
    trace, out = tmp_path / "trace.csv", tmp_path / "rows.jsonl"
    here = str(Path(__file__).parent)
    code = OF_A_FILE.format(folder=here, out=str(out), trace=str(trace))
    ttft = []
    for tokens in (100, 200, 200):
        lines = [f"2023-11-16 18:15:{k:02d}.0000000,{tokens},10" for k in range(5)]
        trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines]))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        ttft.append(float(done.stdout))
    assert ttft[0] < ttft[1] == ttft[2]
    rows = stored(out)
    assert len(rows) == 2 and rows[0]["inputs"] != rows[1]["inputs"] and rows[0]["data"] == "real"


# --- no room -------------------------------------------------------------------------------------


def test_a_full_disk_keeps_the_rows_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, write, lines = tmp_path / "rows.jsonl", os.write, []

    def almost_full(file: int, data: bytes) -> int:
        lines.append(data)
        if len(lines) < 3:
            return write(file, data)
        if len(lines) == 3:
            return write(file, data[:100])  # what still fits
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sweep_store.os, "write", almost_full)
    with pytest.raises(InputError, match="no space left on device; the 2 rows so far are kept"):
        run(out)
    monkeypatch.undo()
    assert [identity_of(row).key for row in stored(out)] == [e.key for e in THREE[:2]]
    assert run(out) == run() and len(stored(out)) == 3


def test_the_table_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"table\.csv: cannot be written: No space left"):
        sweep(THREE, out=tmp_path / "table.csv", progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["table.jsonl"]
    monkeypatch.undo()
    rows = sweep(THREE, out=tmp_path / "table.csv", progress=False)
    with open(tmp_path / "table.csv", newline="") as file:
        table = list(csv.DictReader(file))
    assert [float(row["ttft_p99"]) for row in table] == [row["ttft_p99"] for row in rows]
    assert {row["goodput"] for row in table} == {""}, "unavailable is an empty cell"


LIMITED = """
import resource, sys
sys.path.insert(0, {folder!r})
from test_sweep_store import THREE, InputError, run
from pathlib import Path
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
try:
    run(Path({out!r}))
except InputError as error:
    print(error)
"""


def test_a_real_limit_in_the_middle_of_a_line_leaves_whole_lines(store: Path) -> None:
    """The kernel writes what fits and refuses the rest; that part must not stay."""
    whole = store.read_bytes()
    first = whole.index(b"\n") + 1
    out = store.with_name("limited.jsonl")
    code = LIMITED.format(folder=str(Path(__file__).parent), limit=first + 200, out=str(out))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "row 2 cannot be written" in done.stdout and done.stdout.count("\n") == 1
    assert out.read_bytes() == whole[:first]
