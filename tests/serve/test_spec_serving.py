"""A server that guesses ahead: the same texts, vLLM's counters, and a diagnosis that reads them."""

from __future__ import annotations

import json
from dataclasses import asdict

import httpx
import pytest

from minilab.cli.main import main

K = 4
NGRAM = {"method": "ngram", "num_speculative_tokens": K, "prompt_lookup_min": 1}
PROMPTS = ["one two three one two", "abcabcabcab", "the end of the start of the end"]
NAME = "vllm:spec_decode_num_"


def asked(prompt: str, **more: object) -> dict[str, object]:
    return {"prompt": prompt, "max_tokens": 40, "temperature": 0, "ignore_eos": True, **more}


def texts(site) -> list[str]:
    replies = [site.post("/v1/completions", asked(prompt)) for prompt in PROMPTS]
    return [reply.json()["choices"][0]["text"] for reply in replies]


@pytest.fixture(scope="module")
def plain(site) -> list[str]:
    return texts(site)


def counts(site) -> dict[str, float]:
    """vLLM's counters, without their common beginning."""
    found = site.metrics().items()
    return {
        name.removeprefix(NAME): value
        for name, value in found
        if name.startswith(NAME) and "_created" not in name
    }


@pytest.mark.parametrize(
    "said",
    [
        NGRAM,
        {**NGRAM, "num_speculative_tokens_per_batch_size": [[1, 8, 2], [9, 64, 0]]},
        {"method": "suffix", "num_speculative_tokens": K},
        {"method": "draft_model", "model": "tiny", "num_speculative_tokens": K},
        {**NGRAM, "prompt_lookup_min": 4, "fallback": {"method": "suffix"}},
    ],
    ids=["ngram", "by batch", "suffix", "draft model", "with a fallback"],
)
def test_a_greedy_text_is_the_same_and_the_counters_agree(make_site, plain, said) -> None:
    """Kept tokens are those of the positions, and no step yields more than its guesses and one."""
    site = make_site(speculative=json.dumps(said), keep_record=True)
    assert texts(site) == plain
    found = counts(site)
    places = [found[f"accepted_tokens_per_pos_total:{i}"] for i in range(K) if
              f"accepted_tokens_per_pos_total:{i}" in found]  # fmt: skip
    assert len(places) == site.llm.executor.speculation.table.most
    assert places == sorted(places, reverse=True)
    assert found["accepted_tokens_total"] == sum(places) > 0
    assert found["drafts_total"] <= found["draft_tokens_total"] <= K * found["drafts_total"]
    assert places[0] <= found["drafts_total"]
    # Every token after each request's first comes from a decode step: its own, or a kept guess.
    whole = site.llm.executor.speculation.counts
    assert whole.num_emitted_tokens == len(PROMPTS) * 39
    assert whole.num_steps == whole.num_emitted_tokens - whole.num_accepted_tokens
    site.stop()
    assert site.log.meta["spec_decode"] == asdict(whole)
    gaps = site.log.requests["output_tokens"]
    assert list(gaps) == [40] * len(PROMPTS)


def test_its_own_model_as_drafter_is_always_right(make_site) -> None:
    """All guesses are kept but those at the end of a text: acceptance length k + 1."""
    said = {"method": "draft_model", "model": "tiny", "num_speculative_tokens": 2}
    site = make_site(speculative=json.dumps(said))
    site.post("/v1/completions", asked("always", max_tokens=31))
    found = counts(site)
    assert found["accepted_tokens_total"] == found["draft_tokens_total"] == 20
    assert found["drafts_total"] == 10


def test_a_server_that_makes_no_guesses_exports_none(site) -> None:
    """vLLM's readers take the counters' presence for "speculation is on"."""
    site.post("/v1/completions", asked("plain"))
    assert counts(site) == {}


def diagnosed(site, tmp_path, capsys) -> list[str]:
    page = tmp_path / "page.txt"
    page.write_text(httpx.get(f"{site.url}/metrics").text)
    capsys.readouterr()
    assert main(["diagnose", str(page), "--json"]) == 0
    return [suspect["id"] for suspect in json.loads(capsys.readouterr().out)["suspects"]]


def test_diagnose_names_guesses_that_are_never_kept(make_site, tmp_path, capsys) -> None:
    """Random text from a small alphabet: single tokens match all the time, and foretell nothing."""
    site = make_site(speculative=json.dumps({**NGRAM, "prompt_lookup_max": 1}))
    for seed in range(4):
        body = asked("aabbccddeeff" * 4, temperature=1.8, seed=seed, max_tokens=60)
        assert site.post("/v1/completions", body).status_code == 200
    found = counts(site)
    assert found["accepted_tokens_total"] < 0.35 * found["draft_tokens_total"]
    assert "spec_low_acceptance" in diagnosed(site, tmp_path, capsys)


def test_diagnose_names_a_proposer_that_has_no_idea(make_site, tmp_path, capsys) -> None:
    site = make_site(speculative=json.dumps({**NGRAM, "prompt_lookup_min": 4}))
    for seed in range(3):
        body = asked("nothing here twice", temperature=1.8, seed=seed, max_tokens=60)
        assert site.post("/v1/completions", body).status_code == 200
    assert "spec_idle" in diagnosed(site, tmp_path, capsys)


def test_the_command_line_refuses_a_bad_config_in_one_line(capsys) -> None:
    """Before any model is loaded, and without a traceback."""
    assert main(["serve", "tiny", "--port", "0", "--speculative-config", "{"]) == 2
    told = capsys.readouterr().err
    assert "--speculative-config: not JSON" in told and "Traceback" not in told
