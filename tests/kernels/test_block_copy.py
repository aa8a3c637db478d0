"""block_copy: the kernel where it can run, and what needs no kernel."""

from __future__ import annotations

import pytest


def test_on_the_interpreter(run_cases):
    """The kernel, in Triton's interpreter."""
    run_cases("cases_block_copy.py", "interpreter")


@pytest.mark.gpu
def test_on_a_gpu(run_cases):
    """The same cases, compiled."""
    run_cases("cases_block_copy.py", "gpu", "slow or not slow")
