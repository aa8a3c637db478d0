"""Lab 07: the arithmetic of its exercises turns where the selector turns.

A transition that the formula puts elsewhere than the bars of the page would teach two truths.
"""

from __future__ import annotations

import json

import pytest

from minilab.facts.errors import InputError
from minilab.judge.selector.page import Page
from minilab.judge.selector.parameters import parameters, settings_of
from minilab.judge.selector.report import report
from minilab.judge.selector.server import Server
from minilab.judge.selector.split import transfer_time
from minilab.judge.selector.tables import as_json, tables
from minilab.lab.exercises.lab07.crossover import crossover
from minilab.lab.exercises.lab07.drafts import losing_batch
from minilab.lab.exercises.lab07.link import slowest_link
from minilab.lab.exercises.lab07.pool import filling_rate
from minilab.lab.parameter_controls import rounded
from minilab.lab.selector_widget import SelectorWidget

RELAXED = {"ttft": 60, "itl": 1}
"""Limits so far away that a bar is a share of time or of tokens."""


def bars(**given: object) -> dict[str, float]:
    return dict(report(tables(), settings_of(given))["bars"])


def server(**given: object) -> Server:
    return Server(tables(), settings_of(given), 1, "native", "bf16")


@pytest.mark.parametrize("prompt", [300, 2000, 6000])
def test_decode_overtakes_prefill_at_the_output_length_of_7_1(prompt: int) -> None:
    step = server().step
    here = crossover(
        prompt, step.prompt(prompt, 0, 1), step.per_token + step.per_seq, step.per_context
    )
    before, after = (bars(prompt=prompt, output=n, rate=4, **RELAXED) for n in (here - 1, here))
    assert before["decode_bandwidth"] <= before["prefill_compute"]
    assert after["decode_bandwidth"] > after["prefill_compute"]


@pytest.mark.parametrize("prompt", [500, 8000, 30000])
def test_transfer_overtakes_the_prompt_below_the_bandwidth_of_7_2(prompt: int) -> None:
    here = server()
    step, seen = here.step, set()
    for name, link in tables()["links"].items():
        own = step.per_step(prompt) + step.per_seq + step.per_pair * prompt * (prompt + 1) / 2
        slowest = slowest_link(prompt, here.kv_bytes, own, link["latency"])
        assert slowest is not None
        assert transfer_time(
            prompt, here.kv_bytes, {"latency": link["latency"], "bandwidth": slowest}
        ) == pytest.approx(own)
        told = bars(prompt=prompt, output=200, rate=0.5, gpus=2, layout="split", link=name)
        wins = told["kv_transfer"] > told["prefill_compute"]
        assert wins == (link["bandwidth"] < slowest), name
        seen.add(wins)
    assert seen == {True, False}, "the links at hand lie on both sides"


@pytest.mark.parametrize(("prompt", "output"), [(3000, 1000), (8000, 300), (2000, 4000)])
def test_the_pool_is_full_at_the_rate_of_7_3(prompt: int, output: int) -> None:
    here = server()
    flying, context = here.room / (prompt + output / 2), prompt + output / 2
    step, work = here.step.decode(flying, context), here.step.prompt(prompt, 0, flying)
    rate = filling_rate(here.room, prompt, output, step, work)
    given = {"prompt": prompt, "output": output, **RELAXED}
    assert bars(rate=0.97 * rate, **given)["kv_capacity"] < 0.99
    assert bars(rate=1.001 * rate, **given)["kv_capacity"] == pytest.approx(1)


def speedup(batch: int, context: float, acceptance: float) -> float:
    """Of drafting four tokens, by the selector's own steps."""
    step, emitted = server().step, sum(acceptance**n for n in range(5))
    return step.decode(batch, context) * emitted / (1.2 * step.decode(batch, context, 5.0))


@pytest.mark.parametrize(("acceptance", "context"), [(0.4, 1000.0), (0.6, 300.0), (0.7, 60.0)])
def test_drafting_loses_from_the_batch_of_7_4_on(acceptance: float, context: float) -> None:
    step = server().step
    reading = step.per_seq + step.per_context * context
    here = losing_batch(step.fixed, step.per_token, reading, acceptance, 4, 0.05)
    assert here is not None
    assert speedup(here - 1, context, acceptance) >= 1 > speedup(here, context, acceptance)


def test_a_long_context_keeps_drafting_ahead() -> None:
    """None: the reading of the KV is shared by all positions, so a full batch still gains."""
    step = server().step
    reading = step.per_seq + step.per_context * 8000
    assert losing_batch(step.fixed, step.per_token, reading, 0.8, 4, 0.05) is None
    assert speedup(100_000, 8000, 0.8) > 1


def test_the_notebooks_numbers_are_the_pages() -> None:
    widget = SelectorWidget(rate=12, prompt=3000, gpus=2, prefix_share=0.5)
    page = Page(as_json(), json.dumps(parameters()))
    told = page.report(json.dumps(widget.values()))
    assert json.loads(told)["bars"] == [list(row) for row in widget.report()["bars"]]
    assert json.loads(told)["recommended"] == widget.report()["recommended"]


def test_a_moved_slider_changes_the_table() -> None:
    widget = SelectorWidget(output=20)
    before = widget.told.value
    assert "prefill compute" in before.split("</b>")[0]
    widget.controls["output"].value = 600
    assert "decode bandwidth" in widget.told.value.split("</b>")[0]
    assert widget.values()["output"] == 600


def test_every_parameter_has_a_control_and_its_range() -> None:
    widget = SelectorWidget()
    assert list(widget.controls) == [row["name"] for row in parameters()]
    assert widget.values() == {row["name"]: row["default"] for row in parameters()}
    for row in parameters():
        if "min" in row:
            for edge in ("min", "max"):
                settings_of({row["name"]: rounded(row, row[edge])})


def test_a_workload_that_does_not_fit_is_said() -> None:
    widget = SelectorWidget(model="llama-3.1-405b", gpu="l4")
    assert "does not fit" in widget.told.value
    assert "does not fit" in widget.text()


def test_a_wrong_start_is_refused() -> None:
    with pytest.raises(InputError, match="rate"):
        SelectorWidget(rate=-1)
