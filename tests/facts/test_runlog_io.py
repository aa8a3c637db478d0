"""RunLog files.

What these tests exist for: a file that reads back changed, a half-written file under the final
name, damage that ends in a traceback or, worse, in a log.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.facts import runlog_io
from minilab.facts.errors import InputError
from minilab.facts.gaps import GapLists
from minilab.facts.runlog import RunLog, blank_requests

FORMATS = [".jsonl", ".parquet"]


def path_for(folder: Path, ending: str) -> Path:
    if ending == ".parquet":
        pytest.importorskip("pyarrow", reason="needs pyarrow")
    return folder / f"log{ending}"


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("gaps", ["lists", "runs", None])
def test_a_file_gives_back_what_was_written(tmp_path: Path, gaps, ending, small_log) -> None:
    log, path = small_log(gaps), path_for(tmp_path, ending)
    runlog_io.write(log, path)
    back = runlog_io.read(path)
    assert log.difference(back) is None and back.meta == log.meta
    assert type(back.gaps) is type(log.gaps)
    assert back.series is not None and log.series is not None
    for name, column in log.series.items():
        np.testing.assert_array_equal(back.series[name], column)
    assert os.listdir(tmp_path) == [path.name]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(0, 1e9), max_size=5), max_size=4), st.text(max_size=8))
def test_floats_and_text_survive_bit_for_bit(rows: list[list[float]], label: str) -> None:
    requests = blank_requests(len(rows))
    requests["tenant"][:] = label.encode("utf-8", "replace").decode()
    requests["arrival"] = np.array([sum(row) / 3 for row in rows], dtype=float)
    requests["output_tokens"] = np.array([len(row) + 1 for row in rows], dtype=np.int64)
    log = RunLog(requests, GapLists.of(rows))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        runlog_io.write(log, path)
        back = runlog_io.read(path)
    assert log.difference(back, tol=0.0) is None


def test_pandas_opens_the_parquet_file(tmp_path: Path, small_log) -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    path = path_for(tmp_path, ".parquet")
    runlog_io.write(small_log(), path)
    frame = pandas.read_parquet(path)
    assert frame["finish"].tolist() == [4.0, 1.5, 0.7]
    assert [list(row) for row in frame["gaps"]] == [[1.0, 1.0, 1.0], [], []]


@pytest.mark.parametrize("ending", FORMATS)
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, ending, small_log
) -> None:
    path = path_for(tmp_path, ending)
    runlog_io.write(small_log(), path)
    before = path.read_bytes()
    code = (
        "import resource, sys\n"
        "from minilab.facts import runlog_io\n"
        "log = runlog_io.read(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n"
        "try: runlog_io.write(log, sys.argv[1])\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    pytest.importorskip("resource", reason="needs a POSIX system")
    run = [sys.executable, "-c", code, str(path)]
    out = subprocess.run(run, capture_output=True, text=True, check=False)
    assert out.stdout.startswith(f"InputError {path}: cannot be written: "), out.stderr
    assert "make room" in out.stdout and len(out.stdout.splitlines()) == 1
    assert path.read_bytes() == before and os.listdir(tmp_path) == [path.name]


def test_the_old_file_is_whole_until_the_new_one_is(tmp_path: Path, monkeypatch, small_log) -> None:
    path = tmp_path / "log.jsonl"
    runlog_io.write(small_log(), path)
    before = path.read_bytes()

    def refuse(source: object, target: object) -> None:
        assert path.read_bytes() == before and Path(str(source)).parent == tmp_path
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(InputError, match="cannot be written: Permission denied"):
        runlog_io.write(small_log("runs"), path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == [path.name]


def test_no_folder_no_file_no_known_ending(tmp_path: Path, small_log) -> None:
    with pytest.raises(InputError, match="cannot be written: No such file"):
        runlog_io.write(small_log(), tmp_path / "none" / "log.jsonl")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        runlog_io.read(tmp_path / "log.jsonl")
    for name in ("log.pickle", "log"):
        with pytest.raises(InputError, match=r"name it \.jsonl or \.parquet"):
            runlog_io.write(small_log(), tmp_path / name)
    wrong = small_log()
    wrong.requests["status"][0] = "done"
    with pytest.raises(InputError, match="status 'done'"):
        runlog_io.write(wrong, tmp_path / "log.jsonl")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("ending", FORMATS)
def test_a_newer_version_is_refused_in_one_line(
    tmp_path: Path, ending, monkeypatch, small_log
) -> None:
    from minilab.facts import runlog_jsonl, runlog_parquet

    path = path_for(tmp_path, ending)
    for module in (runlog_jsonl, runlog_parquet):
        monkeypatch.setattr(module, "VERSION", 2)
    runlog_io.write(small_log(), path)
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"version 2; this minilab reads up to version 1") as e:
        runlog_io.read(path)
    assert str(e.value).startswith(str(path)) and "\n" not in str(e.value)


def mend(line: int, **change: object):
    """A change to one request's fields, as an edit of the file's lines."""

    def edit(lines: list[str]) -> None:
        record = json.loads(lines[line])
        record["request"].update(change)
        lines[line] = json.dumps(record)

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda lines: lines.__setitem__(2, lines[2][:50]), r":3: .* is not JSON"),
        (lambda lines: lines.__setitem__(2, "[1, 2]"), r":3: .* one JSON object"),
        (lambda lines: lines.__setitem__(2, "[" * 100_000), r":3: .* is not JSON"),
        (lambda lines: lines.__setitem__(2, '{"reqest": {}}'), r":3: keys \['reqest'\]; one of"),
        (lambda lines: lines.pop(), r"promises 2; it was cut"),
        (lambda lines: lines.append(lines[-1]), r"ends with 3 sample lines"),
        (lambda lines: lines.clear(), r"not a run log"),
        (lambda lines: lines.pop(0), r"not a run log"),
        (lambda lines: lines.__setitem__(0, '{"minilab_runlog": 1}'), r":1: the header is incom"),
        (mend(1, finish="4.0"), r":2: finish '4.0'; must be a number or null"),
        (mend(1, finish=float("nan")), r":2: .* is not JSON; NaN is not JSON, write null"),
        (mend(1, prompt_tokens=1.5), r":2: prompt_tokens '1.5'; must be a 64-bit integer"),
        (mend(1, prompt_tokens=2**63), r":2: prompt_tokens .* must be a 64-bit integer"),
        (mend(1, prompt_tokens=True), r":2: prompt_tokens 'True'; must be"),
        (mend(1, tenant=5), r":2: tenant '5'; must be text"),
        (mend(1, gaps=[1, "x", 2]), r":2: gaps .* must be a list of seconds"),
        (mend(1, colour="red"), r":2: missing or unknown: \['colour'\]"),
        (mend(1, finish=0.0), r"log.jsonl: request 3 \(row 0\): finish 0.0 comes before"),
    ],
)
def test_damaged_lines_name_file_line_and_limit(tmp_path: Path, edit, message, small_log) -> None:
    path = tmp_path / "log.jsonl"
    runlog_io.write(small_log(), path)
    lines = path.read_text().splitlines()
    edit(lines)
    path.write_text("".join(line + "\n" for line in lines))
    with pytest.raises(InputError, match=message) as caught:
        runlog_io.read(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_damaged_runs_name_their_line(tmp_path: Path, small_log) -> None:
    path = tmp_path / "log.jsonl"
    runlog_io.write(small_log("runs"), path)
    for bad in ("[1, 2]", "[0, 1.5, 0, 3, 1, 0, 0, 9]"):
        lines = path.read_text().splitlines()
        lines[4] = f'{{"run": {bad}}}'
        path.write_text("\n".join(lines) + "\n")
        with pytest.raises(InputError, match=r":5: .* must be 64-bit integers \['start'"):
            runlog_io.read(path)


def test_a_damaged_or_foreign_parquet_file(tmp_path: Path, small_log) -> None:
    path = path_for(tmp_path, ".parquet")
    runlog_io.write(small_log("runs"), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="not a whole run log in Parquet"):
        runlog_io.read(path)
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), path)
    with pytest.raises(InputError, match="not a run log"):
        runlog_io.read(path)
    extra = {"minilab_runlog": "1", "meta": "{}"}
    pyarrow.parquet.write_table(pyarrow.table({"id": [1]}).replace_schema_metadata(extra), path)
    with pytest.raises(InputError, match=r"not a whole run log .*tenant"):
        runlog_io.read(path)


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch, small_log
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'minilab\[data\]', or use .* \.jsonl"):
        runlog_io.write(small_log(), tmp_path / "log.parquet")
    assert os.listdir(tmp_path) == []
