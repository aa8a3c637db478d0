"""Exercise 5.D1: a number as an e4m3 code."""

from __future__ import annotations

import math
from collections.abc import Callable

from minilab.lab.exercise import Case, Exercise, Misconception

LARGEST = 448.0


def value_of(code: int) -> float:
    """The number of a positive code 0..126: subnormal below 8, else (1 + m / 8) 2^(e - 7)."""
    exponent, mantissa = code >> 3, code & 7
    if exponent == 0:
        return float(mantissa) * 2.0**-9
    return float(1 + mantissa / 8) * 2.0 ** (exponent - 7)


VALUES = [value_of(code) for code in range(127)]


def encode(value: float) -> int:
    """The nearest e4m3 code (0..255) of a finite number: ties to the even code, saturating."""
    sign = 0x80 if math.copysign(1.0, value) < 0 else 0
    size = min(abs(value), LARGEST)
    near = min(range(127), key=lambda code: (abs(VALUES[code] - size), code & 1))
    return sign | near


def _scan(pick: Callable[[float], int]) -> Callable[[float], int]:
    def wrong(value: float) -> int:
        return (0x80 if value < 0 else 0) | pick(abs(value))

    return wrong


def _cut(size: float) -> int:
    return max(code for code in range(127) if VALUES[code] <= size)


def _wrapped(size: float) -> int:
    return encode(size) if size <= LARGEST else 0x7F


def _no_subnormals(size: float) -> int:
    return encode(size) if size >= 2.0**-6 else 0


def _away(size: float) -> int:
    return min(range(127), key=lambda code: (abs(VALUES[code] - min(size, LARGEST)), -code))


def _bias_of_fp16(size: float) -> int:
    return encode(size / 256)


CODEC = Exercise(
    "5.D1",
    "The e4m3 codec",
    encode,
    cases=(
        Case((1.0,), name="one"),
        Case((-0.3,), name="a negative number between two codes"),
        Case((1000.0,), name="more than the format holds"),
        Case((0.003,), name="a subnormal"),
        Case((17.0,), name="a tie"),
        Case((0.0,), name="zero"),
    ),
    misconceptions=(
        Misconception(
            "cut off", _scan(_cut), "this takes the next smaller number instead of the nearest"
        ),
        Misconception(
            "too large becomes NaN",
            _scan(_wrapped),
            "e4m3 has no infinity; one NaN in the cache spoils every later token: saturate",
        ),
        Misconception(
            "no subnormals",
            _scan(_no_subnormals),
            "below 2^-6 the exponent stays and the leading 1 is gone: multiples of 2^-9",
        ),
        Misconception(
            "ties away from zero",
            _scan(_away),
            "ties go to the even code; rounding them all up shifts the mean of a cache",
        ),
        Misconception(
            "the bias of fp16",
            _scan(_bias_of_fp16),
            "the exponent's bias is 7, fp16's is 15: this is smaller by a factor of 256",
        ),
        Misconception(
            "sign lost", lambda value: encode(abs(value)), "the top bit is the sign: it is missing"
        ),
    ),
    hints=(
        "Sign, 4 exponent bits with a bias of 7, 3 mantissa bits; the last code of all is NaN.",
        "Only 127 positive codes exist: one may look at them all.",
        "Of two codes equally near, the even one.",
    ),
    draw=lambda rng: Case((round(rng.choice([-1, 1]) * 10 ** rng.uniform(-3.2, 3), 6),)),
    core=False,
)
