"""Exercise 6.D3: the query moved into the latent's space, so that the cache is read as it lies."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt

from minilab.lab.exercise import Case, Exercise, Misconception

Floats = npt.NDArray[np.float64]


def absorbed(query: Floats, key_up: Floats) -> Floats:
    """Each head's query in the latent's space: the transpose of the head's key matrix times it.

    A key of head h is ``key_up[h] @ latent``. So its score is query[h] . (key_up[h] @ latent) =
    (key_up[h]^T query[h]) . latent (DeepSeek-V2, section 2.1.2).

    Args:
        query: float [heads, dim], without the rotary part.
        key_up: float [heads, dim, latent].

    Returns:
        float [heads, latent].
    """
    moved: Floats = np.einsum("hd,hdl->hl", query, key_up)
    return moved


def _reshaped(query: Floats, key_up: Floats) -> Floats:
    heads, dim, latent = key_up.shape
    wrong: Floats = np.einsum("hd,hld->hl", query, np.reshape(key_up, (heads, latent, dim)))
    return wrong


def _first_head(query: Floats, key_up: Floats) -> Floats:
    wrong: Floats = np.einsum("hd,dl->hl", query, key_up[0])
    return wrong


def _draw(rng: random.Random) -> Case:
    heads, dim, latent = rng.randint(2, 3), rng.randint(2, 4), rng.randint(2, 5)
    dice = np.random.default_rng(rng.randrange(2**32))
    query = dice.integers(-4, 5, (heads, dim)).astype(float)
    return Case((query, dice.integers(-3, 4, (heads, dim, latent)).astype(float)))


ABSORB = Exercise(
    "6.D3",
    "Absorption: move the query, not the cache",
    absorbed,
    cases=(
        Case(
            (np.array([[1.0, 2.0]]), np.array([[[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]]])),
            name="one head of two numbers, a latent of three",
        ),
        Case(
            (
                np.array([[1.0, 2.0], [3.0, 1.0]]),
                np.array([[[1.0, 0.0], [2.0, 1.0]], [[0.0, 1.0], [1.0, 4.0]]]),
            ),
            name="two heads, a latent as long as a head",
        ),
        Case(
            (
                np.array([[2.0, 0.0, 1.0], [1.0, 1.0, 0.0]]),
                np.array(
                    [
                        [[1.0, 2.0], [0.0, 3.0], [1.0, 1.0]],
                        [[4.0, 0.0], [1.0, 2.0], [5.0, 5.0]],
                    ]
                ),
            ),
            name="two heads of three, a latent of two",
        ),
    ),
    misconceptions=(
        Misconception(
            "the query as it was",
            lambda query, key_up: query,
            "these are still the heads' own numbers; the cache holds latents, and a dot product "
            "needs both sides in one space",
        ),
        Misconception(
            "not transposed",
            _reshaped,
            "the matrix was left as it is, or reshaped, which keeps the order in memory; to "
            "transpose it is to sum over the head's dimension and keep the latent's",
        ),
        Misconception(
            "one matrix for all heads",
            _first_head,
            "each head has a key matrix of its own; this uses the first one for all",
        ),
        Misconception(
            "heads added up",
            lambda query, key_up: absorbed(query, key_up).sum(axis=0),
            "each head scores the latents by itself; the sum over heads comes after attention, in "
            "the output projection",
        ),
        Misconception(
            "scaled by the latent's length",
            lambda query, key_up: absorbed(query, key_up) / np.sqrt(np.shape(key_up)[2]),
            "the product was only moved, so the scores stay as they were; their scale still comes "
            "from the head's length, and the kernel applies it",
        ),
        Misconception(
            "scaled already",
            lambda query, key_up: absorbed(query, key_up) / np.sqrt(np.shape(key_up)[1]),
            "the kernel applies the scale to the scores; here it would be applied twice",
        ),
        Misconception(
            "keys without a query",
            lambda query, key_up: np.asarray(key_up).sum(axis=1),
            "the query does not enter; every request would read the cache alike",
        ),
    ),
    hints=(
        "Write the score of one head: q . (K c). Which factor can be taken to the other side?",
        "q . (K c) = (transpose of K times q) . c. The bracket is what you return, for each head.",
        "With numpy: sum over the head's dimension and keep the latent's, as in \"hd,hdl->hl\".",
    ),
    draw=_draw,
    core=False,
)
