"""RunLog: its rules, its files, and the comparison on which the simulators' equality tests rest.

What these tests exist for: a broken log that passes as a good one (its metrics would be wrong, not
missing), a file that reads back changed, a half-written file under the final name, a comparison
that overlooks a difference.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.facts import runlog_io
from minilab.facts.errors import InputError
from minilab.facts.gaps import RUN_COLUMNS, SPAN_COLUMNS, GapLists, GapRuns
from minilab.facts.runlog import KINDS, STAGES, TIMES, RunLog, blank_requests
from minilab.facts.ticks import TICKS_PER_SECOND

FORMATS = [".jsonl", ".parquet"]


def path_for(folder: Path, ending: str) -> Path:
    if ending == ".parquet":
        pytest.importorskip("pyarrow", reason="needs pyarrow")
    return folder / f"log{ending}"


def table(names: tuple[str, ...], rows: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
    values = np.array(rows, dtype=np.int64).reshape(len(rows), len(names))
    return {name: values[:, i].copy() for i, name in enumerate(names)}


def small_log(gaps: str | None = "lists") -> RunLog:
    """Three requests: four tokens, one token, rejected."""
    requests = blank_requests(3)
    requests["id"] = np.array([3, 7, 8])
    requests["tenant"][:] = ["acme", "", "ünï"]
    requests["slo_class"][:] = ["chat", "chat", "batch"]
    requests["status"][:] = ["finished", "finished", "rejected"]
    requests["arrival"] = np.array([0.1, 0.5, 0.7])
    requests["queued"] = np.array([0.1, 0.5, np.nan])
    requests["scheduled"] = np.array([0.2, 0.5, np.nan])
    requests["first_token"] = np.array([1.0, 1.5, np.nan])
    requests["finish"] = np.array([4.0, 1.5, 0.7])
    requests["prompt_tokens"] = np.array([10, 20, 30])
    requests["output_tokens"] = np.array([4, 1, 0])
    requests["instance"] = np.array([0, 1, -1])
    requests["queue"] = np.array([0.1, 0.0, np.nan])
    second = TICKS_PER_SECOND
    runs = table(RUN_COLUMNS, [(second, second, 0, 3, 1, 0, 0, 9)])
    spans = table(SPAN_COLUMNS, [(0, second, 0, 1, 0), (1, second, 1, 1, 0)])
    chosen = {
        None: None,
        "lists": GapLists.of([[1.0, 1.0, 1.0], [], []]),
        "runs": GapRuns(runs, spans, 3),
    }[gaps]
    series = {
        "t": np.array([0.0, 1.0]),
        "instance": np.array([0, 1]),
        "running": np.array([1, 2]),
        "waiting": np.array([0, 1]),
        "kv_usage": np.array([0.25, 0.5]),
        "busy": np.array([1.0, np.nan]),
    }
    meta = {"seed": 3, "config": {"gpu": "h100"}, "data": {"kind": "synthetic"}}
    return RunLog(requests, chosen, series, meta)


def changed(log: RunLog, name: str, row: int, value: object) -> RunLog:
    requests = {key: column.copy() for key, column in log.requests.items()}
    requests[name][row] = value
    return RunLog(requests, log.gaps, log.series, log.meta)


# ---------------------------------------------------------------- rules


@pytest.mark.parametrize("gaps", ["lists", "runs", None])
def test_a_sound_log_passes(gaps: str | None) -> None:
    log = small_log(gaps)
    assert log.check() is log


@pytest.mark.parametrize(
    ("name", "row", "value", "message"),
    [
        ("first_token", 0, 0.05, r"request 3 \(row 0\): first_token 0.05 comes before arrival 0.1"),
        ("finish", 0, 0.9, r"row 0\): finish 0.9 comes before first_token 1.0"),
        ("scheduled", 1, 0.4, r"request 7 \(row 1\): scheduled 0.4 comes before arrival"),
        ("prompt_tokens", 2, -1, r"request 8 \(row 2\): prompt_tokens -1 is negative"),
        ("preemptions", 1, -2, r"preemptions -2 is negative"),
        ("instance", 1, -2, r"instance -2 is below -1"),
        ("status", 1, "done", r"row 1\): status 'done'; use one of finished, aborted"),
        ("tenant", 1, None, r"tenant None is not text"),
        ("id", 1, 3, r"row 1: id 3 after id 3; sort by id"),
        ("output_tokens", 0, 5, r"row 0\): 3 gaps for output_tokens 5; n tokens have n - 1 gaps"),
        ("output_tokens", 0, 3, r"row 0\): 3 gaps for output_tokens 3; n tokens have n - 1 gaps"),
        ("output_tokens", 1, 0, r"row 1\): first_token 1.5 with output_tokens 0"),
        ("first_token", 1, np.nan, r"row 1\): first_token nan though other requests have one"),
        ("finish", 0, np.nan, r"row 0\): finish nan though other requests have one"),
        ("arrival", 2, np.nan, r"row 2\): arrival nan though other requests have one"),
        ("finish", 0, np.inf, r"row 0\): finish inf is infinite"),
        ("prefill", 0, -0.5, r"row 0\): prefill -0.5 is negative"),
    ],
)
@pytest.mark.parametrize("gaps", ["lists", "runs"])
def test_each_broken_rule_names_row_and_field(gaps, name, row, value, message) -> None:
    with pytest.raises(InputError, match=message) as caught:
        changed(small_log(gaps), name, row, value).check()
    assert "\n" not in str(caught.value)


def test_a_time_nobody_recorded_is_allowed() -> None:
    log = small_log()
    for name in ("scheduled", "queued", "first_token", *STAGES):
        log.requests[name][:] = np.nan
    log.check()  # an imported file without these: unavailable, not wrong


def test_rounding_of_epoch_seconds_is_no_error() -> None:
    log = small_log(None)
    for name in TIMES:
        log.requests[name] += 1.7e9
    log.requests["first_token"][1] = np.nextafter(log.requests["scheduled"][1], 0)
    log.requests["finish"][1] += 1
    log.check()


def test_an_aborted_request_may_lack_gaps_but_not_have_too_many() -> None:
    log = changed(changed(small_log(), "status", 0, "aborted"), "output_tokens", 0, 5)
    log.check()
    with pytest.raises(InputError, match="3 gaps for output_tokens 2"):
        changed(log, "output_tokens", 0, 2).check()


@pytest.mark.parametrize("value", [-0.1, np.nan, np.inf])
def test_a_gap_that_is_no_length_is_refused(value: float) -> None:
    log = small_log()
    gaps = GapLists.of([[1.0, 1.0, value], [], []])
    with pytest.raises(InputError, match=r"request 3 \(row 0\): gap 2 is"):
        RunLog(log.requests, gaps).check()


@pytest.mark.parametrize(
    ("part", "name", "row", "value", "message"),
    [
        ("runs", "n", 0, 0, "gaps.runs: row 0: n below 1"),
        ("runs", "first", 0, -1, "gaps.runs: row 0: a step of negative length"),
        ("runs", "slope", 0, -TICKS_PER_SECOND, "a step of negative length"),
        ("runs", "batch", 0, -1, "negative batch"),
        ("spans", "request", 0, 3, "gaps.spans: row 0: request is not a row"),
        ("spans", "request", 1, 0, "3 gaps|4 gaps|before the request's previous"),
        ("spans", "run_to", 0, 2, r"gaps.spans: row 0: run_from, run_to not in order within 0..1"),
        ("spans", "run_from", 1, 2, "gaps.spans: row 1: run_from"),
        ("spans", "zeros", 1, -1, "gaps.spans: row 1: negative zeros"),
        ("spans", "run_from", 1, 0, "gaps.runs: row 0: more spans than its batch"),
        ("spans", "token_time", 0, 3 * TICKS_PER_SECOND, "a token before the request's previous"),
    ],
)
def test_each_fault_of_runs_and_spans_is_found(part, name, row, value, message) -> None:
    log = small_log("runs")
    assert isinstance(log.gaps, GapRuns)
    getattr(log.gaps, part)[name][row] = value
    with pytest.raises(InputError, match=message):
        log.check()


def test_a_span_over_two_instances_is_refused_and_a_span_on_each_is_not() -> None:
    second = TICKS_PER_SECOND
    rows = [(second, second, 0, 1, 1, 0, 0, 0), (3 * second, second, 0, 1, 1, 1, 0, 0)]
    log = small_log()

    def check(*spans: tuple[int, ...]) -> None:
        gaps = GapRuns(table(RUN_COLUMNS, rows), table(SPAN_COLUMNS, list(spans)), 3)
        RunLog(log.requests, gaps).check()

    check((0, second, 0, 1, 0), (0, 3 * second, 1, 2, 0))
    with pytest.raises(InputError, match=r"gaps.spans: row 0: runs of two instances"):
        check((0, second, 0, 2, 0))


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"duration": 0}, "duration 0; give seconds above 0"),
        ({"duration": float("nan")}, "duration nan"),
        ({"seed": {1, 2}}, "keep to what JSON can hold"),
        ({"rate": float("inf")}, "keep to what JSON can hold"),
    ],
)
def test_meta_that_no_file_could_hold_is_refused(meta, message) -> None:
    log = small_log()
    with pytest.raises(InputError, match=message):
        RunLog(log.requests, log.gaps, None, meta).check()


def test_missing_unknown_ragged_and_mistyped_columns() -> None:
    def broken(change) -> RunLog:
        log = small_log()
        change(log.requests)
        return log

    faults = {
        r"lacks \['finish'\]": lambda c: c.pop("finish"),
        r"has unknown \['finnish'\]": lambda c: c.update(finnish=c["finish"]),
        "different lengths": lambda c: c.update(finish=c["finish"][:2]),
        "prompt_tokens has dtype float64; needs int": lambda c: c.update(
            prompt_tokens=c["prompt_tokens"].astype(float)
        ),
    }
    for message, change in faults.items():
        with pytest.raises(InputError, match=message):
            broken(change).check()


# ---------------------------------------------------------------- what it says


def test_duration_is_metas_own_or_first_arrival_to_last_finish() -> None:
    log = small_log()
    assert log.duration == pytest.approx(3.9)
    assert RunLog(log.requests, meta={"duration": 10}).duration == 10
    assert np.isnan(RunLog(blank_requests(2)).duration)
    late = changed(log, "finish", 2, 9.1)  # a failure at the end does not shorten the run
    assert late.duration == pytest.approx(9.0)


@pytest.mark.parametrize("gaps", ["lists", "runs", None])
def test_select_keeps_rows_and_their_gaps(gaps: str | None) -> None:
    part = small_log(gaps).select(np.array([False, True, True])).check()
    assert part.requests["id"].tolist() == [7, 8]
    assert part.gaps is None or part.gaps.counts().tolist() == [0, 0]
    with pytest.raises(InputError, match="mask of shape"):
        part.select(np.array([True]))


def test_runs_equal_the_same_gaps_in_lists() -> None:
    assert small_log("runs").equal(small_log("lists"))


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_difference_in_any_column_is_found(name: str) -> None:
    log = small_log()
    values = {int: 99, float: 5.5, str: "other"}
    other = changed(log, name, 1, values[KINDS[name]])
    assert not log.equal(other) and not other.equal(log)
    assert f"(row 1): {name} " in (log.difference(other) or "")


def test_differences_read_as_a_sentence() -> None:
    log = small_log()
    late = changed(changed(log, "finish", 0, 4.25), "finish", 1, 2.0)
    assert log.difference(late, tol=1e-9) == (
        "request 3 (row 0): finish 4.0 here, 4.25 there, tolerance 1e-09 s (2 requests differ)"
    )
    assert log.equal(late, tol=0.5)
    gaps = GapLists.of([[1.0, 1.5, 1.0], [], []])
    other = RunLog(log.requests, gaps)
    assert log.difference(other, 0.1) == (
        "request 3 (row 0): gap 1 of 3 1.0 here, 1.5 there, tolerance 0.1 s"
    )
    fewer = RunLog(log.requests, GapLists.of([[1.0], [], []]))
    assert log.difference(fewer) == "request 3 (row 0): 3 gaps here, 1 there"
    assert log.difference(small_log(None)) == "gaps given here, not so there"
    assert log.difference(log.select(np.array([True, True, False]))) == "3 requests here, 2 there"


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("gaps", ["lists", "runs", None])
def test_a_file_gives_back_what_was_written(tmp_path: Path, gaps, ending) -> None:
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
    import tempfile

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


def test_pandas_opens_the_parquet_file(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    path = path_for(tmp_path, ".parquet")
    runlog_io.write(small_log(), path)
    frame = pandas.read_parquet(path)
    assert frame["finish"].tolist() == [4.0, 1.5, 0.7]
    assert [list(row) for row in frame["gaps"]] == [[1.0, 1.0, 1.0], [], []]


@pytest.mark.parametrize("ending", FORMATS)
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path, ending) -> None:
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


def test_the_old_file_is_whole_until_the_new_one_is(tmp_path: Path, monkeypatch) -> None:
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


def test_no_folder_no_file_no_known_ending(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: No such file"):
        runlog_io.write(small_log(), tmp_path / "none" / "log.jsonl")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        runlog_io.read(tmp_path / "log.jsonl")
    for name in ("log.pickle", "log"):
        with pytest.raises(InputError, match=r"name it \.jsonl or \.parquet"):
            runlog_io.write(small_log(), tmp_path / name)
    with pytest.raises(InputError, match="status 'done'"):
        runlog_io.write(changed(small_log(), "status", 0, "done"), tmp_path / "log.jsonl")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("ending", FORMATS)
def test_a_newer_version_is_refused_in_one_line(tmp_path: Path, ending, monkeypatch) -> None:
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
def test_damaged_lines_name_file_line_and_limit(tmp_path: Path, edit, message) -> None:
    path = tmp_path / "log.jsonl"
    runlog_io.write(small_log(), path)
    lines = path.read_text().splitlines()
    edit(lines)
    path.write_text("".join(line + "\n" for line in lines))
    with pytest.raises(InputError, match=message) as caught:
        runlog_io.read(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_damaged_runs_name_their_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    runlog_io.write(small_log("runs"), path)
    for bad in ("[1, 2]", "[0, 1.5, 0, 3, 1, 0, 0, 9]"):
        lines = path.read_text().splitlines()
        lines[4] = f'{{"run": {bad}}}'
        path.write_text("\n".join(lines) + "\n")
        with pytest.raises(InputError, match=r":5: .* must be 64-bit integers \['start'"):
            runlog_io.read(path)


def test_a_damaged_or_foreign_parquet_file(tmp_path: Path) -> None:
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


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'minilab\[data\]', or use .* \.jsonl"):
        runlog_io.write(small_log(), tmp_path / "log.parquet")
    assert os.listdir(tmp_path) == []
