"""``minilab diagnose``: what it prints, how it ends, and what it refuses."""

from __future__ import annotations

import pytest

PAGE = """process_start_time_seconds 1.7e+09
vllm:time_to_first_token_seconds_bucket{le="0.5"} 3.0
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 9.0
vllm:time_to_first_token_seconds_count 9.0
vllm:time_to_first_token_seconds_sum 90.0
vllm:request_queue_time_seconds_count 9.0
vllm:request_queue_time_seconds_sum 80.0
"""


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.txt"
    path.write_text(PAGE)
    return path


def test_text_names_suspect_evidence_and_first_action(cli, page):
    called = cli("diagnose", page)
    assert called.status == 0
    for word in ("1. queueing (fault", "of mean TTFT 10 s", "first", "not yet", "unknown"):
        assert word in called.out


def test_json_has_the_contract(cli, page):
    told = cli("diagnose", page, "--json", "--slo", "ttft=2s,itl=50ms").json
    assert told["slo"] == {"ttft": 2.0, "itl": 0.05}
    first = told["suspects"][0]
    assert first["id"] == "queueing" and 0 < first["score"] <= 1 and first["evidence"]
    assert {item["signal"] for item in told["unknown"]} >= {"kv_usage", "waiting"}


def test_the_place_of_a_file_is_not_told(cli, page):
    assert str(page.parent) not in cli("diagnose", page, "--json").out


@pytest.mark.parametrize(("slo", "status"), [("ttft=1", 3), ("ttft=50", 0)])
def test_exit_code_on_demand(cli, page, slo, status):
    assert cli("diagnose", page, "--slo", slo, "--exit-code").status == status
    assert cli("diagnose", page, "--slo", slo).status == 0


def test_nothing_known_has_a_status_of_its_own(cli, tmp_path):
    path = tmp_path / "idle.txt"
    path.write_text("vllm:num_requests_running 0\n")
    assert cli("diagnose", path, "--exit-code").status == 4


def test_refusals(refused, page, tmp_path):
    assert "nothing to read" in refused("diagnose")
    assert "--watch without --url" in refused("diagnose", page, "--watch")
    assert "no such file" in refused("diagnose", tmp_path / "nowhere.txt")
    assert "give one of them" in refused("diagnose", page, "--slo", "e2e=3")
    assert "no answer" in refused("diagnose", "--url", "http://127.0.0.1:9", "--interval", "0.1")


def test_alert_rules(cli):
    called = cli("diagnose", "--alerts", "--slo", "ttft=2")
    assert called.status == 0 and "alert: MinilabKvCapacity" in called.out
