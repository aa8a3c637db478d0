"""System: a deployment under a load, and what is wrong with one, read off its settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from minilab.facts.arrivals import uniform
from minilab.facts.runlog import RunLog
from minilab.facts.workload import Workload, synthetic
from minilab.sim.experiment import Experiment
from minilab.sim.pd_experiment import PdExperiment

SUSPECTS = {
    "rate": "queueing",
    "max_num_seqs": "config_limit",
    "kv_blocks": "kv_capacity",
    "max_num_batched_tokens": "prefill_interference",
    "prompt_tokens": "prefill_heavy",
    "prefix_cache": "prefix_off",
    "weight_dtype": "decode_bound",
    "num_speculative_tokens": "spec_high_batch",
    "instances": "pd_ratio",
    "prefill_instances": "pd_ratio",
    "link": "kv_transfer",
}
"""Setting that went wrong -> what the advisor calls the trouble it makes."""

ROUTERS = {"round-robin": "prefix_miss", "longest-prefix": "router_imbalance"}
"""The same for a router: one ignores where the prefix is, the other how long the queue is."""


@dataclass(frozen=True)
class Traffic:
    """Poisson arrivals. Lengths are tokens, uniform within half of the nominal one.

    With ``groups`` > 0 each prompt begins with one of so many texts of ``shared_tokens``; the k-th
    is asked with weight k**-skew.
    """

    rate: float = 6.0
    count: int = 300
    prompt_tokens: int = 1000
    output_tokens: int = 200
    groups: int = 0
    shared_tokens: int = 1000
    skew: float = 0.0
    seed: int = 1

    def load(self) -> Workload:
        """The requests."""
        return synthetic(
            self.rate,
            self.count,
            uniform(self.prompt_tokens, 0.5),
            uniform(self.output_tokens, 0.5),
            groups=self.groups,
            shared_tokens=self.shared_tokens,
            skew=self.skew,
            seed=self.seed,
        )


@dataclass(frozen=True)
class System:
    """What serves, and what it is asked."""

    experiment: Experiment
    traffic: Traffic

    @property
    def gpus(self) -> int:
        """GPUs in use."""
        return self.experiment.gpus

    @property
    def split(self) -> bool:
        """Whether prefill and decode are apart."""
        return isinstance(self.experiment, PdExperiment)

    def with_(self, **changes: Any) -> System:
        """A copy with other settings, by their names in Traffic, Experiment or PdExperiment.

        ``prefill_instances`` splits a whole system; 0 joins a split one on the same GPUs.

        Raises:
            InputError: a name that none of them has.
        """
        own = {field.name for field in fields(Traffic)}
        traffic = {name: value for name, value in changes.items() if name in own}
        rest = {name: value for name, value in changes.items() if name not in own}
        return System(self._served(rest), replace(self.traffic, **traffic))

    def _served(self, changes: dict[str, Any]) -> Experiment:
        now = self.experiment
        if "prefill_instances" not in changes:
            return now.with_(**changes)
        prefill = changes.pop("prefill_instances")
        if isinstance(now, PdExperiment):
            if prefill:
                return now.with_(prefill_instances=prefill, **changes)
            whole = now.decode_side().with_(instances=now.instances + now.prefill_instances)
            return whole.with_(**changes)
        return PdExperiment.split(now, prefill, changes.pop("instances", 1), **changes)

    def settings(self) -> dict[str, Any]:
        """Every setting by name, those of the traffic included."""
        served = {
            name: value for name, value in self.experiment.to_dict().items() if name != "workload"
        }
        return served | asdict(self.traffic)

    def run(self) -> RunLog:
        """Simulate it."""
        return self.experiment.run(self.traffic.load())


def differences(before: System, after: System) -> dict[str, tuple[Any, Any]]:
    """Settings that differ: name -> (before, after); None where one side has no such setting."""
    old, new = before.settings(), after.settings()
    names = [*old, *(name for name in new if name not in old)]
    return {
        name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)
    }


def truth(healthy: System, sick: System) -> str:
    """The suspect's id that a change of settings stands for; ``healthy`` where none changed.

    Raises:
        ValueError: a setting that stands for no suspect, or settings that stand for several.
    """
    found = set()
    for name, (_, value) in differences(healthy, sick).items():
        suspect = ROUTERS.get(value) if name == "router" else SUSPECTS.get(name)
        if suspect is None:
            raise ValueError(f"{name}={value!r} stands for no suspect; SUSPECTS has the others")
        found.add(suspect)
    if len(found) > 1:
        raise ValueError(f"one drill, one trouble; these settings are several: {sorted(found)}")
    return found.pop() if found else "healthy"
