"""Small runs and logs behind the self-check's questions: what a question describes, made.

The prefix questions go through the simulator, so that their answers are those of its block pool.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from minilab.facts.gap_lists import GapLists
from minilab.facts.metrics import metric
from minilab.facts.request import Request
from minilab.facts.runlog import RunLog, blank_requests
from minilab.facts.slo import Goodput, cost_per_good_request, goodput
from minilab.facts.workload import Workload
from minilab.sim.experiment import Experiment

SOURCE = {"name": "self-check", "kind": "synthetic", "origin": "self-check", "sha256": None}


@cache
def ten_requests() -> Goodput:
    """Ten requests in ten seconds on two GPUs: seven in time, two late, one failed."""
    columns = blank_requests(10)
    columns["arrival"] = np.arange(10.0) * 0.8
    columns["first_token"] = columns["arrival"] + np.array([0.5] * 7 + [3.0, 3.0, np.nan])
    columns["finish"] = np.minimum(columns["first_token"] + 1.0, 10.0)
    columns["finish"][8] = 10.0
    columns["output_tokens"][:9] = 1
    columns["status"][:9] = "finished"
    return goodput(RunLog(columns), "ttft=1", gpus=2)


@cache
def one_stall() -> RunLog:
    """One answer of 41 tokens: 39 gaps of 25 ms and one of 1,025 ms, the first token at 0.5 s."""
    columns = blank_requests(1)
    gaps = [0.025] * 20 + [1.025] + [0.025] * 19
    columns["arrival"][0], columns["first_token"][0] = 0.0, 0.5
    columns["finish"][0] = 0.5 + sum(gaps)
    columns["output_tokens"][0], columns["status"][0] = 41, "finished"
    return RunLog(columns, GapLists.of([gaps]))


def only(log: RunLog, name: str) -> float:
    """The metric of the first request."""
    values = metric(log, name)
    assert values is not None, f"the log was made with everything that {name} needs"
    return float(values[0])


def cost_of_a_thousand() -> float:
    """Dollars per thousand good requests of ``ten_requests`` at 2 dollars a GPU hour."""
    found = cost_per_good_request(ten_requests(), 2.0)
    assert found is not None, "seven requests are good"
    return 1000 * found


def served(
    prompts: list[tuple[tuple[int, int], ...]], instances: int = 1, salts: tuple[str, ...] = ()
) -> RunLog:
    """Prompts, ten seconds apart, through the simulator's own prefix cache, round robin."""
    requests = [
        Request(
            at,
            10.0 * at,
            sum(length for _, length in prompt),
            1,
            prompt,
            cache_salt=salts[at] if salts else None,
        )
        for at, prompt in enumerate(prompts)
    ]
    work = Workload(requests, None, None, SOURCE).validate()
    return Experiment(instances=instances).run(work)


def computed_again() -> float:
    """Tokens computed when a prompt of 4,096 comes a second time."""
    log = served([((7, 4096),)] * 2)
    return float(4096 - log.requests["cached_tokens"][1])


def shared_part() -> float:
    """Tokens found when two prompts share their first 1,000."""
    log = served([((7, 1000), (8 + at, 500)) for at in range(2)])
    return float(log.requests["cached_tokens"][1])


def found_round_robin() -> float:
    """Percent of ten questions on one document that find it, over four replicas."""
    log = served([((7, 8000), (8 + at, 100)) for at in range(10)], instances=4)
    return 100 * float((log.requests["cached_tokens"] > 0).mean())


def computed_by_tenants() -> float:
    """Times that a document is computed for three salted tenants of five questions each."""
    salts = tuple(f"tenant {at % 3}" for at in range(15))
    log = served([((7, 8000), (8 + at, 100)) for at in range(15)], salts=salts)
    return float((log.requests["cached_tokens"] == 0).sum())
