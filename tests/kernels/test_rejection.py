"""rejection: the kernel where it can run, and what needs no kernel."""

from __future__ import annotations

import pytest
import torch
from speculation import make_batch

from minilab.kernels.rejection import rejection_ref


def test_on_the_interpreter(run_cases):
    """The kernel, in Triton's interpreter."""
    run_cases("cases_rejection.py", "interpreter")


@pytest.mark.slow
def test_sweep_on_the_interpreter(run_cases):
    """Random combinations."""
    run_cases("cases_rejection.py", "interpreter", "slow")


@pytest.mark.gpu
def test_on_a_gpu(run_cases):
    """The same cases, compiled."""
    run_cases("cases_rejection.py", "gpu", "slow or not slow")


@pytest.mark.parametrize("kind", ["random", "n-gram"])
def test_lossless(kind):
    """Chi-square at a fixed seed: the first token is distributed as p, whatever proposed it."""
    trials, vocab = 6000, 6
    batch = make_batch([1] * trials, vocab=vocab, kind=kind, seed=11)
    p, q = batch.target_probs[:1] ** 0.3, torch.tensor([[0.05, 0.4, 0.05, 0.2, 0.2, 0.1]])
    p = p / p.sum()
    batch.target_probs = p.expand(trials, vocab).contiguous()
    generator = torch.Generator().manual_seed(12)
    if kind == "random":
        batch.draft_probs = q.expand(trials, vocab).contiguous()
        batch.draft_ids = torch.multinomial(q[0], trials, replacement=True, generator=generator)
    else:
        batch.draft_ids = torch.full((trials,), 2)
    tokens = rejection_ref(*batch.on(torch.device("cpu")))
    counts = torch.bincount(tokens[:, 0], minlength=vocab)
    expected = trials * p[0]
    # 99.9 % point of chi-square with 5 degrees of freedom.
    assert float(((counts - expected) ** 2 / expected).sum()) < 20.515
    kept = (tokens[:, 1] >= 0).double().mean()
    overlap = torch.minimum(p, q).sum() if kind == "random" else p[0, 2]
    assert abs(float(kept - overlap)) < 4 * (0.25 / trials) ** 0.5
