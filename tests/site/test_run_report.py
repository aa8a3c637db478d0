"""``minilab report`` in a real browser: nothing foreign is asked for, and axe finds nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minilab.facts import runlog_io
from minilab.facts.slo import SLOSet
from minilab.lab.run_report import Wanted, read_runs, report_page
from minilab.sim.experiment import Experiment
from minilab.sim.workload_spec import WorkloadSpec
from site_browser import THEMES, Visit
from site_server import serve

SLO = SLOSet.parse("ttft=0.3,itl=0.05")


def test_a_report_of_two_runs_opens_clean(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("axe_playwright_python", reason="needs axe-playwright-python")
    spec = WorkloadSpec(trace="synthetic", limit=120, rate=6.0, prompt_tokens=3000, jitter=0.9)
    for name, budget in (("plain", 8192), ("small", 512)):
        log = Experiment(workload=spec, max_num_batched_tokens=budget).run()
        runlog_io.write(log, tmp_path / f"{name}.jsonl")
    runs = read_runs([str(tmp_path / "plain.jsonl"), str(tmp_path / "small.jsonl")], SLO)
    page, _ = report_page(runs, Wanted(SLO))
    (tmp_path / "r.html").write_text(page, encoding="utf-8")
    with serve(tmp_path, "/") as address:
        for theme in THEMES:
            for options in ({}, {"viewport": {"width": 390, "height": 844}}):
                visit = Visit(browser, address, theme, **options)
                assert visit.check("r.html") + visit.axe("r.html") == []
                assert visit.page.get_by_text("loses by").first.is_visible()
                wide = "document.documentElement.scrollWidth <= innerWidth"
                assert visit.page.evaluate(wide), "the page itself scrolls sideways"
                visit.close()
