"""Each proposer: what it guesses, that it costs no token, and that it forgets."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from spec_worlds import TINY, WEIGHTS, engine, greedy, plain, prompts

from minilab.core.config import SchedulerConfig
from minilab.engine.llm import LLM
from minilab.engine.model import Decoder
from minilab.engine.sampling import SamplingParams
from minilab.engine.spec.draft_model import DraftModel
from minilab.engine.spec.draft_table import DraftTable
from minilab.engine.spec.eagle import Eagle
from minilab.engine.spec.eagle_layer import MATRICES, NORMS, EagleLayer, shapes
from minilab.engine.spec.hybrid import Hybrid
from minilab.engine.spec.medusa import Medusa, medusa_shapes
from minilab.engine.spec.metrics import DraftCounts
from minilab.engine.spec.ngram import NGram
from minilab.engine.spec.proposer import Drafting, Proposer
from minilab.engine.spec.replay import Text, replay, without_loop
from minilab.engine.spec.speculation import Speculation
from minilab.engine.spec.suffix import Suffix
from minilab.engine.spec.table import Table
from minilab.engine.tiny import random_weights
from minilab.facts.errors import InputError

TOKENS, COUNT = 20, 200
LIMITS = SchedulerConfig(150, 4, max_num_batched_tokens=96, max_num_seqs=16)


@pytest.fixture(scope="module")
def asked() -> list[list[int]]:
    return prompts(COUNT, seed=2, shared=5)


@pytest.fixture(scope="module")
def wanted(asked: list[list[int]]) -> list[list[int]]:
    return plain(asked, TOKENS)


def drawn(wanted: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """A drafter of random weights."""
    dice = torch.Generator().manual_seed(9)
    found = {name: 0.1 * torch.randn(shape, generator=dice) for name, shape in wanted.items()}
    for name in found:
        if "norm" in name:
            found[name] += 1
    return found | {"vocabulary": torch.arange(0, 256, 2)}


def near(seed: int) -> Decoder:
    """A model close to the target: it is often right and often wrong."""
    noise = random_weights(TINY, seed)
    weights = {name: value + 0.06 * noise[name] for name, value in WEIGHTS.items()}
    return Decoder(TINY, weights, 300, 8)


def table_of(llm: LLM) -> Proposer:
    texts = plain(prompts(20, seed=2, shared=5), TOKENS)
    return Table.counted(texts, at_least=1)


PROPOSERS: dict[str, Callable[[LLM], Proposer]] = {
    "ngram": lambda llm: NGram(4, 1),
    "suffix": lambda llm: Suffix(),
    "table": table_of,
    "draft model": lambda llm: DraftModel(near(1)),
    "medusa": lambda llm: Medusa(llm.executor.model, drawn(medusa_shapes(TINY))),
    "eagle": lambda llm: Eagle(llm.executor.model, drawn(shapes(TINY))),
    "hybrid": lambda llm: Hybrid(NGram(4, 2), Eagle(llm.executor.model, drawn(shapes(TINY)))),
}


def with_proposer(name: str, limits: SchedulerConfig = LIMITS, k: int = 4) -> LLM:
    llm = engine(limits)
    llm.executor.speculation = Speculation.of(PROPOSERS[name](llm), k)
    return llm


@pytest.mark.parametrize("name", PROPOSERS)
def test_no_proposer_changes_a_token(
    name: str, asked: list[list[int]], wanted: list[list[int]]
) -> None:
    """200 prompts in a batch of 16, with chunks, prefix hits and preemption on the way."""
    llm = with_proposer(name)
    outputs = llm.generate(asked, greedy(TOKENS))
    assert [output.token_ids for output in outputs] == wanted
    assert llm.scheduler.num_preemptions, "the case did not come up"
    counts = llm.executor.speculation.counts  # type: ignore[union-attr]
    assert counts.num_draft_tokens > 500
    assert counts.num_accepted_tokens < counts.num_draft_tokens
    if name not in ("medusa", "eagle"):  # their weights are random here
        assert counts.num_accepted_tokens > 20


@pytest.mark.parametrize("name", PROPOSERS)
def test_what_has_ended_is_forgotten(name: str) -> None:
    """State by request must go with it, at its end and at an abort."""
    llm = with_proposer(name)
    states = [llm.add(prompt, greedy(12)) for prompt in prompts(6, seed=3)]
    for _ in range(3):
        llm.step()
    llm.abort(states[0])
    while llm.step():
        pass
    kept = vars(llm.executor.speculation.proposer)  # type: ignore[union-attr]
    inner = [vars(each) for each in kept.get("_proposers", ())] or [kept]
    for state in inner:
        for label in ("_index", "_trees", "_cached", "_memories", "_last", "_generators"):
            assert not state.get(label), label


def guess(proposer: Proposer, text: list[int], most: int = 4) -> list[int]:
    found = proposer.propose([Drafting(0, text, SamplingParams(temperature=0), most)])
    return found[0].tokens if 0 in found else []


def test_ngram_takes_the_longest_match_and_the_newest_place() -> None:
    text = [1, 2, 3, 40, 41, 9, 2, 3, 50, 51, 7, 2, 3]
    assert guess(NGram(3, 2), text) == [50, 51, 7, 2]
    longer = [1, 2, 3, 40, 41, 9, 2, 3, 50, 51, 7, 1, 2, 3]
    assert guess(NGram(3, 2), longer) == [40, 41, 9, 2], "three tokens match only the older place"
    assert guess(NGram(3, 2), [5, 6, 7, 8]) == []
    assert guess(NGram(3, 2), text, most=1) == [50]
    # In a loop the newest place is followed by one token only; an older one has more behind it.
    assert guess(NGram(3, 2), [4, 4, 4, 4, 4, 4, 4, 4]) == [4, 4, 4, 4]


def test_ngram_grown_step_by_step_equals_one_built_at_once() -> None:
    """The index must not miss the tokens of a step that yielded several."""
    rng = random.Random(1)
    text = rng.choices(range(6), k=120)
    grown = NGram(3, 1)
    end = 5
    while end < len(text):
        assert guess(grown, text[:end]) == guess(NGram(3, 1), text[:end])
        end += rng.randint(1, 5)


def test_suffix_follows_the_likeliest_way_and_stops_where_it_is_unsure() -> None:
    often, rare = [1, 2, 3, 4, 5, 6], [1, 2, 9, 8, 7]
    text = [*often, 20, *often, 21, *rare, 22, *often, 23, 1, 2]
    assert guess(Suffix(least=0.3), text) == [3, 4, 5, 6]
    torn = [1, 2, 3, 30, 1, 2, 3, 31, 1, 2, 3, 32, 1, 2]
    assert guess(Suffix(least=0.5), torn) == [3], "what follows 3 differs each time"
    assert guess(Suffix(factor=1.0), [7, 1, 2, 3, 4, 5, 6, 8, 1]) == [2], "one token matched"


def test_table_backs_off_and_survives_its_file(tmp_path: Path) -> None:
    texts = [[1, 2, 3, 4], [1, 2, 3, 4], [9, 3, 7], [9, 3, 7], [5, 3, 7]]
    table = Table.counted(texts, longest=3)
    assert guess(table, [1, 2], most=2) == [3, 4]
    assert guess(table, [8, 3], most=1) == [7], "3 alone is followed by 7 more often than by 4"
    assert guess(table, [99]) == []
    table.save(tmp_path / "table.safetensors")
    assert Table.load(tmp_path / "table.safetensors").successors == table.successors


def test_the_target_as_its_own_draft_model_is_always_right() -> None:
    """Its KV must follow what was accepted: one stale entry would show as a wrong guess."""
    llm = engine(LIMITS)
    proposer = DraftModel(Decoder(TINY, WEIGHTS, 300, 8))
    llm.executor.speculation = Speculation.of(proposer, 3)
    llm.generate(prompts(12, seed=7), greedy(TOKENS))
    counts = llm.executor.speculation.counts
    assert counts.acceptance_rate == 1.0 and counts.num_draft_tokens > 100


def test_a_near_draft_model_recovers_after_rejections() -> None:
    """Each guess must equal what the draft model says of the true text, read afresh."""
    model, fresh = near(1), near(1)
    grown = DraftModel(model)
    text = prompts(1, seed=11)[0]
    reply = plain([text], 16)[0]
    for end in range(0, 16, 2):
        so_far = text + reply[:end]
        assert guess(grown, so_far) == guess(DraftModel(fresh), so_far)


def test_drawn_drafts_come_with_their_odds() -> None:
    proposer = DraftModel(near(1))
    params = SamplingParams(temperature=0.7, seed=5)
    found = proposer.propose([Drafting(3, [5, 6, 7], params, 3)])[3]
    assert found.probs is not None and found.probs.shape == (3, TINY.vocab_size)
    torch.testing.assert_close(found.probs.sum(-1), torch.ones(3))
    assert all(found.probs[i, token] > 0 for i, token in enumerate(found.tokens))


def test_a_full_pool_means_no_drafts_and_no_leak() -> None:
    proposer = DraftModel(Decoder(TINY, WEIGHTS, 3, 4))
    params = SamplingParams(temperature=0)
    asked = [Drafting(i, list(range(5)), params, 3) for i in range(3)]
    assert set(proposer.propose(asked)) == {0}
    proposer.forget(0)
    assert len(proposer._free) == 3


def test_eagle_steps_equal_one_pass_over_the_whole_text() -> None:
    """The KV that it keeps, cut and extended over steps, must be that of the true features."""
    llm = with_proposer("eagle", SchedulerConfig(64, 4, max_num_batched_tokens=7, max_num_seqs=2))
    prompt = prompts(1, seed=12)[0]
    seen: list[tuple[list[int], list[int]]] = []
    proposer = llm.executor.speculation.proposer  # type: ignore[union-attr]
    real = proposer.propose

    def watched(asked):
        found = real(asked)
        seen.extend((list(one.tokens), found[one.id].tokens) for one in asked if one.most > 1)
        return found

    proposer.propose = watched  # type: ignore[method-assign]
    llm.generate([prompt], greedy(12))
    assert len(seen) >= 6
    weights = drawn(shapes(TINY))
    for text, guesses in seen:
        assert guesses[0] == _first_guess(llm.executor.model, weights, text)


def test_the_first_of_eagles_tries_is_its_guess() -> None:
    """Tries are asked in place of a proposal, and must not disturb the next one."""
    tried, guessed = {}, {}
    for name, kept in (("tries", tried), ("guesses", guessed)):
        llm = with_proposer("eagle", SchedulerConfig(64, 4, max_num_seqs=2), k=1)
        proposer = llm.executor.speculation.proposer  # type: ignore[union-attr]
        real = proposer.propose

        def watched(asked, name=name, kept=kept, real=real, proposer=proposer):
            if name == "guesses":
                found = real(asked)
                kept.update({tuple(one.tokens): found[one.id].tokens for one in asked
                             if one.id in found})  # fmt: skip
            else:
                found = proposer.tries(asked, 3)
                kept.update({tuple(one.tokens): found[one.id] for one in asked})
            return {}

        proposer.propose = watched  # type: ignore[method-assign]
        llm.generate(prompts(2, seed=12), greedy(10))
    assert len(guessed) > 10
    assert all(len(set(three)) == 3 for three in tried.values())
    assert {text: three[:1] for text, three in tried.items() if text in guessed} == guessed


def _first_guess(model: Decoder, weights: dict[str, torch.Tensor], text: list[int]) -> int:
    """The drafter's first guess after ``text``, computed without any memory."""
    reader = engine(SchedulerConfig(64, 4))
    state = reader.add(text[:-1], greedy(1))
    plan = reader.scheduler.schedule()
    from minilab.engine.batch import StepBatch

    batch = StepBatch.of(plan, reader.executor.tokens_of, 4, model.device)
    assert batch.requests == [state]
    layer = EagleLayer(
        TINY,
        {name: lambda x, name=name: x @ weights[name].T for name in MATRICES},
        {name: weights[f"norm.{name}"] for name in NORMS},
    )
    features = model.normed(reader.executor.model.hidden(batch))
    x = layer.join(model.embedding[torch.tensor(text[1:])], features)
    query, key, value = layer.qkv(x, torch.arange(len(x)))
    found = torch.nn.functional.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        key.transpose(0, 1)[None],
        value.transpose(0, 1)[None],
        is_causal=True,
        enable_gqa=True,
    )
    feature = layer.feature(x, found[0].transpose(0, 1).flatten(1))[-1]
    vocabulary = weights["vocabulary"]
    return int(vocabulary[(model.embedding[vocabulary] @ feature).argmax()])


def test_a_drafter_for_another_model_is_refused() -> None:
    model = engine(LIMITS).executor.model
    weights = drawn(shapes(TINY))
    with pytest.raises(InputError, match=r"join has shape \[3, 3\], the target needs \[64, 128\]"):
        Eagle(model, weights | {"join": torch.zeros(3, 3)})
    with pytest.raises(InputError, match=r"no tensor 0\.feature"):
        Medusa(model, weights)
    with pytest.raises(InputError, match="cannot be read as a drafter"):
        Eagle.load(model, "nowhere.safetensors")


def test_draft_table_is_read_and_chosen() -> None:
    table = DraftTable([[1, 16, 5], [17, 64, 2], [65, 512, 0]])
    assert [table.k_for(batch) for batch in (1, 16, 17, 64, 65, 512, 513)] == [5, 5, 2, 2, 0, 0, 0]
    for wrong in ([[1, 4]], [[5, 4, 1]], [[1, 8, 2], [8, 9, 1]], [[1, 2, -1]]):
        with pytest.raises(InputError, match="row"):
            DraftTable(wrong)
    # Drafts at .8 and .5: 1.8 tokens for k=1, 2.3 for k=2. At batch 1 a step costs nearly the same.
    seconds = {(1, 0): 1.0, (1, 1): 1.1, (1, 2): 1.2}
    seconds |= {(8, 0): 1.0, (8, 1): 1.4, (8, 2): 2.0, (32, 0): 1.0, (32, 1): 2.0, (32, 2): 3.0}
    assert DraftTable.best(seconds, [0.8, 0.5]).rows == [(1, 7, 2), (8, 31, 1), (32, 32, 0)]


def test_both_ways_to_count_acceptance() -> None:
    """By hand: 4 steps, drafts in 2 of them (3 and 2), kept 3 and 0: 5 + 2 tokens... 7 in all."""
    counts = DraftCounts()
    counts.count(3, 3, 4)
    counts.count(2, 0, 1)
    counts.count(0, 0, 1)
    counts.count(0, 0, 1)
    assert counts.acceptance_length == 1 + 3 / 2, "vLLM's: per step that had a draft"
    assert counts.tokens_per_step == 7 / 4, "per step"
    assert counts.acceptance_rate == 3 / 5
    assert counts.per_position == [0.5, 0.5, 0.5]
    assert counts.drafted_per_pos == [2, 2, 1]
    assert counts.expanded_batch == (4 + 5) / 7
    named = counts.counters()
    assert named["vllm:spec_decode_num_drafts"] == 2
    assert named['vllm:spec_decode_num_accepted_tokens_per_pos{position="2"}'] == 1


@pytest.mark.parametrize("name", ["ngram", "medusa", "eagle", "hybrid"])
def test_a_replay_counts_what_the_engine_counts(name: str) -> None:
    """Acceptance is measured by replay; it must be the engine's own to the last draft."""
    llm = with_proposer(name, SchedulerConfig(400, 4, max_num_seqs=1, enable_prefix_caching=False))
    hidden: dict[int, list[torch.Tensor]] = {}
    forward = llm.executor.model.hidden
    plain_llm = engine(SchedulerConfig(400, 4, max_num_seqs=1, enable_prefix_caching=False))

    def watched(batch):
        rows = forward(batch)
        hidden.setdefault(batch.requests[0].id, []).append(rows)
        return rows

    plain_llm.executor.model.hidden = watched  # type: ignore[method-assign]
    forward = type(plain_llm.executor.model).hidden.__get__(plain_llm.executor.model)
    asked = [prompt * 2 for prompt in prompts(4, seed=21)]
    outputs = plain_llm.generate(asked, greedy(TOKENS))
    llm.generate(asked, greedy(TOKENS))
    proposer = PROPOSERS[name](llm)
    total = [0, 0, 0]
    for number, output in enumerate(outputs):
        text = Text(
            output.prompt_token_ids + output.token_ids,
            len(asked[number]),
            torch.cat(hidden[number]),
        )
        found = replay(proposer, text, 4)
        total[0] += found.num_steps
        total[1] += found.num_draft_tokens
        total[2] += found.num_accepted_tokens
    counts = llm.executor.speculation.counts  # type: ignore[union-attr]
    assert total == [counts.num_steps, counts.num_draft_tokens, counts.num_accepted_tokens]


def test_a_loop_is_cut_where_it_begins() -> None:
    start = list(range(50))
    assert without_loop([9, 9, *start, *([1, 2, 3] * 30)], 2) == [9, 9, *start]
    assert without_loop([*([5] * 60), *start], 60) == [*([5] * 60), *start], "a prompt may repeat"
