"""Exercise 3b.2: how many blocks to fetch."""

from __future__ import annotations

from minilab.lab.exercise import Case, Exercise, Misconception


def blocks_to_load(
    blocks: int, block_bytes: float, bandwidth: float, latency: float, compute_seconds: float
) -> int:
    """All ``blocks`` if fetching them is faster than computing them, else none."""
    fetch = latency + blocks * block_bytes / bandwidth
    return blocks if fetch < blocks * compute_seconds else 0


MIB = float(1 << 20)

LOAD = Exercise(
    "3b.2",
    "Fetch or compute",
    blocks_to_load,
    cases=(
        Case((100, 2 * MIB, 25e9, 1e-4, 4e-4), name="a fast tier"),
        Case((100, 2 * MIB, 2e9, 1e-4, 4e-4), name="a slow disk"),
        Case((2, 2 * MIB, 25e9, 5e-3, 4e-4), name="few blocks, a long latency"),
        Case((4, 1000.0, 1e6, 0.0, 1e-3), name="a tie"),
    ),
    misconceptions=(
        Misconception(
            "no latency",
            lambda n, size, bw, lat, sec: n if n * size / bw < n * sec else 0,
            "the latency is missing: for a few blocks it is the whole cost",
        ),
        Misconception(
            "latency per block",
            lambda n, size, bw, lat, sec: n if n * (lat + size / bw) < n * sec else 0,
            "the latency was paid for every block; one load asks once",
        ),
        Misconception(
            "bits",
            lambda n, size, bw, lat, sec: n if lat + 8 * n * size / bw < n * sec else 0,
            "bandwidths here are bytes per second, not bits",
        ),
        Misconception(
            "tie",
            lambda n, size, bw, lat, sec: n if lat + n * size / bw <= n * sec else 0,
            "at a tie nothing is won, and the load holds blocks and a channel: compute",
        ),
        Misconception(
            "always",
            lambda n, size, bw, lat, sec: n,
            "a hit is no reason by itself: compare it with computing",
        ),
        Misconception(
            "flipped",
            lambda n, size, bw, lat, sec: n if lat + n * size / bw > n * sec else 0,
            "this fetches exactly when computing is faster",
        ),
    ),
    hints=(
        "Two times: one to fetch all of them, one to compute all of them.",
        "Latency once, then bytes over bandwidth.",
    ),
    draw=lambda rng: Case(
        (
            rng.choice([1, 3, 20, 200]),
            rng.choice([0.5, 2.0, 8.0]) * MIB,
            rng.choice([1e9, 5e9, 25e9, 50e9]),
            rng.choice([2e-5, 2e-4, 5e-3]),
            rng.choice([1e-4, 3e-4, 2e-3]),
        )
    ),
    unit="blocks",
)
