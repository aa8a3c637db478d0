"""The MTP module as a proposer: it changes the number of steps, and not one token."""

from __future__ import annotations

import pytest
import torch
from deepseek_worlds import CONFIG, random_weights
from driving import check

from minilab.core.config import SchedulerConfig
from minilab.engine.deepseek.model import DeepseekDecoder
from minilab.engine.deepseek.teacher import dense_logits, mtp_logits, teacher_forced
from minilab.engine.llm import LLM
from minilab.engine.moe.load import ExpertLoad, RouteLog
from minilab.engine.sampling import SamplingParams
from minilab.engine.spec.mtp import Mtp
from minilab.engine.spec.speculation import Speculation
from minilab.facts.errors import InputError

WEIGHTS = random_weights()
DICE = torch.Generator().manual_seed(4)
PROMPTS = [torch.randperm(97, generator=DICE)[: 7 + 3 * i].tolist() for i in range(6)]
GREEDY = SamplingParams(temperature=0, max_tokens=12)
LIMITS = {
    "plenty": SchedulerConfig(256, 4, max_num_seqs=8),
    "chunks across blocks": SchedulerConfig(128, 4, max_num_batched_tokens=11, max_num_seqs=8),
    "preemption": SchedulerConfig(24, 4, max_num_batched_tokens=32, max_num_seqs=6),
    "budget without room for drafts": SchedulerConfig(
        128, 4, max_num_batched_tokens=6, max_num_seqs=6
    ),
}


def engine(limits: SchedulerConfig, k: int) -> LLM:
    llm = LLM(CONFIG, WEIGHTS, limits)
    if k:
        llm.executor.speculation = Speculation.of(Mtp(model_of(llm)), k)
    return llm


def model_of(llm: LLM) -> DeepseekDecoder:
    model = llm.executor.model
    assert isinstance(model, DeepseekDecoder)
    return model


@pytest.fixture(scope="module")
def wanted() -> list[list[int]]:
    llm = engine(SchedulerConfig(256, 16, max_num_seqs=8), 0)
    return [output.token_ids for output in llm.generate(PROMPTS, GREEDY)]


@pytest.mark.parametrize(
    ("name", "k"),
    [("plenty", 1), ("chunks across blocks", 3), ("preemption", 2)]
    + [pytest.param(n, k, marks=pytest.mark.slow) for n in LIMITS for k in (1, 3)],
)
def test_greedy_texts_are_those_of_plain_decoding(
    name: str, k: int, wanted: list[list[int]]
) -> None:
    llm = engine(LIMITS[name], k)
    states = [llm.add(prompt, GREEDY) for prompt in PROMPTS]
    while llm.step():
        check(llm.scheduler)
    assert [llm.output(state).token_ids for state in states] == wanted
    counts = llm.executor.speculation.counts  # type: ignore[union-attr]
    assert counts.num_draft_tokens > 15
    assert counts.num_emitted_tokens == counts.num_steps + counts.num_accepted_tokens
    if name == "preemption":
        assert llm.scheduler.num_preemptions


@pytest.mark.parametrize("k", [1, 2])
def test_drafts_are_what_the_module_says_of_the_whole_text(k: int) -> None:
    """The first guess of every step equals the dense module's, whatever was accepted before.

    A module that reads a stale feature, or a row of a rejected guess, would still be lossless.
    """
    llm = engine(LIMITS["plenty"], k)
    model = model_of(llm)
    proposer = llm.executor.speculation.proposer  # type: ignore[union-attr]
    state = llm.add(PROMPTS[3], SamplingParams(temperature=0, max_tokens=14))
    tokens = llm.executor.texts[state.id].tokens
    checked = 0
    propose = proposer.propose

    def watched(asked):  # type: ignore[no-untyped-def]
        nonlocal checked
        found = propose(asked)
        for one in asked:
            if one.id in found:
                logits = mtp_logits(model, torch.tensor([one.tokens]))[0, -1]
                assert found[one.id].tokens[0] == int(logits.argmax())
                checked += 1
        return found

    proposer.propose = watched  # type: ignore[method-assign]
    while llm.step():
        pass
    assert checked > 8 and len(tokens) == len(PROMPTS[3]) + 14


def test_a_cached_prefix_costs_drafts_and_no_tokens(wanted: list[list[int]]) -> None:
    """Tokens from the prefix cache have no features: the module starts behind them."""
    llm = engine(SchedulerConfig(256, 4, max_num_seqs=8), 2)
    first, second = (llm.generate([PROMPTS[5]], GREEDY)[0] for _ in range(2))
    assert first.token_ids == second.token_ids == wanted[5]
    assert second.num_cached_tokens > 0
    proposer = llm.executor.speculation.proposer  # type: ignore[union-attr]
    assert isinstance(proposer, Mtp) and not proposer._memories, "requests left their latents"


def test_drawn_texts_repeat_with_their_seed() -> None:
    rule = SamplingParams(temperature=1.0, max_tokens=12, seed=5)
    texts = [engine(LIMITS["plenty"], 2).generate(PROMPTS, rule) for _ in range(2)]
    assert [o.token_ids for o in texts[0]] == [o.token_ids for o in texts[1]]


def test_a_checkpoint_without_a_module_is_named() -> None:
    llm = LLM(CONFIG, random_weights(mtp=False))
    with pytest.raises(InputError, match="no MTP module"):
        Mtp(model_of(llm))
    with pytest.raises(InputError, match="no MTP module"):
        teacher_forced(model_of(llm), torch.tensor([PROMPTS[0]]))


def test_the_paged_engine_is_the_dense_model() -> None:
    """Logits of a text that came in chunks and single tokens, against one pass without a cache."""
    llm = LLM(CONFIG, WEIGHTS, SchedulerConfig(64, 4, max_num_batched_tokens=8, max_num_seqs=2))
    model = model_of(llm)
    seen: list[torch.Tensor] = []
    forward = model.forward
    model.forward = lambda batch: seen.append(forward(batch)) or seen[-1]  # type: ignore
    output = llm.generate([PROMPTS[5]], GREEDY)[0]
    text = torch.tensor([PROMPTS[5] + output.token_ids[:-1]])
    whole = dense_logits(model, text)[0, len(PROMPTS[5]) - 1 :]
    torch.testing.assert_close(torch.cat(seen), whole, rtol=0, atol=2e-5)


def test_teacher_forcing_agrees_with_its_definition() -> None:
    """By hand, at one position: surprise, confidence, agreement and overlap."""
    model = DeepseekDecoder(CONFIG, WEIGHTS, 4, 4)
    windows = torch.tensor([PROMPTS[4], PROMPTS[4][::-1]])
    found = teacher_forced(model, windows)
    own, ahead = dense_logits(model, windows)[1], mtp_logits(model, windows)[1]
    at = 6
    p, q = own[at + 1].softmax(-1), ahead[at].softmax(-1)
    torch.testing.assert_close(found.nll[1, at], -own[at].log_softmax(-1)[windows[1, at + 1]])
    torch.testing.assert_close(found.confidence[1, at], p.max())
    assert bool(found.right[1, at]) == (int(p.argmax()) == int(q.argmax()))
    torch.testing.assert_close(found.overlap[1, at], torch.minimum(p, q).sum())


def test_expert_load_counts_what_was_routed() -> None:
    """Every token of every step, drafts too, top_k times per layer; the trace says the same."""
    llm = engine(LIMITS["plenty"], 0)
    load = ExpertLoad(model_of(llm).mixtures)
    llm.generate(PROMPTS, GREEDY)
    tokens = sum(len(p) for p in PROMPTS) + len(PROMPTS) * (12 - 1)
    assert load.layers == [1] and load.counts.sum().item() == tokens * 3
    assert 1 < load.max_over_mean.item() < 8 / 3 + 1e-6
    taken = load.take()
    log = RouteLog(model_of(llm).mixtures)
    llm.generate([PROMPTS[0][::-1]], GREEDY)  # the same would come from the prefix cache
    routes = log.routes()
    assert list(routes) == [1] and routes[1].shape == (len(PROMPTS[0]) + 11, 3)
    assert taken.shape == (1, 8) and not load.counts.any(), "the log took its place"
