"""``minilab select``: its contract as JSON, its text, and what it refuses."""

from __future__ import annotations


def test_json_has_the_contract(cli):
    told = cli("select", "rate=5", "prompt=4000", "output=200", "prefix_share=0.8",
               "model=llama-3.1-8b", "gpu=h100", "--json").json  # fmt: skip
    assert told["bottleneck"] in (
        "prefill_compute", "decode_bandwidth", "kv_capacity", "kv_transfer", "queueing",
    )  # fmt: skip
    for name in ("bars", "ttft", "itl", "goodput_per_gpu", "stack", "avoid", "flips", "launch"):
        assert name in told
    assert told["settings"]["rate"] == 5
    assert told["says"] == "a model, not a benchmark"


def test_a_queue_without_bound_is_null(cli):
    told = cli("select", "rate=200", "prompt=8000", "--json", "--no-flips").json
    assert told["ttft"] is None and told["attainment"] == 0


def test_text_says_what_not_to_do_and_how_to_refute_it(cli):
    out = cli("select", "rate=5", "--no-flips").out
    for words in ("Do not rush into", "refute it: minilab load", "a model, not a benchmark"):
        assert words in out


def test_refusals(refused):
    assert "give 0.1 to 200" in refused("select", "rate=x")
    assert "do not fit" in refused("select", "model=deepseek-v3")


def test_settings_from_a_page_of_metrics(cli, refused, tmp_path):
    """What was read is listed, what was given goes before it, what is missing is said."""
    path = tmp_path / "metrics.txt"
    path.write_text(
        "process_start_time_seconds 1\nvllm:request_success_total 100\n"
        'vllm:generation_tokens_total{model_name="Qwen/Qwen3-8B"} 5000\n'
    )
    asked = ("select", "--from", str(path), "--seconds", "20", "--no-flips")
    told = cli(*asked, "output=70", "--json").json
    assert told["read"]["values"] == {"rate": 5.0, "output": 50.0, "model": "qwen3-8b"}
    assert told["settings"]["rate"] == 5 and told["settings"]["output"] == 70
    out = cli(*asked, "output=70").out
    assert "you gave 70" in out and "Not read" in out
    assert "goes with --from" in refused("select", "--seconds", "3")
    assert "cannot be read" in refused("select", "--from", str(tmp_path / "none"))
