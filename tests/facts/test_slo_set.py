"""SLOs read from text.

What these tests exist for: milliseconds taken for seconds, a misspelt metric that limits nothing, a
limit that silently replaces another.
"""

from __future__ import annotations

import math

import pytest

from minilab.facts.errors import InputError
from minilab.facts.slo import SLO, SLOSet


def test_slo_text_in_seconds_and_with_units() -> None:
    slo = SLO.parse(" itl = 50ms , ttft=0.5s")
    assert isinstance(slo, SLO)
    assert slo.limits == (("ttft", 0.5), ("itl", 0.05))
    assert SLO.parse(str(slo)) == slo == SLO.of({"itl": 0.05, "ttft": 0.5})
    assert SLO.parse("e2e=1.5e3ms") == SLO.of({"e2e": 1.5})


def test_slo_classes_and_default() -> None:
    slos = SLO.parse("chat:ttft=0.5,itl=0.05; batch:e2e=30")
    assert isinstance(slos, SLOSet) and slos.default is None
    assert slos.for_class("batch") == SLO.of({"e2e": 30})
    with_default = SLOSet.parse("ttft=1;batch:e2e=30")
    assert with_default.for_class("anything") == SLO.of({"ttft": 1})
    for each in (slos, with_default):
        assert SLOSet.parse(str(each)) == each


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("itl=61", r"itl=61: times are in seconds; did you mean 61ms\? \(write 61s if"),
        ("itl=50", r"did you mean 50ms\?"),
        ("tpot=40", r"did you mean 40ms\?"),
        ("ttft=500", r"did you mean 500ms\?"),
        ("e2e=30000", r"did you mean 30000ms\?"),
        ("ttft=0.5,ttft=0.6", r"ttft: given twice"),
        ("tttf=0.5", r"'tttf': unknown, did you mean 'ttft'; known: ttft, tpot, itl"),
        ("e2el=5", r"'e2el': unknown, did you mean 'e2e'"),
        ("itl=-0.05", r"itl=-0.05: must be above 0"),
        ("itl=0", r"itl=0: must be above 0"),
        ("itl=nan", r"'nan' is not a time"),
        ("itl=inf", r"'inf' is not a time"),
        ("itl=1e999", r"must be above 0 and finite"),
        ("itl=5min", r"'5min' is not a time"),
        ("itl=0_5", r"'0_5' is not a time"),
        ("itl", r"'itl': no time given; write metric=seconds, such as"),
        ("itl=", r"no time given"),
        ("", r"'': no time given"),
        ("ttft=0.5,", r"'': no time given"),
        ("ttft:300", r"'ttft:300': write metric=seconds"),
        ("ttft=1;itl=1", r"two defaults; name the classes"),
        ("a:ttft=1;a:itl=1", r"class 'a' twice"),
        (":ttft=1", r"a class without a name"),
        ("chat:", r"'': no time given"),
    ],
)
def test_bad_slo_text_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        SLO.parse(text)
    assert "\n" not in str(caught.value)


def test_a_large_time_with_its_unit_is_meant() -> None:
    assert SLO.parse("itl=61s") == SLO.of({"itl": 61})
    assert SLO.parse("ttft=500ms") == SLO.of({"ttft": 0.5})


@pytest.mark.parametrize("limits", [{}, {"ttft": math.nan}, {"ttft": math.inf}, {"speed": 1.0}])
def test_limits_given_as_numbers_obey_the_same_rules(limits: dict[str, float]) -> None:
    with pytest.raises(InputError):
        SLO.of(limits)
