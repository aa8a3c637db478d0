"""Exercise 2.4: the conditional rule."""

from __future__ import annotations

from minilab.lab.exercise import Case, Exercise, Misconception


def split_it(prompt: int, cached: int, queue: int, max_local: int, max_queue: int) -> bool:
    """Whether a prompt goes to the prefill pool.

    More than ``max_local`` tokens are left to compute, at most ``max_queue`` prompts wait there.
    """
    return prompt - cached > max_local and queue <= max_queue


def _draw_numbers(prompt: int, cached: int, queue: int) -> Case:
    return Case((prompt, cached, queue, 512, 2))


RULE = Exercise(
    "2.4",
    "The conditional rule",
    split_it,
    cases=(
        Case((4000, 0, 0, 512, 2), name="a long prompt, an idle pool"),
        Case((4000, 3600, 0, 512, 2), name="a long prompt, most of it cached"),
        Case((400, 0, 0, 512, 2), name="a short prompt"),
        Case((4000, 0, 3, 512, 2), name="a long prompt, a pool that is behind"),
        Case((4000, 0, 2, 512, 2), name="as many waiting as allowed"),
        Case((512, 0, 0, 512, 2), name="exactly the local limit"),
        Case((300, 0, 5, 512, 2), name="a short prompt, a pool that is behind"),
    ),
    misconceptions=(
        Misconception(
            "the cache ignored",
            lambda p, c, q, m, n: p > m and q <= n,
            "what the decode side has cached need be neither computed nor sent",
        ),
        Misconception(
            "the queue ignored",
            lambda p, c, q, m, n: p - c > m,
            "a prefill pool that is behind makes the first token late: then compute it here",
        ),
        Misconception(
            "either will do",
            lambda p, c, q, m, n: p - c > m or q <= n,
            "one reason to stay local is enough; to split, both conditions must hold",
        ),
        Misconception(
            "limits included the other way",
            lambda p, c, q, m, n: p - c >= m and q < n,
            "look at the limits themselves: a prompt of just that length stays, and so many may "
            "wait",
        ),
        Misconception(
            "upside down",
            lambda p, c, q, m, n: p - c <= m and q <= n,
            "the short prompts are sent away here; it is they who do not pay for a transfer",
        ),
        Misconception(
            "a long queue attracts",
            lambda p, c, q, m, n: p - c > m and q > n,
            "work is sent to the prefill pool only when it is behind",
        ),
    ),
    hints=(
        "How many tokens would really have to be computed?",
        "There are two reasons to stay local. To split, neither may apply.",
    ),
    draw=lambda rng: _draw_numbers(
        rng.choice([300, 512, 513, 900, 4000]), rng.choice([0, 0, 256, 400]), rng.randint(0, 5)
    ),
    draws=40,
)
