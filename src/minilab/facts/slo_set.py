"""SLO and SLOSet: limits in seconds on the metrics, for all requests or by SLO class.

Read from text such as "ttft=0.5,itl=50ms" or "chat:ttft=0.5,itl=0.05;batch:e2e=30". Only the
limits: which requests meet them is ``facts.slo``. Import from there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from minilab.facts.errors import InputError
from minilab.facts.metrics import METRICS, closest

_TIME = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*(ms|s|)")
_HOW = "such as ttft=0.5,itl=50ms"


@dataclass(frozen=True)
class SLO:
    """Limits that a request must all meet: (metric, seconds) in the order of METRICS."""

    limits: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, limits: Mapping[str, float]) -> SLO:
        """From {metric: seconds}.

        Raises:
            InputError: no limit, an unknown metric, or a limit that is not above 0 and finite.
        """
        if not limits:
            raise InputError(f"SLO: no limit given; name at least one, {_HOW}")
        for name, seconds in limits.items():
            if name not in METRICS:
                raise InputError(
                    f"SLO {name!r}: unknown{closest(name, METRICS)}; known: {', '.join(METRICS)}"
                )
            if not 0 < seconds < math.inf:
                raise InputError(
                    f"SLO {name}={seconds:g}: must be above 0 and finite; "
                    f"leave {name} out if it does not matter"
                )
        return cls(tuple((name, float(limits[name])) for name in METRICS if name in limits))

    @classmethod
    def parse(cls, text: str) -> SLO | SLOSet:
        """An SLO from "ttft=0.5,itl=50ms", an SLOSet from text with classes.

        Raises:
            InputError: in one line, what was given and how to write it.
        """
        slos = SLOSet.parse(text)
        return slos.default if slos.default is not None and not slos.classes else slos

    def __str__(self) -> str:
        return ",".join(f"{name}={seconds!r}" for name, seconds in self.limits)


@dataclass(frozen=True)
class SLOSet:
    """An SLO for each class: (slo_class, SLO), and a default for every other class, if any."""

    classes: tuple[tuple[str, SLO], ...] = ()
    default: SLO | None = None

    @classmethod
    def parse(cls, text: str) -> SLOSet:
        """From "chat:ttft=0.5,itl=0.05;batch:e2e=30"; a part without a class is the default.

        Raises:
            InputError: in one line, what was given and how to write it.
        """
        classes: dict[str, SLO] = {}
        default = None
        for part in text.split(";"):
            name, colon, limits = part.rpartition(":")
            name = name.strip()
            slo = _limits(limits, name)
            if not colon:
                if default is not None:
                    raise InputError(f"SLO {text!r}: two defaults; name the classes: chat:ttft=0.5")
                default = slo
            elif not name or name in classes:
                fault = f"class {name!r} twice" if name else "a class without a name"
                raise InputError(f"SLO {text!r}: {fault}; write each as name:ttft=0.5")
            else:
                classes[name] = slo
        return cls(tuple(classes.items()), default)

    def for_class(self, name: str) -> SLO:
        """The SLO of a class.

        Raises:
            InputError: the class has none and there is no default.
        """
        found = dict(self.classes).get(name, self.default)
        if found is None:
            known = ", ".join(repr(known) for known, _ in self.classes) or "none"
            raise InputError(
                f"SLO: requests of class {name!r} have none (classes with one: {known}); "
                f"add '{name or 'NAME'}:ttft=0.5', or a default without a class"
            )
        return found

    def __str__(self) -> str:
        parts = [] if self.default is None else [str(self.default)]
        return ";".join(parts + [f"{name}:{slo}" for name, slo in self.classes])


def as_slo_set(slos: SLO | SLOSet | str) -> SLOSet:
    """One type for the functions that judge: a single SLO holds for every class."""
    if isinstance(slos, str):
        return SLOSet.parse(slos)
    return SLOSet(default=slos) if isinstance(slos, SLO) else slos


def _limits(text: str, slo_class: str) -> SLO:
    limits: dict[str, float] = {}
    for item in text.split(","):
        name, equals, value = (piece.strip() for piece in item.partition("="))
        if not equals and slo_class.partition(":")[0] in (*METRICS, "e2el"):
            raise InputError(f"SLO '{slo_class}:{text}': write metric=seconds, {_HOW}")
        if not equals or not value:
            raise InputError(f"SLO {item.strip()!r}: no time given; write metric=seconds, {_HOW}")
        if name in limits:
            raise InputError(f"SLO {name}: given twice ({text.strip()!r}); give it once per class")
        limits[name] = _seconds(name, value)
    return SLO.of(limits)


def _seconds(name: str, text: str) -> float:
    match = _TIME.fullmatch(text)
    if match is None:
        raise InputError(f"SLO {name}={text}: {text!r} is not a time; give seconds, {_HOW}")
    value, unit = float(match[1]), match[2]
    if not unit and name in METRICS and METRICS[name].largest < value < math.inf:
        raise InputError(
            f"SLO {name}={text}: times are in seconds; did you mean {text}ms? "
            f"(write {text}s if {text} seconds is meant)"
        )
    return value / 1000 if unit == "ms" else value
