"""Which reader takes a file.

What these tests exist for: trusting a name; a message that leaves the user with "invalid file".
"""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from minilab.facts import readers, runlog_io
from minilab.facts.errors import InputError
from minilab.facts.readers import source


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("format", ["vllm", "sglang", "aiperf", "guidellm", "inference-perf"])
def test_by_content(save, examples, format, pack):
    """Whatever it is called, packed or not."""
    path = save(*examples[format], name="data.txt", pack=pack)
    part = 1 if format == "sglang" else None
    log = readers.read(path, part=part)
    assert log.meta["format"] == format
    assert log.difference(readers.read(path, format=format, part=part)) is None


def test_indented_files(save, examples):
    """A JSON value over many lines is one value."""
    text = json.dumps(examples["vllm"][0], indent=2)
    assert len(readers.read(save(text))) == 4


def test_our_own_run_logs(tmp_path, small_log):
    path = tmp_path / "run.jsonl"
    runlog_io.write(small_log("runs"), path)
    assert readers.read(path).difference(small_log("runs")) is None
    other = tmp_path / "run.json"
    other.write_bytes(path.read_bytes())
    assert readers.read(other, format="minilab").difference(small_log("runs")) is None
    with pytest.raises(InputError, match="a run log; not of format 'vllm'"):
        readers.read(path, format="vllm")
    other.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(InputError, match="gunzip it first"):
        readers.read(other)


def test_our_own_parquet_files(tmp_path, small_log):
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    path = tmp_path / "run.parquet"
    runlog_io.write(small_log(), path)
    assert readers.read(path).difference(small_log()) is None


def test_what_was_read_can_be_written(tmp_path, bigbudget):
    """As a run log of ours, meta and all."""
    log = readers.read(bigbudget)
    runlog_io.write(log, tmp_path / "run.jsonl")
    back = readers.read(tmp_path / "run.jsonl")
    assert log.difference(back) is None and back.meta == log.meta
    np.testing.assert_array_equal(back.gaps.values, log.gaps.values)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "empty; must be JSON"),
        ("# HELP vllm:num_requests_running", ":1: '# HELP vllm:num_requ.*must be JSON"),
        ("{}", "an object of 0; of no known tool; give a result of: a run log"),
        ('{"a": 1, "b": 2}', "an object with 'a', 'b'; of no known tool"),
        ("[1, 2]", "a list of 2; of no known tool"),
        ('{"a": 1, "a": 2}', "the key 'a' stands twice"),
        ('{"a":' * 100_000, "must be JSON"),
        ('{"a": ' + "9" * 5000 + "}", "must be JSON"),
        ('{"input_config": {}, "time_to_first_token": {}}', "aiperf summary; .*profile_export"),
        ('{"mean_ttft_ms": 1}', "a benchmark's summary; has no value per request; .*--save-det"),
        ('{"benchmarks": []}', "no run in it"),
        ('{"benchmarks": [{}]}', r"benchmarks\[0\]: .*must be an object with 'requests'"),
        ('{"ttfts": [], "itls": []}', "with --save-result --save-detailed"),
    ],
)
def test_files_of_no_use(save, text, message):
    with pytest.raises(InputError, match=message) as refusal:
        readers.read(save(text))
    assert "\n" not in str(refusal.value)


def test_places_that_are_no_file(tmp_path):
    for path in (tmp_path / "none.json", tmp_path, "a\0b"):
        with pytest.raises(InputError, match="cannot be read"):
            readers.read(path)


def test_unknown_format(save, vllm_run):
    with pytest.raises(InputError, match="unknown format 'vlm'; did you mean vllm"):
        readers.read(save(vllm_run), format="vlm")


def test_a_gzip_that_unpacks_to_too_much(save, vllm_run, monkeypatch):
    """A few kilobytes can hold gigabytes."""
    vllm_run["generated_texts"] = ["0" * 100_000]
    path = save(vllm_run, pack=True)
    monkeypatch.setattr(source, "MAX_BYTES", 10_000)
    with pytest.raises(InputError, match="unpacks to more than"):
        readers.read(path)


def test_a_damaged_gzip(save, vllm_run):
    path = save(vllm_run, pack=True)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="damaged gzip"):
        readers.read(path)


def test_not_utf8(tmp_path):
    path = tmp_path / "run.json"
    path.write_bytes(b'{\n"a": "\xff"}')
    with pytest.raises(InputError, match=":2: byte 0xff; must be UTF-8"):
        readers.read(path)


def test_two_files_in_one(save, guidellm_report):
    path = save(guidellm_report, guidellm_report)
    with pytest.raises(InputError, match=r":2: .*must be one JSON value"):
        readers.read(path)


def test_part_of_a_file_with_one_run(save, aiperf_records):
    with pytest.raises(InputError, match="part 2; the file holds one run"):
        readers.read(save(*aiperf_records), part=2)
