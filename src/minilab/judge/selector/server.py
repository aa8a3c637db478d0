"""Server: one instance in certain formats; Bench: a deployment on which stacks are compared."""

from typing import Any

from minilab.judge.selector.room import kv_tokens
from minilab.judge.selector.step import Step
from minilab.judge.selector.verdict import Verdict, judge


class Server:
    """One instance of ``tp`` GPUs.

    Attributes:
        step: what its steps cost; room: KV tokens; kv_bytes: KV bytes per token and GPU.
        link: between prefill and decode instances (bandwidth, latency).
    """

    def __init__(self, tables: Any, settings: Any, tp: int, weights: str, kv: str) -> None:
        model, gpu = settings.model, settings.gpu
        self.tp = tp
        self.step = Step(tables, model, gpu, tp, weights, kv)
        self.room = kv_tokens(tables, model, gpu, tp, weights, kv)
        self.kv_bytes = sum(tables["models"][model]["kv"][kv][str(tp)])
        self.link = tables["links"][settings.link]


class Bench:
    """``instances`` instances of ``tp`` GPUs under one workload; each stack is judged once."""

    def __init__(self, tables: Any, settings: Any, tp: int, instances: int) -> None:
        self.tables = tables
        self.settings = settings
        self.tp = tp
        self.instances = instances
        self._servers: dict[str, Server] = {}
        self._verdicts: dict[str, Verdict] = {}

    def judge(self, stack: Any) -> Verdict:
        """The verdict on a stack."""
        name = stack.name()
        if name not in self._verdicts:
            formats = stack.weights + stack.kv
            if formats not in self._servers:
                self._servers[formats] = Server(
                    self.tables, self.settings, self.tp, stack.weights, stack.kv
                )
            server = self._servers[formats]
            self._verdicts[name] = judge(self.settings, stack, server, self.instances)
        return self._verdicts[name]
