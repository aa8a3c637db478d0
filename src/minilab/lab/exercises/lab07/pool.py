"""Exercise 7.3: the request rate that fills the KV pool."""

from __future__ import annotations

from minilab.lab.exercise import Case, Exercise, Misconception


def filling_rate(
    room: int, prompt: int, output: int, step_seconds: float, prompt_seconds: float
) -> float:
    """Requests/s at which the tokens in flight equal ``room``, by Little's law.

    step_seconds: a decode step when the pool is full. In steady state n sequences are in flight;
    of each second, rate x prompt_seconds belongs to prompts, and decode steps get the rest:
    n = rate (output - 1) step / (1 - rate prompt_seconds).
    """
    flying = room / (prompt + output / 2)
    return flying / ((output - 1) * step_seconds + flying * prompt_seconds)


def _rate(flying: float, steps: float, step: float, prompts: float) -> float:
    return flying / (steps * step + prompts)


POOL = Exercise(
    "7.3",
    "From compute to KV capacity",
    filling_rate,
    cases=(
        Case((455280, 3000, 1000, 0.0288, 0.0412), name="an 8B model on one H100"),
        Case((455280, 500, 8000, 0.0257, 0.0066), name="a long answer"),
        Case((60000, 12000, 200, 0.009, 0.19), name="a small pool, long prompts"),
    ),
    misconceptions=(
        Misconception(
            "context at its end",
            lambda r, p, o, d, s: _rate(r / (p + o), o - 1, d, r / (p + o) * s),
            "a sequence holds its whole answer only at its end; on average half of it",
        ),
        Misconception(
            "answer forgotten",
            lambda r, p, o, d, s: _rate(r / p, o - 1, d, r / p * s),
            "generated tokens are kept in the pool too",
        ),
        Misconception(
            "prompts take no time",
            lambda r, p, o, d, s: _rate(r / (p + o / 2), o - 1, d, 0.0),
            "while a prompt is computed nobody else's step goes on: all in flight wait for it",
        ),
        Misconception(
            "a step for the first token",
            lambda r, p, o, d, s: _rate(r / (p + o / 2), o, d, r / (p + o / 2) * s),
            "the prompt's own step gives the first token: an answer takes one decode step less",
        ),
        Misconception(
            "prompts take no time, and a step for the first token",
            lambda r, p, o, d, s: _rate(r / (p + o / 2), o, d, 0.0),
            "while a prompt is computed nobody else's step goes on: all in flight wait for it",
        ),
        Misconception(
            "own prompt only",
            lambda r, p, o, d, s: _rate(r / (p + o / 2), o - 1, d, s),
            "a sequence waits for every prompt that joins while it is in flight, not for its own",
        ),
        Misconception(
            "tokens for sequences",
            lambda r, p, o, d, s: _rate(r, o - 1, d, r * s),
            "Little's law counts sequences; the pool counts tokens: divide by those of a sequence",
        ),
    ),
    hints=(
        "How many sequences fit, if each holds its prompt and half of its answer?",
        "Little: sequences in flight = rate x time in flight.",
        "The time in flight is output - 1 steps, stretched by 1 / (1 - rate x prompt_seconds). "
        "Solve for the rate.",
    ),
    draw=lambda rng: Case(
        (
            rng.choice([40000, 200000, 455280, 900000]),
            rng.choice([300, 2000, 8000]),
            rng.choice([50, 400, 3000]),
            rng.uniform(0.007, 0.05),
            rng.uniform(0.004, 0.2),
        )
    ),
    unit="1/s",
)
