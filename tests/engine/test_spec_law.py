"""Drafts must not change what a text is drawn from: its law summed exactly, the sampler held to it.

Target and drafter are small tables that disagree; the drafter's odds lean on the last token too, so
that a mistake in rows, temperatures or the token after the drafts moves some probability.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from minilab.engine.sampling import Sampler, SamplingParams, probabilities
from minilab.engine.spec import acceptance, law
from minilab.engine.spec.acceptance import Judged, Lossless, Typical
from minilab.engine.spec.proposer import Draft

VOCAB, K, DRAWS = 4, 2, 3000
TEMPERATURES = (0.5, 1.0, 2.0)
WARM = 2.0  # where drafts are kept often enough for every mistake to have its chance
_dice = torch.Generator().manual_seed(4)
TARGET = 1.5 * torch.randn(VOCAB + 1, VOCAB, generator=_dice)  # a row per last token, one for none
DRAFTER = 1.5 * torch.randn(VOCAB + 1, VOCAB, generator=_dice)
# 99.9 % points of chi-square for 63 and for 3 degrees of freedom.
LIMIT_63, LIMIT_3 = 103.4, 16.27


def model(table: torch.Tensor, temperature: float) -> law.Model:
    rows = (table.double() / temperature).softmax(-1).tolist()
    return lambda text: rows[text[-1] if text else VOCAB]


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_rule_is_lossless_to_the_last_digit(temperature: float, k: int) -> None:
    """Summed over every draft and every outcome: no sampling, no tolerance to hide in."""
    target, draft = model(TARGET, temperature), model(DRAFTER, temperature)
    stepped = law.step(target, draft, k)
    assert sum(stepped.values()) == pytest.approx(1, abs=1e-12)
    whole = law.completed(target, stepped, k + 1)
    wanted = law.chain(target, k + 1)
    assert whole.keys() == wanted.keys() and len(wanted) == VOCAB ** (k + 1)
    assert max(abs(whole[text] - wanted[text]) for text in wanted) < 1e-12


def test_a_wrong_residual_shows_in_the_exact_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing from the target itself after a rejection is the classic mistake."""
    target, draft = model(TARGET, 1.0), model(DRAFTER, 1.0)
    monkeypatch.setattr(law, "residual", lambda p, q: list(p))
    whole = law.completed(target, law.step(target, draft, K), K + 1)
    wanted = law.chain(target, K + 1)
    assert max(abs(whole[text] - wanted[text]) for text in wanted) > 0.01


Rule = Callable[[list[Judged], Sampler], list[list[int]]]


def outputs(
    temperature: float, rule: Rule, sure: bool = False, drafted_at: float | None = None
) -> list[list[int]]:
    """What ``rule`` puts out for many requests whose drafts were drawn from the drafter."""
    params = SamplingParams(temperature=temperature)
    generator = torch.Generator().manual_seed(17)
    judged = []
    for number in range(DRAWS):
        tokens: list[int] = []
        odds: list[torch.Tensor] = []
        for _ in range(K):
            row = DRAFTER[tokens[-1] if tokens else VOCAB]
            told = probabilities(row, replace(params, temperature=drafted_at or temperature))
            true = probabilities(row, params)
            odds.append(told)
            picked = true.argmax() if sure else torch.multinomial(true, 1, generator=generator)
            tokens.append(int(picked))
        logits = TARGET[[VOCAB, *tokens]]
        draft = Draft(tokens, None if sure else torch.stack(odds))
        judged.append(Judged(number, draft, params, logits, logits.argmax(-1).tolist()))
    return rule(judged, Sampler(seed=3))


def distance(outs: list[list[int]], temperature: float) -> float:
    """Chi-square of the first three tokens; those a step did not put out come from the target."""
    generator = torch.Generator().manual_seed(23)
    target = model(TARGET, temperature)
    seen: Counter[tuple[int, ...]] = Counter()
    for out in outs:
        text = list(out[: K + 1])
        while len(text) < K + 1:
            odds = torch.tensor(target(tuple(text)))
            text.append(int(torch.multinomial(odds, 1, generator=generator)))
        seen[tuple(text)] += 1
    wanted = law.chain(target, K + 1)
    return sum((seen[t] - len(outs) * p) ** 2 / (len(outs) * p) for t, p in wanted.items())


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_sampler_follows_the_law(temperature: float) -> None:
    assert distance(outputs(temperature, Lossless()), temperature) < LIMIT_63


def test_drafts_that_were_not_drawn_are_lossless_too() -> None:
    """n-gram drafts: all of q on one token."""
    assert distance(outputs(1.0, Lossless(), sure=True), 1.0) < LIMIT_63


def test_the_token_after_accepted_drafts_comes_and_is_the_targets() -> None:
    """Counts: as many bonus tokens as the law says, spread as the target spreads them."""
    outs = outputs(1.0, Lossless())
    stepped = law.step(model(TARGET, 1.0), model(DRAFTER, 1.0), K)
    share = sum(chance for text, chance in stepped.items() if len(text) == K + 1)
    full = [out for out in outs if len(out) == K + 1]
    spread = (DRAWS * share * (1 - share)) ** 0.5
    assert abs(len(full) - DRAWS * share) < 4 * spread
    usual = Counter(out[-2] for out in full).most_common(1)[0][0]
    last = Counter(out[-1] for out in full if out[-2] == usual)
    odds = model(TARGET, 1.0)((usual,))
    total = sum(last.values())
    assert total > 100
    assert sum((last[t] - total * p) ** 2 / (total * p) for t, p in enumerate(odds)) < LIMIT_3


def _swapped(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    real = acceptance.rejection

    def wrong(ids, most, ends, q, p, *rest):
        return real(ids, most, ends, p, q, *rest)

    monkeypatch.setattr(acceptance, "rejection", wrong)
    return outputs(WARM, Lossless())


def _residual_is_the_target(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The draw after a rejection ignores q: as if the residual had not been made."""
    real = acceptance.rejection

    def wrong(ids, most, ends, q, p, bonus, uniforms, noise):
        out = real(ids, most, ends, q, p, bonus, uniforms, noise)
        starts = torch.cat((torch.zeros(1, dtype=torch.int32), ends[:-1]))
        kept = (out >= 0).sum(1) - 1
        for row in (kept < ends - starts).nonzero().flatten().tolist():
            at = int(starts[row] + kept[row])
            out[row, kept[row]] = int((p[at] / noise[row]).argmax())
        return out

    monkeypatch.setattr(acceptance, "rejection", wrong)
    return outputs(WARM, Lossless())


def _q_before_temperature(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    return outputs(WARM, Lossless(), drafted_at=1.0)


def _bonus_dropped(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The last token of a fully accepted step is lost: the next step begins one token late."""
    return [out[:-1] if len(out) == K + 1 else out for out in outputs(WARM, Lossless())]


def _bonus_from_the_row_before(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    def rule(judged: list[Judged], sampler: Sampler) -> list[list[int]]:
        shifted = [
            replace(one, logits=torch.cat((one.logits[:-1], one.logits[-2:-1]))) for one in judged
        ]
        return Lossless()(shifted, sampler)

    return outputs(WARM, rule)


def _mixed_rows(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    def rule(judged: list[Judged], sampler: Sampler) -> list[list[int]]:
        moved = [replace(one, logits=one.logits.roll(1, 0)) for one in judged]
        return Lossless()(moved, sampler)

    return outputs(WARM, rule)


MUTANTS = {
    "p and q swapped": _swapped,
    "residual is the target": _residual_is_the_target,
    "q before temperature": _q_before_temperature,
    "bonus from the row before": _bonus_from_the_row_before,
    "rows mixed": _mixed_rows,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mistakes_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these is right at temperature 0, which is why greedy tests alone do not do."""
    assert distance(MUTANTS[name](monkeypatch), WARM) > 1.5 * LIMIT_63


def test_a_dropped_bonus_token_is_caught_by_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its law is right, only slower; so it is the count that must show it."""
    outs = _bonus_dropped(monkeypatch)
    stepped = law.step(model(TARGET, WARM), model(DRAFTER, WARM), K)
    mean = sum(len(text) * chance for text, chance in stepped.items())
    right = sum(map(len, outputs(WARM, Lossless()))) / DRAWS
    assert right == pytest.approx(mean, abs=0.06)
    assert sum(map(len, outs)) / DRAWS < mean - 0.12


def test_typical_acceptance_is_not_lossless() -> None:
    """It keeps more drafts than the lossless rule, and pays with another distribution."""
    typical, lossless = outputs(1.0, Typical()), outputs(1.0, Lossless())
    assert sum(map(len, typical)) > sum(map(len, lossless))
    assert distance(typical, 1.0) > 2 * LIMIT_63


def test_greedy_rows_of_a_mixed_batch_are_greedy() -> None:
    """Greedy and drawn requests in one call: each by its own rule, in its own place."""
    warm, cold = SamplingParams(temperature=1.0), SamplingParams(temperature=0)
    logits = TARGET[[VOCAB, 0, 1]]
    likeliest = logits.argmax(-1).tolist()
    right = Draft([likeliest[0], 1])
    judged = [Judged(n, right, cold if n % 2 else warm, logits, likeliest) for n in range(200)]
    outs = Lossless()(judged, Sampler(seed=1))
    expected = acceptance.greedy(judged[1])
    assert all(out == expected for out in outs[1::2])
    assert len({tuple(out) for out in outs[::2]}) > 3
