"""The lab's step of MLA decode: the real kernel, apart, on latents in shuffled pages."""

from __future__ import annotations

import numpy as np
import pytest

from minilab.facts.errors import InputError
from minilab.lab.latent_kernel import attend


@pytest.mark.parametrize("tokens", [1, 16, 40])
def test_it_is_softmax_over_the_latents(tokens: int) -> None:
    pytest.importorskip("torch", reason="needs torch")
    dice = np.random.default_rng(3)
    query, cache = dice.normal(size=(16, 80)), dice.normal(size=(tokens, 80))
    backend, found = attend(query, cache, 16, 0.2)
    assert backend in ("triton", "interpreter", "reference")
    weights = np.exp(0.2 * query @ cache.T)
    wanted = weights / weights.sum(axis=1, keepdims=True) @ cache[:, :64]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_without_a_card_the_interpreter_runs_the_kernel() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    pytest.importorskip("triton", reason="needs triton")
    backend, _ = attend(np.zeros((16, 80)), np.zeros((5, 80)), 16, 1.0)
    assert backend == ("triton" if torch.cuda.is_available() else "interpreter")


@pytest.mark.parametrize(
    ("query", "cache"), [((16, 80), (5, 64)), ((80,), (5, 80)), ((16, 80), (80,))]
)
def test_unlike_widths_are_refused(query: tuple[int, ...], cache: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="give \\[heads, width\\] and \\[tokens, width\\]"):
        attend(np.zeros(query), np.zeros(cache), 16, 1.0)


def test_what_the_process_says_is_handed_on() -> None:
    pytest.importorskip("torch", reason="needs torch")
    with pytest.raises(InputError, match="the kernel's process failed: "):
        attend(np.zeros((16, 80)), np.zeros((5, 80)), 80, 1.0)
