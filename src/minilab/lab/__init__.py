"""lab: everything a notebook needs, as ``from minilab import lab``.

The functions below are imported at once although some modules bear their names: a name that is
both a module and a function must be bound to the function before anyone imports the module. They
are light (standard library only); matplotlib, IPython and the simulator are imported when used.
"""

from __future__ import annotations

import importlib
from typing import Any

from minilab.lab.check import check
from minilab.lab.colab import environment
from minilab.lab.hints import hint
from minilab.lab.predict import calibration, outcome, predict
from minilab.lab.report import report
from minilab.lab.show import STYLE, show, style

env = environment  # the short name for the first cell

__all__ = [
    "STYLE", "calibration", "check", "env", "environment", "hint", "outcome", "predict", "report",
    "show", "style",
]  # fmt: skip

_ON_USE = {"Experiment": "minilab.lab.experiment"}


def __getattr__(name: str) -> Any:
    if name not in _ON_USE:
        raise AttributeError(f"minilab.lab has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_ON_USE[name]), name)
