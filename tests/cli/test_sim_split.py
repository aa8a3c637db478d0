"""``minilab sim`` with two pools: every option does something, and what comes out adds up.

An option that is parsed and dropped would leave a result that claims what was not run.
"""

from __future__ import annotations

import pytest

from minilab.cli.split_args import FIELDS

SPLIT = (
    *("sim", "--trace", "synthetic", "--limit", 150, "--rate", 12, "--prompt-tokens", 3000),
    *("--output-tokens", 40, "--jitter", 0.5, "--prefill-instances", 1, "--json"),
)
TIGHT = ("--kv-blocks", 700)


@pytest.mark.parametrize(
    ("base", "options", "differs"),
    [
        ((), ("--prefill-instances", 2), "ttft"),
        ((), ("--prefill-gpu", "a100-80g"), "ttft"),
        ((), ("--prefill-tp", 2), "ttft"),
        ((), ("--prefill-kv-blocks", 300), "ttft"),
        ((), ("--prefill-max-num-batched-tokens", 1000), "ttft"),
        ((), ("--prefill-max-num-seqs", 1), "queue"),
        (("--prefill-instances", 3), ("--prefill-router", "random"), "ttft"),
        ((), ("--pd-mode", "never"), "itl"),
        (("--pd-mode", "length"), ("--max-local-prefill-length", 3000), "split"),
        (("--pd-mode", "queue"), ("--max-prefill-queue-size", 0), "split"),
        ((), ("--link", "ethernet-25"), "e2e"),
        (("--together",), ("--inner-link", "pcie-4"), "e2e"),
        ((), ("--link-bandwidth", 1e9), "e2e"),
        ((), ("--together",), "e2e"),
        (("--together",), ("--gpus-per-node", 1), "e2e"),
        (
            ("--prefill-instances", 2, "--instances", 2, "--link", "ethernet-10"),
            ("--nics-per-node", 1),
            "e2e",
        ),
        ((), ("--reserve", "arrival"), "ttft"),
        (("--reserve", "arrival"), ("--overlap",), "stall"),
        ((), ("--gather",), "e2e"),
        ((), ("--first-token", "decode"), "ttft"),
        (TIGHT, ("--headroom-tokens", 2000), "e2e"),
        ((), ("--alpha", 1e-4), "e2e"),
        (("--link", "ethernet-10"), ("--max-transfers", 1), "split"),
        ((), ("--failure-rate", 0.3), "e2e"),
        (("--failure-rate", 0.3), ("--on-failure", "fail"), "failed"),
        (("--kv-blocks", 300, "--prefill-kv-blocks", 9000), ("--no-preempt",), "kv"),
    ],
)
def test_option_has_an_effect(cli, base, options, differs):
    assert cli(*SPLIT, *base, *options).json[differs] != cli(*SPLIT, *base).json[differs]


def test_every_field_has_its_option(cli):
    text = cli("sim", "--help").out.replace("\n", " ")
    renamed = {"apart": "--together", "preempt": "--no-preempt"}
    for field in FIELDS:
        assert f" {renamed.get(field, '--' + field.replace('_', '-'))} " in text, field


def test_the_report_names_both_pools_and_every_stage(cli):
    found = cli(*SPLIT).json
    assert found["gpus"] == 2 and found["split"]["split_requests"] == 150
    stages = found["split"]["stages"]
    total = sum(stage["mean"] for stage in stages.values())
    assert total == pytest.approx(found["e2e"]["mean"], rel=1e-9)
    text = cli(*SPLIT[:-1]).out
    assert "1 prefill (1 x h100 each), 1 decode; mode always" in text
    assert "transfer_wait" in text and "no KV transfer" not in text


def test_a_split_without_a_pool_is_refused(refused):
    said = refused("sim", "--trace", "synthetic", "--gather")
    assert "--gather is about a prefill/decode split; give --prefill-instances" in said


def test_unknown_words_are_refused_in_one_line(refused):
    assert "unknown link 'string'" in refused(*SPLIT, "--link", "string")
    assert "pd_mode is 'maybe'" in refused(*SPLIT, "--pd-mode", "maybe")
