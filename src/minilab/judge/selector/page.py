"""What the page asks of the selector: JSON text in, JSON text out. Runs under MicroPython."""

import json
import math
from typing import Any

from minilab.judge.selector.choose import choose_now
from minilab.judge.selector.report import flips, numbers, report
from minilab.judge.selector.workload import Settings


class Page:
    """The selector behind the sliders."""

    def __init__(self, tables: str, parameters: str) -> None:
        self.tables = json.loads(tables)
        self.parameters = json.loads(parameters)

    def report(self, given: str) -> str:
        """``levers.report`` of the settings in ``given``; a number without bound is null."""
        return json.dumps(finite(report(self.tables, self.settings(given))))

    def flips(self, given: str) -> str:
        """``levers.flips`` of the settings in ``given``."""
        return json.dumps(finite(flips(self.tables, self.settings(given))))

    def batch(self, given: str) -> str:
        """Bars and numbers of the stack that is set, for a list of settings: a curve at once."""
        rows = []
        for values in json.loads(given):
            found = choose_now(self.tables, Settings(self.parameters, values))
            rows.append(None if found is None else numbers(found))
        return json.dumps(finite(rows))

    def settings(self, given: str) -> Settings:
        """Settings of the page's JSON."""
        return Settings(self.parameters, json.loads(given))


def finite(value: Any) -> Any:
    """The same with None for numbers without bound, tuples as lists."""
    if isinstance(value, dict):
        return {key: finite(value[key]) for key in value}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and (value != value or abs(value) == math.inf):
        return None
    return value
