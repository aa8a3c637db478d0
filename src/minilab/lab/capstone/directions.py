"""The four directions: sides, points and workloads, with numbers that a student's name decides.

``point`` is (first axis, second axis). The sides of a direction serve the same requests at each
point. Nobody, its author included, knows the verdicts of a name before they are run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minilab.facts.arrivals import uniform
from minilab.facts.errors import InputError
from minilab.facts.workload import Workload, documents, synthetic
from minilab.lab import seed
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment

Point = tuple[float, float]
LETTERS = ("A", "B", "C", "D")
MODEL = "model report"
"""The name whose workload the model reports use; no student has it."""


@dataclass(frozen=True)
class Direction:
    """One capstone.

    Attributes:
        axes: names of the two quantities that span its map; ``points``: all of them.
        sides: names, the baseline first.
        work: point -> the requests there; ``experiment``: (side, point) -> what serves them.
    """

    letter: str
    title: str
    question: str
    slo: str
    axes: tuple[str, str]
    points: tuple[Point, ...]
    sides: tuple[str, ...]
    work: Callable[[Point], Workload]
    experiment: Callable[[str, Point], Experiment]

    @property
    def baseline(self) -> str:
        """The side that the others are held against."""
        return self.sides[0]


def direction(letter: str, name: str | None = None, requests: int = 150) -> Direction:
    """A direction with the numbers of ``name`` (default: ``MINILAB_STUDENT``).

    Raises:
        InputError: there is no such direction.
    """
    makers = {"A": _split, "B": _spec, "C": _router, "D": _fp8}
    key = letter.strip().upper()
    if key not in makers:
        raise InputError(f"capstone {letter!r}; there are {', '.join(makers)}")
    return makers[key](seed.student() if name is None else name, requests)


def _grid(first: tuple[float, ...], second: tuple[float, ...]) -> tuple[Point, ...]:
    return tuple((x, y) for x in first for y in second)


def _seed(letter: str, name: str) -> int:
    return seed.whole(f"capstone {letter} seed", 1, 10**6, name=name)


def _split(name: str, requests: int) -> Direction:
    prompt = seed.whole("capstone A prompt", 3000, 5000, 250, name)
    longest = seed.whole("capstone A output", 250, 450, 50, name)
    base = Experiment(prefix_cache=False)
    sides: dict[str, Experiment] = {
        "whole, small chunks": base.with_(instances=2, max_num_batched_tokens=512),
        "whole, large chunks": base.with_(instances=2),
        "split": PdExperiment.split(base),
    }
    return Direction(
        letter="A",
        title="A simulator of the prefill/decode split",
        question="For which answers and rates does a prefill GPU of its own beat whole servers?",
        slo="ttft=1,itl=0.03",
        axes=("output_tokens", "rate"),
        points=_grid((8, 128, longest), (4.0, 8.0, 14.0)),
        sides=tuple(sides),
        work=lambda p: synthetic(
            p[1], requests, uniform(prompt, 0.5), int(p[0]), seed=_seed("A", name)
        ),
        experiment=lambda side, _: sides[side],
    )


def _spec(name: str, requests: int) -> Direction:
    prompt = seed.whole("capstone B prompt", 300, 700, 50, name)
    output = seed.whole("capstone B output", 200, 350, 25, name)
    base = Experiment(prefix_cache=False)
    return Direction(
        letter="B",
        title="A prototype of speculative decoding",
        question="At which acceptance and load do drafts pay, and where do they fill the server?",
        slo="ttft=1,itl=0.02",
        axes=("acceptance", "rate"),
        points=_grid((0.3, 0.6, 0.85), (1.0, 8.0, 14.0)),
        sides=("plain", "drafts"),
        work=lambda p: synthetic(
            p[1], requests, uniform(prompt, 0.5), output, seed=_seed("B", name)
        ),
        experiment=lambda side, p: (
            base if side == "plain" else base.with_(num_speculative_tokens=4, acceptance_rate=p[0])
        ),
    )


def _router(name: str, requests: int) -> Direction:
    long = seed.whole("capstone C document", 4000, 8000, 500, name)
    base = Experiment(instances=4)
    names = {
        "round robin": "round-robin",
        "least load": "least-load",
        "prefix aware": "cache-aware",
    }
    return Direction(
        letter="C",
        title="A prefix-aware router",
        question="How many documents, at which rate, until affinity beats balance, and when does "
        "one popular document turn it round?",
        slo="ttft=1,itl=0.05",
        axes=("documents", "rate"),
        points=_grid((1, 20, 100), (4.0, 16.0, 40.0)),
        sides=tuple(names),
        work=lambda p: documents(
            p[1], requests, int(p[0]), long, prompt_tokens=200, output_tokens=100, skew=1.0,
            seed=_seed("C", name),
        ),
        experiment=lambda side, _: base.with_(router=names[side]),
    )  # fmt: skip


def _fp8(name: str, requests: int) -> Direction:
    output = seed.whole("capstone D output", 200, 400, 50, name)
    base = Experiment(gpu="a10", prefix_cache=False, max_num_batched_tokens=512)
    return Direction(
        letter="D",
        title="A capacity benchmark of the FP8 KV cache",
        question="From which prompt length and rate on does half the KV size serve more requests, "
        "and what does it cost in accuracy?",
        slo="ttft=3,itl=0.2",
        axes=("prompt_tokens", "rate"),
        points=_grid((500, 2000, 4000), (0.3, 0.6, 0.9)),
        sides=("bf16 KV", "fp8 KV"),
        work=lambda p: synthetic(
            p[1], max(40, requests // 2), uniform(int(p[0]), 0.5), output, seed=_seed("D", name)
        ),
        experiment=lambda side, _: base.with_(kv_dtype="fp8" if side == "fp8 KV" else "bf16"),
    )
