"""``minilab conform``: verdict and status; a learner's file may be wrong in many ways, each a line.

Failure this exists for: a traceback where a learner's own module fails, and a status of 0 for
something that does not conform.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from minilab.facts import runlog_io
from minilab.facts.runlog_writer import RunLogWriter

GOOD = """\
from minilab.core.plain_scheduler import PlainScheduler
from helper import NAME

class Mine(PlainScheduler):
    claims = ("fcfs",)

class Helper:
    pass
"""
BAD = """\
from minilab.core.plain_scheduler import PlainScheduler

class Mine(PlainScheduler):
    def plan_prompts(self, plan, budget):
        super().plan_prompts(plan, self.config.max_num_batched_tokens)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a learner's own, with a module beside theirs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper.py").write_text("NAME = 'neighbour'\n")
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize("target", ["mine.py:Mine", "mine.py", "mine:Mine", "./mine.py:Mine"])
def test_a_right_one_conforms(cli, place, target) -> None:
    (place / "mine.py").write_text(GOOD)
    called = cli("conform", target, "--worlds", 10)
    assert called.status == 0
    assert called.out.startswith("Mine: 13 worlds, claims fcfs\nconforms: 15 rules kept\n")
    assert called.err == ""


def test_a_wrong_one_is_shown_on_its_world(cli, place) -> None:
    (place / "mine.py").write_text(BAD)
    called = cli("conform", "mine.py:Mine", "--worlds", 60, "--seed", 3)
    assert called.status == 1
    assert "does not conform" in called.out and "budget: a step computes at most" in called.out
    assert "the decodes are not taken off the budget" in called.out
    report = cli("conform", "mine.py:Mine", "--worlds", 60, "--seed", 3, "--json")
    assert report.status == 1 and report.json["passed"] is False
    finding = report.json["findings"][0]
    assert finding["rule"] == "budget" and finding["world"][0].count("block") == 1
    assert all(line in called.out for line in finding["world"])


def test_an_error_inside_is_told_with_its_own_line(cli, place) -> None:
    (place / "mine.py").write_text(BAD + "        self.missing += 1\n")
    called = cli("conform", "mine.py:Mine", "--worlds", 5)
    assert called.status == 1
    assert "at      mine.py:6: `self.missing += 1`" in called.out


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("x = (\n", "mine.py:Mine", "mine.py:1: '(' was never closed"),
        ("def f():\n    return lost\nf()\n", "mine.py:Mine", "mine.py:2: NameError: name 'lost'"),
        ("import not_there_at_all\n", "mine.py:Mine", "mine.py:1: ModuleNotFoundError"),
        ("raise SystemExit(3)\n", "mine.py:Mine", "mine.py:1: SystemExit: 3"),
        (GOOD, "mine.py:Mien", "mine.py: no class 'Mien'; did you mean Mine?"),
        (GOOD, "mine.py:NAME", "NAME is a str, not a class"),
        (GOOD, "yours.py:Mine", "yours.py: no such file"),
        (GOOD, "yours:Mine", "yours: no such module"),
        ("class A:\n    pass\n", "mine.py", "classes with a schedule method: none"),
        (GOOD.replace("fcfs", "best"), "mine.py:Mine", "claims 'best': known are fcfs, plain"),
    ],
)
def test_what_cannot_be_tried_is_told_in_one_line(refused, place, source, target, message) -> None:
    (place / "mine.py").write_text(source)
    assert message in refused("conform", target, "--worlds", 5)


def test_a_run_log(cli, refused, place) -> None:
    with RunLogWriter("mine.jsonl") as log:
        log.add(0, 0.0, 5)
        log.token(0, 0.5)
        log.token(0, 0.6)
        log.finish(0)
    called = cli("conform", "mine.jsonl")
    assert called.status == 0 and called.out.startswith("mine.jsonl: 1 requests\nconforms: ")
    made = runlog_io.read("mine.jsonl")
    made.requests["arrival"][:] = made.requests["first_token"]
    made.meta["duration"] = 60.0
    runlog_io.write(made, "wrong.jsonl")
    called = cli("conform", "wrong.jsonl", "--json")
    assert called.status == 1
    assert [f["rule"].split(":")[0] for f in called.json["findings"]] == ["causality"]
    (place / "cut.jsonl").write_text("{}\n")
    assert "not a run log" in refused("conform", "cut.jsonl")
    assert "cannot be read" in refused("conform", "nowhere.jsonl")


def test_a_log_that_breaks_a_rule_of_logs_does_not_conform(cli, place) -> None:
    """Not "bad input": the file was read, and what it says is wrong."""
    with RunLogWriter("mine.jsonl") as log:
        log.add(0, 0.0, 5)
        log.token(0, 0.5)
        log.finish(0)
    text = (place / "mine.jsonl").read_text().replace('"output_tokens":1', '"output_tokens":0')
    (place / "mine.jsonl").write_text(text)
    called = cli("conform", "mine.jsonl")
    assert called.status == 1 and "first_token 0.5 with output_tokens 0" in called.out
