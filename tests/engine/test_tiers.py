"""Real tiers: equal tokens whatever was fetched, no half-written block, a shared folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from minilab.core.config import SchedulerConfig  # noqa: E402
from minilab.engine.llm import LLM  # noqa: E402
from minilab.engine.sampling import SamplingParams  # noqa: E402
from minilab.engine.tiers import CpuTier, KVTiers  # noqa: E402
from minilab.engine.tiers_disk import DiskTier, fingerprint  # noqa: E402
from minilab.engine.tiny import TINY, random_weights  # noqa: E402
from minilab.facts.errors import InputError  # noqa: E402

WEIGHTS = random_weights(TINY, 3)
SIZE = 4
MODEL = fingerprint(WEIGHTS, SIZE, torch.float32)
GREEDY = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)


def prompt(seed: int, tokens: int = 30) -> list[int]:
    dice = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (tokens,), generator=dice).tolist()


def engine(tiers: list[object] | None, blocks: int = 24) -> LLM:
    limits = SchedulerConfig(blocks, SIZE, max_num_batched_tokens=64, max_num_seqs=4)
    llm = LLM(TINY, WEIGHTS, limits)
    if tiers is not None:
        llm.use_tiers(KVTiers(tiers, SIZE))  # type: ignore[arg-type]
    return llm


def tokens(llm: LLM, ids: list[int], salt: str | None = None) -> list[int]:
    return llm.generate([ids], GREEDY, cache_salt=salt)[0].token_ids


PLAIN = {seed: tokens(engine(None, 64), prompt(seed)) for seed in range(4)}


def flush(llm: LLM) -> None:
    """Fill the pool with other text, so that HBM has forgotten everything else."""
    for seed in range(50, 54):
        tokens(llm, prompt(seed, 80))


def test_fetched_from_cpu_memory_the_answer_is_the_same() -> None:
    llm = engine([CpuTier(500)])
    assert tokens(llm, prompt(1)) == PLAIN[1]
    flush(llm)
    before = llm.num_steps
    assert tokens(llm, prompt(1)) == PLAIN[1]
    assert llm.tiers is not None and llm.tiers.loaded_tokens == [28]
    assert llm.num_steps - before == 6, "two prompt tokens and five decodes, no more"
    assert llm.scheduler.pool.used == 0


def test_the_kv_that_comes_back_is_what_was_computed_bit_by_bit() -> None:
    llm = engine([CpuTier(500)])
    state = llm.add(prompt(2), GREEDY)
    llm.step()
    was = llm.executor.model.kv_cache[:, :, state.block_table[:7]].clone()
    while llm.step():
        pass
    flush(llm)
    state = llm.add(prompt(2), GREEDY)
    llm.step()
    now = llm.executor.model.kv_cache[:, :, state.block_table[:7]]
    assert torch.equal(was, now) and was.abs().sum() > 0


def test_a_small_cpu_tier_forgets_tails_first() -> None:
    tier = CpuTier(3)
    tokens(engine([tier]), prompt(1))
    assert len(tier) == 3
    llm = engine([tier])
    assert tokens(llm, prompt(1)) == PLAIN[1]
    assert llm.tiers is not None and llm.tiers.loaded_tokens[0] in (0, 4, 8, 12)


def test_disk_survives_the_engine(tmp_path: Path) -> None:
    tokens(engine([DiskTier(tmp_path, MODEL)]), prompt(1))
    llm = engine([CpuTier(100), DiskTier(tmp_path, MODEL)])
    assert tokens(llm, prompt(1)) == PLAIN[1]
    assert llm.tiers is not None and llm.tiers.loaded_tokens == [0, 28]
    flush(llm)
    assert tokens(llm, prompt(1)) == PLAIN[1]
    assert llm.tiers.loaded_tokens == [28, 28], "what came from disk stays in CPU memory"


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "garbage", "other model"])
def test_a_damaged_block_is_computed_never_loaded(tmp_path: Path, damage: str) -> None:
    """A half-written, flipped or foreign file must cost time, and never an answer."""
    tier = DiskTier(tmp_path, MODEL)
    tokens(engine([tier]), prompt(1))
    files = sorted(tier.folder.glob("*.safetensors"))
    assert len(files) == 8
    for file in files:
        data = file.read_bytes()
        if damage == "flip":
            changed = bytearray(data)
            changed[-5] ^= 1
            file.write_bytes(changed)
        elif damage == "other model":
            file.write_bytes(data.replace(MODEL.encode(), b"0" * len(MODEL)))
        else:
            file.write_bytes({"cut": data[:-7], "empty": b"", "garbage": b"x" * 900}[damage])
    llm = engine([tier])
    assert tokens(llm, prompt(1)) == PLAIN[1]
    assert llm.tiers is not None
    assert llm.tiers.loaded_tokens == [0] and llm.tiers.failed_loads == 1
    again = engine([DiskTier(tmp_path, MODEL)])
    assert tokens(again, prompt(1)) == PLAIN[1]
    assert again.tiers is not None and again.tiers.loaded_tokens[0] > 0, "written anew"


def test_one_damaged_block_costs_the_rest_of_the_prompt_only(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, MODEL)
    llm = engine([tier])
    state = llm.add(prompt(1), GREEDY)
    llm.step()
    third = tier.path(state.block_hashes[2])
    while llm.step():
        pass
    third.write_bytes(third.read_bytes()[:-1])
    llm = engine([tier])
    assert tokens(llm, prompt(1)) == PLAIN[1]
    assert llm.tiers is not None and llm.tiers.loaded_tokens == [8]


def test_a_crash_while_writing_leaves_no_block(tmp_path: Path, monkeypatch: object) -> None:
    """The process dies between the bytes and the name."""
    tier = DiskTier(tmp_path, MODEL)

    def die(*names: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", die)  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        tier.put([5], torch.ones(2, 2, 1, SIZE, 1, 32))
    monkeypatch.undo()  # type: ignore[attr-defined]
    assert 5 not in tier and tier.get(5) is None
    (tier.folder / ".x.tmp").write_bytes(b"half of a block, from a process that was killed")
    assert tokens(engine([tier]), prompt(1)) == PLAIN[1]


def test_tenants_share_neither_memory_nor_disk(tmp_path: Path) -> None:
    tiers = [CpuTier(500), DiskTier(tmp_path, MODEL)]
    assert tokens(engine(tiers), prompt(1), "a") == PLAIN[1]
    for salt in ("b", "", None):
        llm = engine(tiers)
        assert tokens(llm, prompt(1), salt) == PLAIN[1]
        assert llm.tiers is not None and sum(llm.tiers.loaded_tokens) == 0
    llm = engine(tiers)
    tokens(llm, prompt(1), "a")
    assert llm.tiers is not None and sum(llm.tiers.loaded_tokens) == 28


def test_fingerprints_tell_models_apart() -> None:
    other = dict(WEIGHTS, **{"model.norm.weight": WEIGHTS["model.norm.weight"] + 1e-3})
    assert fingerprint(other, SIZE, torch.float32) != MODEL
    assert fingerprint(WEIGHTS, 8, torch.float32) != MODEL
    assert fingerprint(dict(WEIGHTS), SIZE, torch.float32) == MODEL


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="name another place"):
        DiskTier(tmp_path / "file", MODEL)


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
import test_tiers as t
llm = t.engine([t.DiskTier(sys.argv[2], t.MODEL)])
for seed in map(int, sys.argv[3].split(",")):
    assert t.tokens(llm, t.prompt(seed)) == t.PLAIN[seed], seed
    t.flush(llm) if len(sys.argv) > 4 else None
print(llm.tiers.loaded_tokens[0], llm.tiers.failed_loads)
"""


@pytest.mark.slow
def test_two_processes_serve_each_others_prefixes(tmp_path: Path) -> None:
    """At the same time, on one folder: each asks first for what the other one has just computed."""

    def start(seeds: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(tmp_path), seeds]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def result(child: subprocess.Popen[str]) -> tuple[int, int]:
        out, _ = child.communicate(timeout=120)
        assert child.returncode == 0
        loaded, failed = map(int, out.split())
        return loaded, failed

    assert result(start("0,1")) == (0, 0), "nobody was there before"
    both = [start("0,2"), start("1,3")]
    assert [result(child) for child in both] == [(28, 0), (28, 0)]
    assert result(start("2,3")) == (56, 0)
