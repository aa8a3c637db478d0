"""``minilab predict``, ``sim``, ``report``: the way of a capstone, from the command line."""

from __future__ import annotations

import json

WORK = ("--trace", "synthetic", "--limit", 60, "--rate", 4, "--prompt-tokens", 2000)
SLO = ("--slo", "ttft=0.3,itl=0.05")


def test_predict_run_report(cli, tmp_path):
    p, run, page = (tmp_path / name for name in ("p.json", "run.jsonl", "r.html"))
    assert cli("predict", *WORK, *SLO, "--expect", "ttft_p99=0.05..0.5", "-o", p).status == 0
    assert cli("sim", *WORK, "--out", run).status == 0
    called = cli("report", f"plain={run}", *SLO, "--prediction", p, "-o", page)
    assert called.status == 0 and "0 say loses" in called.out
    assert "Filed" in page.read_text() and "1 of 1 ranges held" in page.read_text()
    assert json.loads(p.read_text())["said"]["ttft_p99"]["by"] == "person"


def test_a_prediction_after_the_run_is_refused(cli, refused, tmp_path):
    p, run = tmp_path / "p.json", tmp_path / "run.jsonl"
    cli("sim", *WORK, "--out", run)
    head, *rest = run.read_text().split("\n", 1)
    assert '"started"' in head
    early = head.replace(json.loads(head)["meta"]["started"], "2020-01-01T00:00:00+00:00")
    run.write_text("\n".join([early, *rest]))
    cli("predict", *WORK, *SLO, "-o", p)
    said = refused("report", run, *SLO, "--prediction", p, "-o", tmp_path / "r.html")
    assert "after the run had begun" in said
    assert not (tmp_path / "r.html").exists()


def test_bad_words_are_refused_in_one_line(refused, cli, tmp_path):
    run = tmp_path / "run.jsonl"
    cli("sim", *WORK, "--out", run)
    assert "html" in refused("report", run, *SLO, "-o", tmp_path / "r.pdf")
    assert "--words" in refused(
        "report", run, *SLO, "--words", tmp_path / "none", "-o", tmp_path / "r.html"
    )
    assert "--margin" in refused("report", run, *SLO, "--margin", 2, "-o", tmp_path / "r.html")
    assert "--by" in refused("predict", *WORK, *SLO, "--by", "me", "-o", tmp_path / "p.json")
    assert "nothing is predicted" in refused(
        "predict", *WORK, *SLO, "--by", "nobody", "-o", tmp_path / "p.json"
    )
    assert "--sure" in refused("predict", *WORK, *SLO, "--sure", 80, "-o", tmp_path / "p.json")
