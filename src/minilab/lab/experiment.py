"""Experiment for notebooks: ``from minilab import lab; lab.Experiment(gpu="l4").run()``."""

from __future__ import annotations

from minilab.sim.experiment import Experiment
from minilab.sim.moe_experiment import MoeExperiment
from minilab.sim.workload_spec import WorkloadSpec

__all__ = ["Experiment", "MoeExperiment", "WorkloadSpec"]
