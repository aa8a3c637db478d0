"""Stand-ins: made-up requests with a public trace's published statistics, for work offline.

Nobody should take one for the trace: its ``source["kind"]`` is "stand-in", and only what it was
fitted to agrees (``traces.json``): rate, gaps, requests per minute, both lengths and, for block
ids, how much is shared, how long ago it was sent, and with it the LRU hit curve. Lengths are
independent of each other and of the time, which those of the real traces need not be.

One seed gives one workload on every platform and numpy: the random bits are raw PCG64 words, and
whatever a library could round differently is rounded to the trace's own steps before it adds up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minilab.facts.arrivals import whole
from minilab.facts.prefix_stats import block_prompts, chained_block
from minilab.facts.request_columns import from_columns
from minilab.facts.trace_fetch import entry
from minilab.facts.workload import Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 512
TICK = {"azure-csv": 10_000_000, "mooncake-jsonl": 1000}  # the file's time steps per second
BURSTS = {"azure-conv-2023": (2000, 0.15), "azure-code-2023": (20, 0.2)}
"""How gaps cluster: requests that share a pace, and its weight beside each gap's own luck. Fitted
to the requests per minute; the gaps' distribution (so rate and CV) does not depend on it."""

LONGER = 0.2
"""How far longer prompts repeat a larger share of themselves; fitted to the block hit rate."""


def generate(name: str, seed: int = 0) -> Workload:
    """The stand-in of a trace of the catalogue, as many requests as the trace has."""
    trace = entry(name)
    known = trace["statistics"]
    rng = _Bits(whole("seed", seed, 0))
    n: int = known["rows"]
    tick = TICK[trace["format"]]
    if "batch_s" in known:
        batches = known["distinct_timestamps"]
        at = np.floor(rng.uniform(0, n) * batches).astype(np.int64)
        time = np.sort(at - at.min()) * (known["batch_s"] * tick)
    else:
        gaps = _draw({**known["gap_s"], "mean": known["span_s"] / (n - 1)}, rng.uniform(0, n - 1))
        gaps = np.sort(gaps)[_paced_ranks(rng, n - 1, *BURSTS.get(name, (1, 0.0)))]
        time = np.concatenate(([0], np.cumsum(np.rint(gaps * tick).astype(np.int64))))
    arrival = (time / tick).tolist()
    prompt = np.rint(_draw(known["input"], rng.uniform(1, n))).astype(np.int64)
    output = np.rint(_draw(known["output"], rng.uniform(2, n))).astype(np.int64).tolist()
    texts = None
    if "reuse" in known:
        texts = block_prompts(prompt.tolist(), _block_ids(known["reuse"], rng, arrival, prompt))
    source = {
        "name": name,
        "kind": "stand-in",
        "origin": f"made up (seed {seed}) from the published statistics of {trace['url']}",
        "sha256": None,
    }
    requests = from_columns(arrival, prompt.tolist(), output, texts)
    return Workload(requests, None, seed, source, chained_block(texts or ()))


class _Bits:
    """Uniform numbers from raw PCG64 words, a stream for each purpose."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def uniform(self, purpose: int, n: int) -> Floats:
        """float64[n] in [0, 1)."""
        words = np.random.PCG64([self.seed, purpose]).random_raw(n)
        return np.asarray(words >> np.uint64(11), np.float64) * 2.0**-53


def _ranks(values: Floats | Ints) -> Ints:
    """The rank of each value, int64[n] (a permutation of 0..n-1)."""
    ranks = np.empty(len(values), np.int64)
    ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
    return ranks


def _draw(known: Mapping[str, float], luck: Floats) -> Floats:
    """Values with the published quantiles and mean, in the random order of ``luck``.

    Stratified: the k-th smallest of n is the quantile (k + 1/2) / n, so that even the tail does
    not depend on luck. From one published quantile to the next, values rise as a power of the
    position between the two; one exponent for all stretches is what the mean decides. Without a
    mean it is 1.
    """
    names = [name for name in known if name != "mean"]
    share = np.array(
        [0.0 if q == "min" else 1.0 if q == "max" else float(q[1:]) / 100 for q in names]
    )
    value = np.array([known[q] for q in names], np.float64)
    width, rise = np.diff(share), np.diff(value)
    power = 1.0
    if "mean" in known:  # sum of width * (low + rise / (power + 1))
        power = float((width * rise).sum() / (known["mean"] - (width * value[:-1]).sum())) - 1
    u = (_ranks(luck) + 0.5) / len(luck)
    k = np.searchsorted(share, u, side="right") - 1
    drawn: Floats = value[k] + rise[k] * ((u - share[k]) / width[k]) ** power
    return drawn


def _paced_ranks(rng: _Bits, n: int, together: int, weight: float) -> Ints:
    """The order in which n gaps come: neighbours share a pace (a moving mean), by ``weight``."""
    steps = np.concatenate(([0.0], np.cumsum(rng.uniform(3, n + together) - 0.5)))
    pace = (steps[together:] - steps[:-together])[:n] / together**0.5  # as wide as one step
    return _ranks(weight * pace + (1 - weight) * (rng.uniform(4, n) - 0.5))


def _block_ids(
    reuse: Mapping[str, Any], rng: _Bits, arrival: Sequence[float], prompt: Ints
) -> list[list[int]]:
    """Block ids for each prompt: many begin with blocks of one sent before, as in a conversation.

    How many prompts do, how long those are, which share of their blocks is old and how long ago
    it was sent last are the trace's. Which earlier prompt it is: of those sent at about that time
    one that is hardly longer than what it shares.
    """
    blocks = -(-prompt // BLOCK)
    again = _again(reuse, rng, blocks)
    longer = _ranks(blocks[again]) * (LONGER / len(again))
    luck: Floats = rng.uniform(7, len(again)) + longer
    share = dict(zip(again, _draw(reuse["hit_share"], luck), strict=True))
    lags = np.sort(_draw(reuse["lag_s"], rng.uniform(8, len(again)))).tolist()
    ago = _deal(lags, again, arrival, rng.uniform(9, len(again)).tolist())
    common = list(range(reuse["common_blocks"]))
    ids: list[list[int]] = []
    last: list[int] = [-1] * len(common)  # the row that sent a block last
    for row, size in enumerate(blocks.tolist()):
        front = common
        if row in ago:
            lead = min(max(round(share[row] * size), len(common) + 1), size)
            near = bisect_left(arrival, arrival[row] - ago[row], 0, row - 1)
            front = ids[_earlier(ids, last, lead, near)][:lead]
        fresh, own = len(last), size - len(front)
        for block in front:
            last[block] = row
        last += [row] * own
        ids.append([*front, *range(fresh, fresh + own)])
    return ids


def _deal(
    lags: list[float], rows: Sequence[int], arrival: Sequence[float], luck: Sequence[float]
) -> dict[int, float]:
    """A lag for each row, none beyond the start: the longest first, to any row late enough."""
    waiting = sorted(rows)
    late: list[int] = []
    dealt = {}
    for lag, pick in zip(reversed(lags), luck, strict=True):
        while waiting and (arrival[waiting[-1]] >= lag or not late):
            late.append(waiting.pop())
        k = int(pick * len(late))
        late[k], late[-1] = late[-1], late[k]
        dealt[late.pop()] = lag
    return dealt


def _again(reuse: Mapping[str, Any], rng: _Bits, blocks: Ints) -> list[int]:
    """Rows that repeat earlier blocks: as many as in the trace and, on average, as long."""
    n = len(blocks)
    luck, rank = rng.uniform(5, n), (_ranks(blocks + rng.uniform(6, n)) + 0.5) / n
    luck[blocks < 2 + reuse["common_blocks"]] = -1.0  # too short to share a part
    low, high = 0.0, 1.0
    for _ in range(30):
        weight = (low + high) / 2
        rows = np.argsort(weight * rank + (1 - weight) * luck, kind="stable")
        rows = rows[n - round(reuse["again_share"] * n) :]
        if blocks[rows].mean() < reuse["again_blocks_mean"]:
            low = weight
        else:
            high = weight
    return [row for row in rows.tolist() if row > 0]


def _earlier(ids: Sequence[list[int]], last: Sequence[int], least: int, near: int) -> int:
    """The row to share ``least`` blocks with: close to row ``near``, the last one to send them (so
    that the time since is true) and hardly longer than they are (else two branches share its
    front). Failing that the shortest of all, failing that the longest."""
    reach = 2
    while True:
        rows = range(max(0, near - reach), min(len(ids), near + reach + 1))
        fit = [k for k in rows if len(ids[k]) >= least and last[ids[k][least - 1]] == k]
        best = min(fit, key=lambda k: len(ids[k]), default=None)
        if best is not None and len(ids[best]) <= 1.1 * least + 2:
            return best
        if len(rows) == len(ids):
            return best if best is not None else max(rows, key=lambda k: len(ids[k]))
        reach *= 2
