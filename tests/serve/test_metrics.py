"""/metrics: vLLM's names and buckets, and numbers that agree with what happened."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from serving import wait_for

from minilab.core.config import SchedulerConfig
from minilab.judge.advisor.exposition import read_scrape
from minilab.judge.advisor.signals import read_signals
from minilab.judge.advisor.window import Window
from minilab.serve.metrics import ServerMetrics, token_buckets

ASKED = {"prompt": "a prompt of some length", "max_tokens": 9, "temperature": 0, "ignore_eos": True}


def families(text: str) -> dict[str, object]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def buckets(family) -> list[str]:
    return sorted({s.labels["le"] for s in family.samples if s.name.endswith("_bucket")}, key=float)


def test_names_types_labels_and_buckets_are_those_of_vllm(data_folder) -> None:
    """A dashboard or reader made for vLLM that finds another name shows an empty panel."""
    recorded = (data_folder("serving-metrics") / "vllm032_low.metrics.txt").read_text()
    theirs = families(recorded)
    limits = SchedulerConfig(num_blocks=8, max_num_batched_tokens=512)
    ours = families(ServerMetrics("tiny", limits, 2048).text().decode())
    missing = {name for name in ours if name.startswith("vllm:")} - theirs.keys()
    assert not missing
    for name, family in ours.items():
        model = theirs[name]
        assert family.type == model.type, name
        if name == "vllm:cache_config":
            continue
        labels = {key for s in model.samples for key in s.labels}
        assert {key for s in family.samples for key in s.labels} - {"engine"} <= labels, name
        assert buckets(family) == buckets(model), name


def test_token_buckets_are_cut_at_the_longest_request() -> None:
    assert token_buckets(2048) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
    assert token_buckets(7) == (1, 2, 5)


def test_counts_agree_with_what_happened(make_site) -> None:
    """Twelve requests, the second six of equal prompts: tokens, hits, ends and histograms."""
    site = make_site()
    prompts = [f"{i}" * 40 for i in range(6)] * 2
    with ThreadPoolExecutor(3) as pool:
        bodies = [{**ASKED, "prompt": prompt} for prompt in prompts]
        first = list(pool.map(lambda body: site.post("/v1/completions", body).json(), bodies[:6]))
        again = list(pool.map(lambda body: site.post("/v1/completions", body).json(), bodies[6:]))
    assert site.post("/v1/completions", b"no JSON").status_code == 400
    usage = [reply["usage"] for reply in first + again]
    cached = sum(one["prompt_tokens_details"]["cached_tokens"] for one in usage)
    assert cached == 6 * 32  # two blocks of 16 of each 40
    wait_for(lambda: not site.service.in_flight)
    found = {name.removeprefix("vllm:"): value for name, value in site.metrics().items()}
    assert found["prompt_tokens_total"] == sum(one["prompt_tokens"] for one in usage) == 480
    assert found["generation_tokens_total"] == sum(one["completion_tokens"] for one in usage) == 108
    assert found["prefix_cache_queries_total"] == 480
    assert found["prefix_cache_hits_total"] == found["prompt_tokens_cached_total"] == cached
    assert found["request_prefill_kv_computed_tokens_sum"] == 480 - cached
    assert found["iteration_tokens_total_sum"] == 480 - cached + 12 * 8  # no step for a last token
    assert found["iteration_tokens_total_count"] == site.llm.num_steps
    ends = {reason: found[f"request_success_total:{reason}"] for reason in ("stop", "length")}
    assert ends == {"stop": 0, "length": 12}
    for name in ("e2e_request_latency", "request_queue_time", "request_prefill_time"):
        assert found[f"{name}_seconds_count"] == 12
    assert found["time_to_first_token_seconds_count"] == 12
    assert found["inter_token_latency_seconds_count"] == 12 * 8
    assert found["request_time_per_output_token_seconds_count"] == 12
    assert math.isclose(
        found["inter_token_latency_seconds_sum"], found["request_decode_time_seconds_sum"]
    )
    whole = found["request_queue_time_seconds_sum"] + found["request_inference_time_seconds_sum"]
    assert math.isclose(found["e2e_request_latency_seconds_sum"], whole)
    assert found["kv_cache_usage_perc"] == found["num_requests_running"] == 0


def test_our_own_reader_reads_it(make_site) -> None:
    """The advisor must see the same requests as the client, and no line that it cannot read."""
    site = make_site()
    for _ in range(3):
        site.post("/v1/completions", ASKED)
    wait_for(lambda: not site.service.in_flight)
    scrape = read_scrape(httpx.get(f"{site.url}/metrics").text)
    assert (scrape.num_unread, scrape.repeated) == (0, 0)
    signals = read_signals(Window([scrape]), {"ttft": 60.0}, "ours")
    seen = {name: signals.get(name) for name in ("requests", "hit_rate", "prefix_on")}
    assert seen == {"requests": 3, "hit_rate": 2 * 16 / 69, "prefix_on": 1.0}
    assert signals.get("ttft_over") == 0


def test_gauges_show_who_runs_and_who_waits(make_site) -> None:
    site = make_site(scheduler={"num_blocks": 64, "max_num_seqs": 2})
    site.gate.clear()
    with ThreadPoolExecutor(5) as pool:
        inside = [pool.submit(site.post, "/v1/completions", ASKED) for _ in range(5)]
        try:
            wait_for(lambda: site.service.in_flight == 5)
            assert site.held.wait(10)
            found = site.metrics()
            assert found["vllm:num_requests_running"] == 0
            assert found["vllm:num_requests_waiting"] == 5
            site.one_step()
            site.one_step()
            found = site.metrics()
            assert found["vllm:num_requests_running"] == 2
            assert found["vllm:num_requests_waiting"] == 3
            used = site.llm.scheduler.pool.used
            assert found["vllm:kv_cache_usage_perc"] == used / 64 > 0
        finally:
            site.gate.set()
        assert {reply.result().status_code for reply in inside} == {200}


def test_preemptions_are_counted(make_site) -> None:
    """Two texts outgrow a pool that both fit at first; both still get every token."""
    site = make_site(scheduler={"num_blocks": 8, "enable_prefix_caching": False})
    with ThreadPoolExecutor(2) as pool:
        bodies = [{**ASKED, "prompt": letter * 30, "max_tokens": 80} for letter in "ab"]
        replies = list(pool.map(lambda body: site.post("/v1/completions", body).json(), bodies))
    assert [reply["usage"]["completion_tokens"] for reply in replies] == [80, 80]
    found = site.metrics()
    assert found["vllm:num_preemptions_total"] == found["vllm:request_num_preemptions_sum"] > 0
    assert found["vllm:prefix_cache_queries_total"] == 0  # no cache, no queries, as in vLLM
    site.nothing_left()


def test_it_is_text_that_prometheus_reads(site) -> None:
    response = httpx.get(f"{site.url}/metrics")
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "vllm:num_requests_running" in families(response.text)


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_probes_need_no_key(make_site, path) -> None:
    """A balancer and Prometheus have none; what they see holds no text of anybody."""
    assert httpx.get(f"{make_site(keys=('secret',)).url}{path}").status_code == 200
