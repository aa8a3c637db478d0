"""The report of runs: it says "loses" where the numbers do, and nothing where nobody can tell."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from minilab.facts import runlog_io
from minilab.facts.errors import InputError
from minilab.facts.runlog import RunLog
from minilab.facts.slo import SLOSet, goodput
from minilab.judge.filed_prediction import FiledPrediction, Said
from minilab.lab.run_report import Wanted, read_runs, report_page
from minilab.lab.run_report.grid import cell as cell_of
from minilab.lab.run_report.grid import grid_of, map_of
from minilab.lab.run_report.measured import settings, workloads
from minilab.lab.run_report.verdicts import UNKNOWN, Finding, findings
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment
from minilab.sim.regime_cell import Judge
from minilab.sim.workload_spec import WorkloadSpec

SLO = SLOSet.parse("ttft=0.3,itl=0.05")
JUDGE = Judge("goodput_per_gpu", 0.05, 0.5)
SPEC = WorkloadSpec(trace="synthetic", limit=120, rate=3.0, prompt_tokens=3000, jitter=0.9)
PLAIN = Experiment(workload=SPEC)
STRICT = PLAIN.with_(max_num_batched_tokens=512)  # small chunks: short gaps, late first tokens


def written(folder: Path, name: str, log: RunLog, **meta: object) -> str:
    path = folder / f"{name}.jsonl"
    runlog_io.write(replace(log, meta={**log.meta, **meta}), path)
    return f"{name.partition('-')[0]}={path}"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("runs")
    started = "2026-11-30T12:00:00+00:00"
    return [
        written(folder, "plain", PLAIN.run(), started=started),
        written(folder, "strict", STRICT.run(), started=started),
    ]


def page_of(runs: list[str], **wanted: object) -> tuple[str, list[Finding]]:
    return report_page(read_runs(runs, SLO), Wanted(SLO, **wanted))  # type: ignore[arg-type]


def verdicts_of(runs: list[str], baseline: str | None = None) -> list[Finding]:
    """Without the page: pictures take most of its time."""
    return findings(grid_of(read_runs(runs, SLO), baseline), SLO, JUDGE)


class Seen(HTMLParser):
    """Tags, and addresses that a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.alts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.fetched += [found[n] or "" for n in ("src", "href") if n in found]
        if tag == "img":
            self.alts.append(found.get("alt") or "")


def between(page: str, start: str, end: str) -> str:
    return page.partition(f"<h2>{start}</h2>")[2].partition(f"<h2>{end}</h2>")[0]


def test_it_says_loses_where_the_numbers_do(two: list[str]) -> None:
    """Each metric's word is worked out here from the logs themselves, the other way round too."""
    page, found = page_of(two)
    words = {f.what: f.verdict for f in found}
    logs = [run.log for run in read_runs(two, SLO)]
    ours, theirs = (goodput(log, SLO, 1).goodput_per_gpu for log in reversed(logs))
    assert ours is not None and theirs is not None and abs(ours - theirs) / max(ours, theirs) > 0.05
    assert words["goodput_per_gpu"] == ("wins" if ours > theirs else "loses")
    ttft = [np.quantile(log.requests["first_token"] - log.requests["arrival"], 0.5) for log in logs]
    assert ttft[1] > 1.05 * ttft[0] and words["ttft p50"] == "loses"
    assert "ttft p50: loses" in between(page, "Where it loses", "Where there is no telling")
    assert "ttft p50" not in between(page, "Where it wins", "Where it loses")
    turned = verdicts_of(two, "strict")
    opposite = {"wins": "loses", "loses": "wins"}
    for one in turned:
        if one.what in ("goodput_per_gpu", "ttft p50", "itl p99"):
            assert one.verdict == opposite.get(words[one.what], words[one.what]), one


def test_a_side_that_never_loses_is_told_that_it_has_not_looked(
    two: list[str], tmp_path: Path
) -> None:
    plain = runlog_io.read(two[0].partition("=")[2])
    same = written(tmp_path, "copy", plain)
    page, found = page_of([two[0], same])
    assert {f.verdict for f in found} == {"no difference"}
    assert "Nowhere in these runs." in between(page, "Where it wins", "Where it loses")
    assert "has not looked" in between(page, "Where it loses", "Where there is no telling")


def test_nothing_is_fetched_and_every_picture_has_words(two: list[str]) -> None:
    page, _ = page_of(two, words="Mine <b> & theirs.\n\nMore.", title="A & B")
    seen = Seen(page)
    assert seen.fetched and all(one.startswith("data:") for one in seen.fetched)
    assert not {"script", "iframe", "object"} & set(seen.tags)
    assert "@import" not in page and "url(" not in page
    assert len(seen.alts) >= 2 and min(map(len, seen.alts)) > 80
    assert "Mine &lt;b&gt; &amp; theirs." in page and "<title>A &amp; B</title>" in page


def test_other_requests_get_no_verdict(two: list[str], tmp_path: Path) -> None:
    """The worst report compares an easy stream with a hard one."""
    easy = written(tmp_path, "easy", PLAIN.with_(prompt_tokens=500).run())
    page, found = page_of([two[0], easy])
    heads = [f for f in found if f.what == "goodput_per_gpu"]
    # the length varies between sides only, so it is one point, and not comparable
    assert [f.verdict for f in heads] == [UNKNOWN]
    assert "did not serve the same requests" in page
    assert not [f for f in found if f.verdict in ("wins", "loses")]


def test_runs_over_a_grid_make_a_map(tmp_path: Path) -> None:
    words = []
    for rate in (2.0, 8.0):
        for tokens in (500, 4000):
            for name, side in (("plain", PLAIN), ("strict", STRICT)):
                e = side.with_(rate=rate, prompt_tokens=tokens, limit=40)
                words.append(written(tmp_path, f"{name}-{rate:g}-{tokens}", e.run()))
    grid = grid_of(read_runs(words, SLO), None)
    assert set(grid.axes) == {"rate", "prompt_tokens"} and len(grid.points) == 4
    page, found = page_of(words)
    assert re.search(r"over 4 points: wins at \d, loses at \d", page)
    assert 'alt="Regime map of goodput per GPU, strict against plain' in page
    assert len([f for f in found if f.what == "goodput_per_gpu"]) == 4
    holed = verdicts_of(words[:-1])  # one point lacks a side
    assert [f.text for f in holed if f.verdict == UNKNOWN] == ["strict has no run here"]
    assert map_of(grid_of(read_runs(words[:-1], SLO), None), "strict", JUDGE, str(SLO)) is None


def test_seeds_give_an_interval(tmp_path: Path) -> None:
    words = [
        written(tmp_path, f"{name}-{seed}", side.with_(seed=seed, limit=60).run())
        for name, side in (("plain", PLAIN), ("strict", STRICT))
        for seed in (0, 1, 2)
    ]
    grid = grid_of(read_runs(words, SLO), None)
    assert not grid.axes and {
        len(runs) for side in grid.sides.values() for runs in side.values()
    } == {3}
    cell = cell_of(grid, "strict", (), JUDGE)
    assert cell is not None and cell.difference is not None
    assert None not in cell.difference and cell.difference.low < cell.difference.value


def test_what_cannot_be_reported_is_refused(two: list[str], tmp_path: Path) -> None:
    again = written(tmp_path, "plain-again", PLAIN.run())
    with pytest.raises(InputError, match="same requests"):
        page_of([two[0], again])
    with pytest.raises(InputError, match="side 'split'"):
        page_of(two, baseline="split")
    with pytest.raises(InputError, match=r"no file is called so"):
        read_runs([f"a={tmp_path}/*.parquet"], SLO)
    with pytest.raises(InputError, match="NAME=FILE"):
        read_runs(["a="], SLO)
    many = [
        written(
            tmp_path, f"m-{k}", PLAIN.with_(rate=r, prompt_tokens=p, kv_blocks=b, limit=20).run()
        )
        for k, (r, p, b) in enumerate([(1.0, 100, 4000), (2.0, 200, 5000)])
    ]
    with pytest.raises(InputError, match="3 settings vary"):
        page_of(many)


def prediction(run_hash: str, filed: str, said: dict[str, Said]) -> FiledPrediction:
    return FiledPrediction(filed, run_hash, {}, {}, str(SLO), said, why="short chunks wait")


def test_a_prediction_is_held_against_its_run(two: list[str], tmp_path: Path) -> None:
    run = read_runs(two[:1], SLO)[0]
    assert run.workload_hash
    p50 = run.row["ttft_p50"]
    said = {
        "ttft_p50": Said(p50 * 1.1, p50 * 0.9, p50 * 1.2, "person"),
        "attainment": Said(0.001, 0.0005, 0.002, "person"),
        "tpot_mean": Said(run.row["tpot_mean"], 0.0, 1.0, "simulator"),
    }
    path = tmp_path / "p.json"
    prediction(run.workload_hash, "2026-11-30T11:59:59+00:00", said).write(path)
    page, _ = page_of(two, predictions=(f"plain={path}",))
    part = between(page, "Prediction and calibration", "How this was measured")
    assert "within; 10 % too high" in part and "outside" in part
    assert "1 of 2 ranges held" in part  # the simulator on its own run is not counted
    assert "says nothing about a real server" in part and "short chunks wait" in part
    with pytest.raises(InputError, match="2 runs served its workload"):
        page_of(two, predictions=(str(path),))


@pytest.mark.parametrize(
    ("filed", "other", "why"),
    [
        ("2026-11-30T12:00:01+00:00", False, "after the run had begun"),
        ("2026-11-30T11:00:00+00:00", True, "is of workload"),
    ],
)
def test_a_prediction_that_is_none_is_refused(
    two: list[str], tmp_path: Path, filed: str, other: bool, why: str
) -> None:
    run = read_runs(two[:1], SLO)[0]
    assert run.workload_hash
    digest = "0" * 64 if other else run.workload_hash
    path = tmp_path / "p.json"
    prediction(digest, filed, {"ttft_p50": Said(1.0, None, None, "person")}).write(path)
    with pytest.raises(InputError, match=why):
        page_of(two[:1], predictions=(str(path),))


def test_without_a_date_in_the_log_the_file_s_own_counts(tmp_path: Path) -> None:
    log = PLAIN.with_(limit=30).run()
    word = written(tmp_path, "plain", log)
    os.utime(tmp_path / "plain.jsonl", (1000.0, 1000.0))
    run = read_runs([word], SLO)[0]
    assert not run.dated and run.began.year == 1970
    page, _ = page_of([word])
    assert "that of the file, which a copy changes" in page
    assert "One side only" in page


def test_every_setting_in_which_sides_differ_is_shown_in_order(tmp_path: Path) -> None:
    """A split whose prefill pool and link are not told could be any split."""
    words = []
    for rate in (4.0, 12.0, 24.0):
        for name, side in (
            ("plain", PLAIN.with_(instances=2)),
            ("split", PdExperiment.split(PLAIN)),
        ):
            log = side.with_(rate=rate, limit=20).run()
            words.append(written(tmp_path, f"{name}-{rate:g}", log))
    runs = read_runs(sorted(words), SLO)
    names, differ, _ = settings(runs)
    shown = {name: cells for name, *cells in differ}
    assert names == ["plain", "split"]
    assert shown["rate"] == ["4, 12, 24", "4, 12, 24"]
    assert shown["instances"] == ["2", "1"]
    assert shown["prefill instances"] == ["–", "1"] and shown["link"] == ["–", "infiniband-400"]
    rates = [float(row[2]) for row in workloads(runs)]
    assert rates == sorted(rates) and len(rates) == 3
