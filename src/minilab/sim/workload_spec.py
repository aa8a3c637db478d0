"""WorkloadSpec: which requests an experiment serves, as a value that can be hashed and stored."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from minilab.facts.arrivals import uniform, whole
from minilab.facts.errors import InputError
from minilab.facts.traces import load, load_file, names
from minilab.facts.user_input import unknown_name
from minilab.facts.workload import Workload, closed_loop, synthetic
from minilab.sim.limits import check_requests


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """A trace by name or file, or a synthetic stream.

    Attributes:
        trace: a name of ``facts.traces``; ``synthetic`` makes the requests from what follows.
        file: a trace file of your own instead of a name.
        limit: only the first so many requests.
        speedup: arrival times divided by this.
        rate: requests per second; a trace is stretched to it. ``None``: a trace's own, 4 if
            synthetic.
        prompt_tokens, output_tokens: lengths of synthetic requests.
        jitter: synthetic lengths are uniform in [1 - jitter, 1 + jitter] of the nominal one.
        arrivals: ``poisson``, ``gamma`` (with ``cv``) or ``constant``.
        concurrency: closed loop with so many clients.
        seed: of everything random in the workload.
    """

    trace: str = "azure-conv-2023"
    file: str | None = None
    limit: int | None = None
    speedup: float = 1.0
    rate: float | None = None
    prompt_tokens: int = 1024
    output_tokens: int = 128
    jitter: float = 0.0
    arrivals: str = "poisson"
    cv: float = 1.0
    concurrency: int | None = None
    seed: int = 0

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> WorkloadSpec:
        """The spec with these fields.

        Raises:
            InputError: a field that does not exist.
        """
        known = [f.name for f in fields(cls)]
        for name in data:
            if name not in known:
                raise InputError(f"workload: {unknown_name('field', name, known)}")
        return cls(**data)

    def load(self) -> Workload:
        """The requests; the last few specs are kept, since sweeps ask for them again and again.

        Raises:
            InputError: no such trace, or one that cannot be read.
        """
        return _load(self)

    def make(self) -> Workload:
        """The requests, made or read now."""
        if self.trace == "synthetic" and self.file is None:
            work = self._synthetic()
        else:
            work = _read(self.trace, self.file, self.limit)
            if self.rate is not None:
                work = work.scaled_to_rate(self.rate)
        if self.speedup != 1.0:
            work = work.speedup(self.speedup)
        if self.concurrency is not None:
            work = replace(work, concurrency=self.concurrency).validate()
        return work

    def _synthetic(self) -> Workload:
        prompt = uniform(self.prompt_tokens, self.jitter)
        output = uniform(self.output_tokens, self.jitter)
        n = 1000 if self.limit is None else whole("limit", self.limit)
        check_requests(n)
        if self.concurrency is not None:
            return closed_loop(self.concurrency, n, prompt, output, seed=self.seed)
        rate = 4.0 if self.rate is None else self.rate
        return synthetic(
            rate, n, prompt, output, arrivals=self.arrivals, cv=self.cv, seed=self.seed
        )


@lru_cache(maxsize=8)
def _load(spec: WorkloadSpec) -> Workload:
    return spec.make()


@lru_cache(maxsize=4)
def _read(trace: str, file: str | None, limit: int | None) -> Workload:
    """A trace is read once per process, however many rates it is replayed at."""
    if file is not None:
        return load_file(file, limit)
    if trace not in names():
        raise unknown_name("trace", trace, names())
    return load(trace, limit)
