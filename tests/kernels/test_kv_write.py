"""kv_write: the kernel where it can run, and what needs no kernel."""

from __future__ import annotations

import pytest


def test_on_the_interpreter(run_cases):
    """The kernel, in Triton's interpreter."""
    run_cases("cases_kv_write.py", "interpreter")


@pytest.mark.gpu
def test_on_a_gpu(run_cases):
    """The same cases, compiled."""
    run_cases("cases_kv_write.py", "gpu", "slow or not slow")
