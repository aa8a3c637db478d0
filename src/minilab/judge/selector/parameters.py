"""The selector's parameters as data, and settings from words such as ``rate=5 gpu=h100``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from minilab.facts.errors import InputError
from minilab.facts.user_input import tidy_name, unknown_name
from minilab.judge.selector.tables import tables
from minilab.judge.selector.workload import Settings


@cache
def parameters() -> list[dict[str, Any]]:
    """Name, label, unit, range or choices, default and one line of help, in order of display."""
    place = files("minilab.judge.selector") / "parameters.json"
    found: list[dict[str, Any]] = json.loads(place.read_text("utf-8"))
    return found


def choices(parameter: dict[str, Any]) -> list[str]:
    """What a parameter that is a word may be; empty for numbers."""
    kind = parameter.get("kind")
    if kind == "choice":
        return list(parameter["choices"])
    return sorted(tables()[kind]) if kind else []


def settings_of(given: dict[str, Any]) -> Settings:
    """Settings with these values, checked.

    Raises:
        InputError: an unknown name, or a value that is out of range.
    """
    known = {parameter["name"]: parameter for parameter in parameters()}
    values = {}
    for name, value in given.items():
        if name not in known:
            raise InputError(f"select: {unknown_name('parameter', name, known)}")
        values[name] = _checked(known[name], value)
    return Settings(parameters(), values)


def parse(words: Sequence[str], read: Mapping[str, Any] | None = None) -> Settings:
    """Settings from ``name=value`` words, over those that were ``read`` elsewhere.

    Raises:
        InputError: a word of another form, an unknown name, a value that is out of range.
    """
    given = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not value:
            raise InputError(f"select: {word!r} is no name=value; write such as rate=5")
        if name in given:
            raise InputError(f"select: {name} is given twice; give it once")
        given[name] = value
    return settings_of({**(read or {}), **given})


def _checked(parameter: dict[str, Any], value: Any) -> Any:
    name, words = parameter["name"], choices(parameter)
    if words:
        word = tidy_name(str(value))
        if word not in words:
            raise InputError(f"select: {unknown_name(name, str(value), words)}")
        return word
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    low, high = parameter["min"], parameter["max"]
    if not low <= number <= high:
        unit = f" {parameter['unit']}" if parameter["unit"] else ""
        raise InputError(f"select: {name} is {value}; give {low:g} to {high:g}{unit}")
    return number
