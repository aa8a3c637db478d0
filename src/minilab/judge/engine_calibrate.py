"""Calibrate on an engine: load it, time its steps, fit the cost, and write all of it down."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from minilab.core.config import SchedulerConfig
from minilab.facts.cost import WfksCost
from minilab.facts.errors import InputError
from minilab.facts.user_input import unknown_name
from minilab.judge.engine_clock import CLOCKS
from minilab.judge.engine_fit import error_summary, fit_steps, medians, residuals
from minilab.judge.engine_steps import StepBench, default_points, sweep
from minilab.judge.engine_store import StepStore
from minilab.sim.environment import versions

WARM_STEPS = 3


@dataclass(frozen=True)
class EngineSetup:
    """Which engine: what ``engine.load.load_llm`` takes, and a scheduler's limits (tokens).

    ``threads``: torch's; ``None`` leaves them as they are. ``clock``: "wall", or "cpu" for a
    machine that others use as well (see ``engine_clock``).
    """

    model: str = "smollm2"
    num_blocks: int = 1024
    block_size: int = 16
    max_num_batched_tokens: int = 256
    max_num_seqs: int = 16
    threads: int | None = None
    clock: str = "wall"

    def __post_init__(self) -> None:
        if self.clock not in CLOCKS:
            raise unknown_name("clock", self.clock, CLOCKS)

    def limits(self, prefix_cache: bool) -> SchedulerConfig:
        """For the scheduler. Raises InputError for limits that cannot work together."""
        try:
            return SchedulerConfig(
                num_blocks=self.num_blocks,
                block_size=self.block_size,
                max_num_batched_tokens=self.max_num_batched_tokens,
                max_num_seqs=self.max_num_seqs,
                enable_prefix_caching=prefix_cache,
            )
        except ValueError as error:
            raise InputError(str(error)) from None

    def load(self, prefix_cache: bool = True) -> Any:
        """The engine, an ``engine.llm.LLM``. Raises InputError where torch is missing."""
        limits = self.limits(prefix_cache)
        try:
            import torch

            from minilab.engine.load import load_llm
        except ModuleNotFoundError as error:
            raise InputError(
                f"the engine needs {error.name}, which is not installed; "
                "pip install minilab[gpu,model]"
            ) from None
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        return load_llm(self.model, limits)


def greedy(tokens: int) -> Any:
    """The engine's sampling parameters for just so many tokens, greedy."""
    from minilab.engine.sampling import SamplingParams

    return SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True)


def machine() -> dict[str, Any]:
    """What measured times belong to."""
    import torch

    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": {**versions(), "torch": torch.__version__},
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.processor() or platform.machine()


def calibrate_engine(
    setup: EngineSetup,
    rounds: int = 5,
    seed: int = 0,
    store: str | Path | None = None,
    tell: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """The fitted cost with all that it rests on, as ``minilab sim --cost`` reads it.

    Keys w, f, k, s, q, t_req (seconds) and ``about``: host, versions, date, seed, setup, residuals
    per kind of step, and their summary.

    Raises:
        InputError: no such model, limits that cannot work, a store of something else.
    """
    llm = setup.load(prefix_cache=False)
    pool = setup.num_blocks * setup.block_size
    points = default_points(
        setup.max_num_seqs, setup.max_num_batched_tokens, pool, llm.max_model_len
    )
    identity = {"setup": asdict(setup), "seed": seed, "machine": machine()}
    steps = StepStore(store, identity)
    if tell is not None:
        tell(f"{len(points)} kinds of steps, {rounds} rounds; {len(steps)} known already")
    bench = StepBench(llm, greedy, seed, CLOCKS[setup.clock]())
    for _ in range(WARM_STEPS):
        bench.measure(points[0])
    begin = time.perf_counter()
    found = sweep(bench, points, rounds, steps.known, steps.keep, tell, seed)
    rows = medians(found)
    cost = fit_steps([row[1] for row in rows], [row[2] for row in rows])
    errors = residuals(cost, rows)
    about = {
        **identity,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "rounds": rounds,
        "seconds": time.perf_counter() - begin,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "error": error_summary(errors),
        "steps": errors,
    }
    return {**cost.to_dict(), "about": about}


def fitted_cost(result: dict[str, Any]) -> WfksCost:
    """The cost model of a result of ``calibrate_engine``."""
    return WfksCost(**{name: result[name] for name in ("w", "f", "k", "s", "q", "t_req")})
