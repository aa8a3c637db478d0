"""rejection's kernel equals its reference, token for token, on the interpreter or a GPU."""

from __future__ import annotations

import pytest
import torch
from on_device import BACKEND, DEVICE
from speculation import Batch, make_batch

from minilab.kernels.rejection import rejection, rejection_ref
from minilab.kernels.spec import Config

SMALL = Config({"BLOCK_V": 32})
LENGTHS = [3, 0, 1, 4, 4, 2, 0, 4]
KINDS = ["random", "greedy", "mixed", "n-gram", "n-gram mixed", "n-gram greedy"]


def compare(batch: Batch, config: Config | None = SMALL) -> torch.Tensor:
    """Kernel and reference on the same randomness; the output is poisoned first."""
    arguments = batch.on(DEVICE)
    out = torch.full((batch.requests, batch.width), 99, dtype=torch.int32, device=DEVICE)
    got = rejection(*arguments, config=config, backend=BACKEND, out=out)
    assert got is out
    wanted = rejection_ref(*batch.on(torch.device("cpu")))
    assert torch.equal(got.cpu(), wanted)
    return wanted


@pytest.mark.parametrize("config", [None, SMALL], ids=["own", "small"])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_the_reference(kind, config):
    """Ragged drafts, a vocabulary that is no multiple of a tile; every outcome must occur."""
    seen = set()
    for seed in range(3):
        batch = make_batch(LENGTHS, vocab=100, kind=kind, seed=seed)
        tokens = compare(batch, config)
        kept = (tokens >= 0).sum(1) - 1
        drafts = torch.tensor(LENGTHS)
        seen |= {"all" for k, n in zip(kept, drafts, strict=True) if n and k == n}
        seen |= {"none" for k, n in zip(kept, drafts, strict=True) if n and k == 0}
        seen |= {"some" for k, n in zip(kept, drafts, strict=True) if 0 < k < n}
    assert seen == {"all", "none", "some"}


def test_ties_take_the_lowest_token():
    """Equal scores in one tile, in different tiles, and in the same lane of different tiles."""
    batch = make_batch([1, 1], vocab=100, kind="greedy", seed=0)
    batch.target_probs[:] = 0.001
    batch.target_probs[0, [5, 9, 71]] = 0.3
    batch.target_probs[1, [40, 72, 98]] = 0.4
    batch.draft_ids[:] = torch.tensor([71, 98])
    assert compare(batch)[:, 0].tolist() == [5, 40]


def test_logits_do_when_all_are_greedy():
    """Nothing is compared with zero: all logits may be negative."""
    batch = make_batch(LENGTHS, vocab=100, kind="greedy", seed=4)
    compare(batch)
    batch.target_probs.log_().sub_(50.0)
    compare(batch)


def test_residual_lost_to_rounding():
    """p <= q everywhere and the draft still rejected: a token is drawn from p, not token 0."""
    batch = make_batch([1], vocab=100, kind="random", seed=0)
    batch.draft_probs[:] = batch.target_probs * 1.5
    batch.uniforms[:] = 0.99
    assert compare(batch)[0, 0] != 0


def test_token_without_probability_is_never_kept():
    """u = 0 and p(draft) = 0: a comparison with >= would keep it."""
    batch = make_batch([1], vocab=100, kind="n-gram", seed=0)
    batch.uniforms[:] = 0.0
    batch.target_probs[0, batch.draft_ids[0]] = 0.0
    assert compare(batch)[0, 0] != batch.draft_ids[0]


def test_identical_distributions_keep_everything():
    """p equal to q: every draft is kept, whatever the uniforms."""
    batch = make_batch([4, 4], vocab=100, kind="random", seed=0)
    batch.target_probs[:] = batch.draft_probs
    assert (compare(batch)[:, :4].flatten() == batch.draft_ids).all()


def test_no_drafts_at_all():
    """Bonus tokens alone; and an empty batch."""
    batch = make_batch([0, 0], vocab=100, kind="random", seed=0)
    assert compare(batch)[:, 0].tolist() == batch.bonus_ids.tolist()
    compare(make_batch([], vocab=100, kind="random", seed=0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_sweep(seed):
    """Real vocabularies."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 9, (6,), generator=draw).tolist()
    for kind in KINDS:
        compare(make_batch(lengths, vocab=49_152 - 7 * seed, kind=kind, seed=seed), None)
