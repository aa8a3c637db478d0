"""Gaps as runs must answer like the gaps written out one by one.

The oracle walks every step of every span in plain Python, straight from the definition, and hands
the list to numpy. What these tests exist for: a pause, a resume, an opening gap or a speculative
zero that is lost or counted twice; an off-by-one in the bisection; ties; chunks that cut a request.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minilab.facts import gap_steps
from minilab.facts.errors import InputError
from minilab.facts.gaps import RUN_COLUMNS, SPAN_COLUMNS, GapLists, GapRuns
from minilab.facts.ticks import TICKS_PER_SECOND

QS = (0.0, 0.01, 0.25, 0.5, 0.77, 0.9, 0.99, 1.0)


def columns(names: tuple[str, ...], rows: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
    table = np.array(rows, dtype=np.int64).reshape(len(rows), len(names))
    return {name: table[:, i].copy() for i, name in enumerate(names)}


def run_end(row: tuple[int, ...]) -> int:
    start, first, slope, n = row[:4]
    return start + sum(first + slope * j for j in range(n))


def written_out(runs: list[tuple], spans: list[tuple], requests: int) -> list[list[int]]:
    """The definition, token by token: a gap is the time since the request's previous token."""
    gaps: list[list[int]] = [[] for _ in range(requests)]
    previous: dict[int, int] = {}
    for request, token_time, run_from, run_to, zeros in spans:
        if request in previous and token_time != previous[request]:
            gaps[request].append(token_time - previous[request])
        token = token_time
        for start, first, slope, n, batch, *_ in runs[run_from:run_to]:
            clock = start
            for j in range(n if batch else 0):
                clock += first + slope * j
                gaps[request].append(clock - token)
                token = clock
        gaps[request] += [0] * zeros
        previous[request] = token
    return gaps


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[tuple], list[tuple], int]:
    """Runs on 1-3 instances with pauses, prefill-only runs and slopes of either sign; spans on them
    of requests that may be preempted, move to another instance, or have no step at all."""
    small = draw(st.booleans())  # small numbers make ties, large ones need exact integers
    length = st.integers(1, 6) if small else st.integers(1, 2**45)
    runs: list[tuple] = []
    bounds = []
    for instance in range(draw(st.integers(1, 3))):
        begin, clock = len(runs), draw(st.integers(0, 50))
        for _ in range(draw(st.integers(0, 6))):
            clock += draw(st.one_of(st.just(0), length))
            n, first = draw(st.integers(1, 9)), draw(length)
            slope = draw(st.integers(-((first - 1) // n), 4 if small else 2**30))
            runs.append((clock, first, slope, n, draw(st.integers(0, 1)), instance, 0, 0))
            clock = run_end(runs[-1])
        bounds.append((begin, len(runs)))
    spans: list[tuple] = []
    requests = draw(st.integers(1, 5))
    for request in range(requests):
        now = 0
        for _ in range(draw(st.integers(0, 3))):
            begin, end = draw(st.sampled_from(bounds))
            run_from = draw(st.integers(begin, end))
            later = [r for r in range(run_from, end) if runs[r][0] >= now]
            run_from = later[0] if later else end
            run_to = draw(st.integers(run_from, end))
            decodes = [r for r in range(run_from, run_to) if runs[r][4]]
            latest = runs[decodes[0]][0] if decodes else now + draw(length)
            token_time = draw(st.integers(now, latest))
            spans.append((request, token_time, run_from, run_to, draw(st.integers(0, 2))))
            now = run_end(runs[decodes[-1]]) if decodes else token_time
    return runs, spans, requests


def both(log: tuple[list[tuple], list[tuple], int]) -> tuple[GapRuns, list[list[int]]]:
    runs, spans, requests = log
    gaps = GapRuns(columns(RUN_COLUMNS, runs), columns(SPAN_COLUMNS, spans), requests)
    return gaps, written_out(runs, spans, requests)


def close(got: np.ndarray, want: np.ndarray) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12, equal_nan=True)


@settings(max_examples=400, deadline=None)
@given(logs(), st.sampled_from([1, 7, gap_steps.CHUNK]))
def test_runs_answer_like_the_steps_written_out(log, chunk: int) -> None:
    gaps, want = both(log)
    seconds = [np.array(row, dtype=np.int64) / TICKS_PER_SECOND for row in want]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gap_steps, "CHUNK", chunk)
        np.testing.assert_array_equal(gaps.counts(), [len(row) for row in want])
        for q in QS:
            close(
                gaps.per_request_quantile(q),
                np.array([np.quantile(row, q) if row.size else np.nan for row in seconds]),
            )
        close(
            gaps.per_request_max(),
            np.array([row.max() if row.size else np.nan for row in seconds]),
        )
        lists = gaps.to_lists()
    for r, row in enumerate(seconds):
        np.testing.assert_array_equal(np.sort(lists.row(r)), np.sort(row))
    pooled = np.concatenate(seconds)
    if pooled.size:
        close(gaps.pooled_quantiles(QS), np.quantile(pooled, QS))
        assert gaps.pooled_mean() == pytest.approx(pooled.mean(), rel=1e-12, abs=1e-12)
    else:
        assert np.isnan(gaps.pooled_quantiles(QS)).all() and np.isnan(gaps.pooled_mean())


@settings(max_examples=100, deadline=None)
@given(logs(), st.data())
def test_selecting_requests_keeps_their_gaps_and_no_others(log, data) -> None:
    gaps, want = both(log)
    flags = st.lists(st.booleans(), min_size=log[2], max_size=log[2])
    mask = np.array(data.draw(flags), dtype=bool)
    kept = [row for row, keep in zip(want, mask, strict=True) if keep]
    for chosen in (gaps.select(mask), gaps.to_lists().select(mask)):
        np.testing.assert_array_equal(chosen.counts(), [len(row) for row in kept])
        for r, row in enumerate(kept):
            ticks = np.sort(chosen.to_lists().row(r) * TICKS_PER_SECOND)
            np.testing.assert_allclose(ticks, np.sort(row), rtol=1e-15)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.floats(0, 1e3), max_size=30), max_size=6), st.sampled_from(QS))
def test_lists_agree_with_numpy_row_by_row(rows: list[list[float]], q: float) -> None:
    gaps = GapLists.of(rows)
    close(
        gaps.per_request_quantile(q),
        np.array([np.quantile(row, q) if row else np.nan for row in rows]),
    )
    close(gaps.per_request_max(), np.array([max(row, default=np.nan) for row in rows]))


def test_every_kind_of_gap_in_one_request() -> None:
    # By hand: token at 90; steps end 110, 120, 130 (gaps 20, 10, 10); a prefill-only run; a run
    # that starts at 170 ends at 175, 182 (gaps 45, 7); preempted, next token at 300 (gap 118);
    # two speculative zeros.
    runs = [
        (100, 10, 0, 3, 4, 0, 0, 0),
        (130, 40, 0, 1, 0, 0, 0, 0),
        (170, 5, 2, 2, 4, 0, 0, 0),
    ]
    spans = [(0, 90, 0, 3, 2), (0, 300, 3, 3, 0)]
    gaps, _ = both((runs, spans, 1))
    ticks = gaps.to_lists().row(0) * TICKS_PER_SECOND
    assert ticks.tolist() == [20, 10, 10, 45, 7, 0, 0, 118]
    assert gaps.counts().tolist() == [8]


def test_gaps_past_the_53_bits_of_a_double_keep_their_order() -> None:
    # 600 s in ticks needs 54 bits: a bisection in floats would not end, or would skip a tick.
    base = 600 * TICKS_PER_SECOND
    runs = [(0, base, 1, 5, 1, 0, 0, 0)]
    gaps, want = both((runs, [(0, 0, 0, 1, 0)], 1))
    assert want == [[base, base + 1, base + 2, base + 3, base + 4]]
    assert gaps.pooled_quantiles([0.5])[0] == (base + 2) / TICKS_PER_SECOND


def test_a_mean_whose_sum_passes_63_bits() -> None:
    # 200 requests share 3,000 s of decoding: 6e5 s of gaps in all, more than int64 ticks hold.
    step = 3 * TICKS_PER_SECOND
    spans = [(r, 0, 0, 1, 0) for r in range(200)]
    gaps, _ = both(([(0, step, 0, 1000, 200, 0, 0, 0)], spans, 200))
    assert gaps.pooled_mean() == pytest.approx(3.0, rel=1e-15)


def test_a_log_without_spans_has_no_gaps() -> None:
    gaps, _ = both(([], [], 3))
    assert gaps.counts().tolist() == [0, 0, 0]
    assert (
        np.isnan(gaps.per_request_quantile(0.99)).all() and np.isnan(gaps.per_request_max()).all()
    )
    assert gaps.to_lists().values.size == 0


@pytest.mark.parametrize("q", [-0.1, 99.0, float("nan")])
def test_a_percentage_given_as_a_quantile_is_refused(q: float) -> None:
    gaps, _ = both(([(0, 5, 0, 2, 1, 0, 0, 0)], [(0, 0, 0, 1, 0)], 1))
    for source in (gaps, gaps.to_lists()):
        with pytest.raises(InputError, match=r"between 0 and 1; .* say 0\.99"):
            source.per_request_quantile(q)
        with pytest.raises(InputError):
            source.pooled_quantiles([q])
