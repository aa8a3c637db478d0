"""inference-perf's files.

What these tests exist for: a goodput guessed from quantiles; tokens of one chunk given gaps.
"""

from __future__ import annotations

import numpy as np
import pytest

from minilab.facts import readers
from minilab.facts.errors import InputError
from minilab.facts.slo import good, metric


def test_columns(save, inference_perf_list):
    log = readers.read(save(inference_perf_list))
    np.testing.assert_allclose(log.requests["arrival"], [0, 2, 4, 6])
    np.testing.assert_allclose(metric(log, "ttft"), [0.25, 0.125, np.nan, 0.5])
    np.testing.assert_allclose(metric(log, "tpot")[:2], [0.3001 / 3, 0.0123])
    np.testing.assert_allclose(log.gaps.row(0), [0.0317, 0.0173, 0.2511])
    assert log.requests["status"].tolist() == ["finished", "finished", "failed", "finished"]
    assert good(log, "ttft=10,stall=0.2").tolist() == [False, True, False, True]
    assert log.requests["prompt_tokens"].tolist() == [100, 200, 300, 400]
    assert log.meta["errors"] == {"boom": 1}


def test_an_older_file(save, inference_perf_list):
    """Counts and times stood one level higher; the times were those of chunks."""
    for request in inference_perf_list:
        response = request["info"].pop("response_metrics")
        text = request["info"].pop("request_metrics")["text"]
        request["info"].update(response, **text)
    inference_perf_list[0]["info"]["output_tokens"] = 6
    log = readers.read(save(inference_perf_list))
    np.testing.assert_allclose(log.gaps.row(0), [0.0317, 0.0173, 0.2511, 0, 0])
    assert log.requests["prompt_tokens"].tolist() == [100, 200, 300, 400]


def test_not_streamed(save, inference_perf_list):
    """No token times: ttft and gaps unavailable; the latency is the response's."""
    for request in inference_perf_list:
        request["info"]["response_metrics"]["output_token_times"] = []
    log = readers.read(save(inference_perf_list))
    assert log.gaps is None and metric(log, "ttft") is None and metric(log, "tpot") is None
    np.testing.assert_allclose(metric(log, "e2e")[:2], [0.5511, 0.1383])


@pytest.mark.parametrize("stage", ["stage2_v0", "stage3_base", "stage3_eagle"])
def test_a_summary_is_refused_and_can_be_seen(data_folder, stage):
    """Quantiles of ttft and of tpot do not say how many requests met both."""
    path = data_folder("serving-metrics") / f"inference_perf_{stage}_h100.json"
    with pytest.raises(InputError, match=r"quantiles and no row per request.*per_request: true"):
        readers.read(path)
    told = readers.summary(path)
    assert told["failed"] == 0 and told["requests"] > 3000
    assert told["achieved"] == pytest.approx(told["requested"], rel=1e-3)
    assert 0 < told["ttft"]["p50"] < told["ttft"]["p99"] < told["e2e"]["p99"]
    assert told["ntpot"]["mean"] > told["tpot"]["mean"]  # it includes the first token


def test_the_recorded_summary(data_folder):
    told = readers.summary(data_folder("serving-metrics") / "inference_perf_stage2_v0_h100.json")
    assert told["requests"] == 4762 and told["requested"] == 79.37
    assert told["ttft"]["p99"] == pytest.approx(3.944553039)
    assert told["itl"]["p90"] == pytest.approx(0.024860467)


def test_only_a_summary_is_one(save, inference_perf_list):
    with pytest.raises(InputError, match=r"must be an inference-perf summary; readers.read takes"):
        readers.summary(save(inference_perf_list))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"output_token_times": [501.0, 500.9]}, r"\[1\]: 500.9; must not be before the token"),
        ({"output_token_times": [500.1, "x"]}, r"output_token_times\[1\]: 'x'; must be seconds"),
        ({"output_token_times": [499.0]}, "first_token .* comes before arrival"),
        ({"output_tokens": None}, r"\[0\].info: .*a completed request must have output_tokens"),
        ({"output_tokens": -3}, r"\[0\].info.response_metrics.output_tokens: -3; must be a whole"),
    ],
)
def test_refusals(save, inference_perf_list, change, message):
    inference_perf_list[0]["info"]["response_metrics"].update(change)
    with pytest.raises(InputError, match=message):
        readers.read(save(inference_perf_list))
