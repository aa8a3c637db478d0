"""What a run depends on besides its description: the software, and Python's own collector."""

from __future__ import annotations

import gc
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from minilab import __version__


def versions() -> dict[str, str]:
    """What a result depends on."""
    return {
        "minilab": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """A run makes no cycles, and collecting a million live objects now and then costs a tenth."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
