"""Plots: the text says what the picture shows, the picture shows what the log says.

Failures these tests exist for: an alternative text without numbers or with wrong ones, a failed
request that drops out of a curve, symbols that only a colour tells apart, a figure that leaks into
the notebook or changes the reader's settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from minilab.facts.errors import InputError
from minilab.facts.gaps import GapLists
from minilab.facts.metrics import METRICS
from minilab.facts.rate_search import RateResult
from minilab.facts.runlog import RunLog, blank_requests
from minilab.facts.slo import attainment, by_prompt_length
from minilab.lab import plots
from minilab.lab.experiment import Experiment
from minilab.lab.plots_base import NAMES, digits, percent, seconds
from minilab.lab.plots_timeline import Windows
from minilab.lab.show import draw

COST = '{"w": 0.006, "f": 1e-4, "k": 1e-7, "s": 1e-5}'
LONG = Experiment(cost=COST, kv_blocks=3000, max_num_seqs=64).with_(
    trace="synthetic", limit=150, prompt_tokens=900, output_tokens=60, jitter=0.9, rate=9.0
)


@pytest.fixture(scope="module")
def log() -> RunLog:
    return LONG.run()


def broken(log: RunLog) -> RunLog:
    """The same run, but the last 30 requests failed before their first token."""
    requests = {name: column.copy() for name, column in log.requests.items()}
    requests["status"][-30:] = "failed"
    requests["first_token"][-30:] = requests["finish"][-30:] = np.nan
    assert log.gaps is not None
    lists = log.gaps.to_lists()
    last = lists.offsets[-31]
    offsets = np.minimum(lists.offsets, last)
    return RunLog(requests, GapLists(lists.values[:last], offsets), log.series, log.meta)


def point(rate: float, share: float) -> dict[str, Any]:
    """One of ``load_curve``'s, from a server that finishes 97 % of what is offered."""
    found = {
        "attainment": share,
        "goodput_per_gpu": rate * share,
        "throughput_per_gpu": rate * 0.97,
    }
    bounds = {f"{name}_{end}": None for name in found for end in ("low", "high")}
    return {"rate": 2 * rate, "rate_per_gpu": rate, "data": "synthetic", **found, **bounds}


CURVE = [point(1.0, 1.0), point(4.0, 0.97), point(8.0, 0.31)]
KNEE = RateResult("found", "", 5.25, 4.9, 4.75, 5.5, {}, 0.9, 2, (), ())


PLOTS: dict[str, Callable[[RunLog], tuple[Figure, str]]] = {
    "length": lambda log: plots.plot_latency_by_prompt_length(log, slos="ttft=0.3,itl=0.05"),
    "cdf": lambda log: plots.plot_cdf({"one": log, "two": log}, 0.3),
    "gaps": lambda log: plots.plot_gaps(log, 0.05),
    "timeline": plots.plot_timeline,
    "gantt": plots.plot_gantt,
    "curve": lambda log: plots.plot_load_curve(CURVE, KNEE),
}


@pytest.mark.parametrize("name", PLOTS)
def test_each_plot_has_a_text_of_sentences_with_numbers_and_words_with_units(
    name: str, log: RunLog
) -> None:
    before = dict(matplotlib.rcParams)
    fig, alt = PLOTS[name](log)
    assert draw(fig, alt).alt == alt, "lab.show takes it as it is"
    told = re.split(r"(?<=\.) (?=[A-Z])", alt)
    assert len(told) >= 2 and all(t.endswith(".") and t[0].isupper() for t in told)
    assert len(re.findall(r"\d", alt)) >= 5 and "nan" not in alt and "None" not in alt
    for ax in fig.axes:
        assert ax.get_ylabel()
    assert all(ax.get_xlabel() for ax in fig.axes[-1:])
    assert dict(matplotlib.rcParams) == before and plt.get_fignums() == []


def test_every_metric_has_plain_words() -> None:
    assert NAMES.keys() == METRICS.keys()


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.0631, "63 ms"), (0.9996, "1 s"), (1.26, "1.3 s"), (340.2, "340 s"), (0.00042, "0.42 ms"),
     (None, "unavailable"), (float("nan"), "unavailable")],
)  # fmt: skip
def test_times_are_told_with_their_unit(value: float | None, told: str) -> None:
    assert seconds(value) == told


def test_nearly_all_is_not_all_and_a_little_is_not_nothing() -> None:
    shares = [0, 0.0004, 0.5, 0.994, 0.9996, 0.99999, 1]
    assert [percent(s) for s in shares] == [
        *("0 %", "0.04 %", "50 %", "99 %", "99.9 %", "99.9 %", "100 %")
    ]
    assert percent(None) == "unavailable" and digits(1234.5) == "1234" and digits(0.0) == "0"


# --- one run -------------------------------------------------------------------------------------


def test_latency_by_length_draws_and_tells_the_buckets(log: RunLog) -> None:
    fig, alt = plots.plot_latency_by_prompt_length(log, (500, 1000), slos="ttft=0.3,itl=0.05")
    rows = by_prompt_length(log, (500, 1000), "ttft=0.3,itl=0.05")
    for ax, name in zip(fig.axes, ("ttft", "itl"), strict=True):
        for line, part in zip(ax.lines, ("p50", "p90", "p99"), strict=False):
            assert list(line.get_ydata()) == [row[name][part] for row in rows]
        assert f"p99 {seconds(rows[0][name]['p99'])} for prompts of 0–499 tokens" in alt
        assert f"p99 {seconds(rows[2][name]['p99'])} for prompts of 1,000 up tokens" in alt
    assert f"{percent(rows[1]['attainment'])} of 500–999" in alt


def test_a_failed_request_stays_in_the_denominator(log: RunLog) -> None:
    run = broken(log)
    fig, alt = plots.plot_cdf(run, 0.3)
    assert fig.axes[0].lines[0].get_ydata()[-1] == 80.0
    share = attainment(run, "ttft=0.3")
    assert share is not None and 0 < share < 0.8
    assert f"{percent(share)} of 150 are within the limit of 300 ms; 30 never got there" in alt


def test_gaps_are_all_there_and_stalls_are_counted_by_request(log: RunLog) -> None:
    limit = 0.05
    fig, alt = plots.plot_gaps(log, limit)
    assert log.gaps is not None
    gaps, stalls = log.gaps.to_lists().values, log.gaps.per_request_max()
    drawn = [sum(patch.get_height() for patch in ax.patches) for ax in fig.axes]
    assert drawn == [gaps.size, np.count_nonzero(~np.isnan(stalls))]
    over, hit = (gaps > limit).mean(), (stalls > limit).mean()
    assert 0 < over < 0.2 < hit < 1, "few gaps, many requests: the lesson"
    assert f"{percent(over)} of the gaps are above 50 ms, and they hit {percent(hit)}" in alt


def test_the_timeline_conserves_waiting_and_busy_time(log: RunLog) -> None:
    found = Windows.of(log, 37)
    width = np.diff(found.edges)
    assert (found.waiting * width).sum() == pytest.approx(log.requests["queue"].sum())
    runs = log.gaps.runs  # type: ignore[union-attr]
    steps = runs["n"] * runs["first"] + runs["slope"] * (runs["n"] * (runs["n"] - 1) // 2)
    assert found.busy is not None and found.kv is not None
    assert (found.busy * width).sum() == pytest.approx(steps.sum() / 2**44)
    assert found.busy.max() <= 1 + 1e-9 and 0 < found.kv.max() <= log.meta["kv_peak_usage"]


def test_the_busy_share_of_two_servers_is_their_mean() -> None:
    one, two = (Windows.of(LONG.with_(rate=1.0, instances=n).run(), 20).busy for n in (1, 2))
    assert one is not None and two is not None and 0.1 < one.mean() < 0.9
    assert two.mean() == pytest.approx(one.mean() / 2, rel=0.2)


def test_the_timeline_says_when_the_queue_alarms_and_how_busy_it_was_before() -> None:
    run = LONG.with_(rate=4.0, arrivals="gamma", cv=3.0, seed=3).run()
    _, alt = plots.plot_timeline(run, 50, queue_alarm=0.5)
    found = Windows.of(run, 50)
    first = int(np.flatnonzero(found.queue > 0.5)[0])
    assert first > 2 and found.busy is not None and found.busy[:first].mean() < 0.9
    at = seconds(float(found.edges[first] + found.edges[first + 1]) / 2)
    assert f"passes 500 ms first around {at}" in alt
    assert f"and {percent(float(found.busy[:first].mean()))} on average before" in alt


def test_a_clients_log_tells_what_it_lacks(log: RunLog) -> None:
    run = broken(log)
    _, alt = plots.plot_timeline(RunLog(run.requests, run.gaps, None, {}))
    assert "Busy share was not recorded." in alt and "KV use was not recorded." in alt


def test_bars_end_where_their_requests_end(log: RunLog) -> None:
    ids = [3, 40, 41]
    fig, alt = plots.plot_gantt(log, ids)
    ends: dict[float, float] = {}
    for bar in fig.axes[0].patches:
        ends[bar.get_y()] = max(ends.get(bar.get_y(), 0.0), bar.get_x() + bar.get_width())
    arrival, finish = log.requests["arrival"][ids], log.requests["finish"][ids]
    assert list(ends.values()) == pytest.approx(finish - arrival.min())
    assert [t.get_text() for t in fig.axes[0].get_yticklabels()] == ["3", "40", "41"]
    longest = float(np.max(log.requests["queue"][ids]))
    assert f"waits longest, {seconds(longest)} in the queue" in alt


def test_logs_that_cannot_be_drawn_are_told_why(log: RunLog) -> None:
    empty = RunLog(blank_requests(0), GapLists.of([]))
    for refused, told in (
        (lambda: plots.plot_latency_by_prompt_length(empty), "no requests"),
        (lambda: plots.plot_cdf({"mine": empty}, 1.0), "run 'mine' has no requests"),
        (lambda: plots.plot_cdf(RunLog(log.requests), name="itl"), "no itl: it was not recorded"),
        (lambda: plots.plot_gaps(RunLog(log.requests)), "recorded no gaps"),
        (lambda: plots.plot_timeline(empty), "no times of scheduling"),
        (lambda: plots.plot_gantt(log, [9999]), "none of these requests"),
        (lambda: plots.plot_load_curve([]), "none of 0 points"),
    ):
        with pytest.raises(InputError, match=told):
            refused()


def test_a_stand_in_is_called_one() -> None:
    """Without the trace its stand-in runs, and nobody should take the picture for the trace's."""
    run = LONG.with_(trace="azure-conv-2023", limit=40, rate=None).run()
    run.meta["data"] = {**run.meta["data"], "kind": "stand-in"}
    for plot in (plots.plot_latency_by_prompt_length, plots.plot_timeline, plots.plot_gantt):
        assert plot(run)[1].endswith("The requests are a stand-in, not the trace.")
    assert "stand-in" not in plots.plot_gantt(LONG.run())[1]


# --- the load curve ------------------------------------------------------------------------------


def test_the_load_curve_tells_peak_fall_and_knee() -> None:
    fig, alt = plots.plot_load_curve(CURVE, KNEE)
    assert "Goodput is highest at a rate of 4, where 3.88 requests/s per GPU are good." in alt
    assert "At the highest rate it is 2.48, although 7.76 requests/s per GPU are finished." in alt
    assert "Attainment goes from 100 % to 31 %." in alt
    assert (
        "90 % good requests (the knee) is 5.25 requests/s per GPU (95 % interval 4.75 to 5.5)"
        in alt
    )
    goodput = next(line for line in fig.axes[0].lines if line.get_label() == "good (goodput)")
    assert list(goodput.get_ydata()) == pytest.approx([1.0, 3.88, 2.48])
    assert any(list(line.get_xdata()) == [5.25, 5.25] for line in fig.axes[1].lines)


def test_a_knee_out_of_reach_is_not_told_as_one() -> None:
    beyond = RateResult("at least", "", 8.0, 7.0, None, None, {}, 0.9, 1, (), ())
    assert "so the knee lies above it" in plots.plot_load_curve(CURVE, beyond)[1]
    never = RateResult(
        "never met", "attainment is below 0.9", 0.0, 0, None, None, {}, 0.9, 1, (), ()
    )
    assert "90 % good requests are never reached" in plots.plot_load_curve(CURVE, never)[1]
