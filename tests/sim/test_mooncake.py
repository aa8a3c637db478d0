"""The Mooncake conversation trace through eight instances, in simulated time.

Two definitions are easy to mix up. The *sequential* reader (``facts.prefix_stats``) counts the
partial last block and knows no time; the *timed* cluster counts prompt tokens found in full blocks
at admission, with a finite pool. Round robin over 8 gives 0.136 by the first and 0.137 by the
second, close by accident.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from minilab.core.plain_scheduler import PlainScheduler
from minilab.sim.experiment import Experiment

W3 = Experiment(
    instances=8, block_size=512, kv_blocks=16384, max_num_batched_tokens=8192, max_num_seqs=256
).with_(trace="mooncake-conversation")


def token_hit(experiment: Experiment, **build: object) -> float:
    requests = experiment.run(**build).requests
    return float(requests["cached_tokens"].sum() / requests["prompt_tokens"].sum())


def test_timed_token_hit_of_round_robin(data_folder: Callable[[str], Path]) -> None:
    data_folder("mooncake-fast25")
    assert token_hit(W3) == pytest.approx(0.137, abs=0.004)


@pytest.mark.slow
def test_plain_scheduler_agrees_on_the_whole_trace(data_folder: Callable[[str], Path]) -> None:
    """The oracle, 2.7 million steps one by one, on real prefixes: equal to the last bit."""
    data_folder("mooncake-fast25")
    fast, plain = W3.run(), W3.run(scheduler=PlainScheduler)
    assert fast.difference(plain, 1e-9) is None
