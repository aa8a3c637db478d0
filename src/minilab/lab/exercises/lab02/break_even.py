"""Exercise 2.3: the prompt below which a split loses."""

from __future__ import annotations

import math

from minilab.lab.exercise import Case, Exercise, Misconception


def break_even(per_token: float, per_pair: float, sent: float, step: float) -> float:
    """Tokens at which a local prefill stalls others as long as a split stalls its own request.

    ``per_token L + per_pair L^2 / 2 = sent L + step``; inf if there is no such length.
    """
    slope = per_token - sent
    if per_pair == 0:
        return step / slope if slope > 0 else math.inf
    return (-slope + math.sqrt(slope * slope + 2 * per_pair * step)) / per_pair


def _linear(f: float, q: float, t: float, s: float) -> float:
    return s / (f - t) if f > t else math.inf


def _negative_root(f: float, q: float, t: float, s: float) -> float:
    if q == 0:
        return _linear(f, q, t, s)
    slope = f - t
    return (-slope - math.sqrt(slope * slope + 2 * q * s)) / q


BREAK_EVEN = Exercise(
    "2.3",
    "The prompt below which a split loses",
    break_even,
    cases=(
        Case((1.6e-5, 1e-9, 4.6e-6, 0.0075), name="an 8B model over InfiniBand"),
        Case((1.6e-5, 1e-9, 1.2e-5, 0.0075), name="over a slower wire"),
        Case((2e-5, 0.0, 5e-6, 0.006), name="attention left out"),
        Case((2e-5, 0.0, 1e-4, 0.006), name="a wire slower than computing"),
    ),
    misconceptions=(
        Misconception(
            "attention forgotten",
            _linear,
            "each token also looks at all tokens before it: that part grows with the square",
        ),
        Misconception(
            "pairs counted twice",
            lambda f, q, t, s: break_even(f, 2 * q, t, s),
            "L tokens make about half of L squared pairs, for nobody looks ahead",
        ),
        Misconception(
            "the wrong root",
            _negative_root,
            "this is the other root of the quadratic, and not a length",
        ),
        Misconception(
            "the waits forgotten",
            lambda f, q, t, s: 0.0 if f > t else break_even(f, q, t, 0.0),
            "a split request waits for steps to end, however short its prompt is",
        ),
        Misconception(
            "sending is free",
            lambda f, q, t, s: break_even(f, q, 0.0, s),
            "the tokens have to be sent, too: what counts is how much more computing costs",
        ),
        Misconception(
            "costs added",
            lambda f, q, t, s: break_even(f + t, q, 0.0, s),
            "sending is on the other side of the equation: it makes a split dearer",
        ),
    ),
    hints=(
        "Write both stalls as functions of L and set them equal.",
        "It is a quadratic in L; only one root is a length.",
        "Without the quadratic term it is a line; with the wrong slope it never gets there.",
    ),
    draw=lambda rng: Case(
        (
            rng.uniform(5e-6, 1e-4),
            rng.choice([0.0, rng.uniform(1e-10, 1e-8)]),
            rng.uniform(1e-6, 1e-4),
            rng.uniform(0.003, 0.03),
        )
    ),
    unit="tokens",
)
