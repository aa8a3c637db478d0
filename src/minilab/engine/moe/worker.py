"""One process of a model that several run together: ``python -m minilab.engine.moe.worker``.

In mode "ep" a process serves its own prompts (its own scheduler and KV: attention is data-parallel)
and has some of the experts. A step is one for all: who has nothing to do still takes part in every
exchange. In mode "tp" all processes serve all prompts, each with a slice of every matrix.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from minilab.core.config import SchedulerConfig
from minilab.engine.batch import StepBatch
from minilab.engine.deepseek.config import DeepseekConfig
from minilab.engine.deepseek.model import DeepseekDecoder
from minilab.engine.llm import LLM
from minilab.engine.moe.dispatch import ExpertParallel, Placement, per_pair, per_rank
from minilab.engine.moe.group import Group, GroupError
from minilab.engine.moe.layer import LocalExperts
from minilab.engine.moe.tensor_parallel import tensor_slice
from minilab.engine.sampling import SamplingParams
from minilab.facts.errors import InputError

MODES = ("ep", "tp")
SENDING = {"per_rank": per_rank, "per_pair": per_pair}


@dataclass(frozen=True)
class Job:
    """What a group does.

    Attributes:
        checkpoint: a folder that ``engine.loader`` reads.
        prompts: token ids; prompt i is served by process i % size in mode "ep".
        mode: "ep" or "tp".
        sending: "per_rank" or "per_pair", in mode "ep".
        timeout: seconds that a step may take before the group gives up.
        logits: also keep what every token was chosen from.
    """

    checkpoint: str
    prompts: list[list[int]]
    max_tokens: int = 16
    mode: str = "ep"
    sending: str = "per_rank"
    timeout: float = 30.0
    logits: bool = False

    def __post_init__(self) -> None:
        if self.mode not in MODES or self.sending not in SENDING:
            raise InputError(
                f"mode {self.mode!r}, sending {self.sending!r}; give one of {', '.join(MODES)} "
                f"and one of {', '.join(SENDING)}"
            )


def shared_llm(
    job: Job, config: DeepseekConfig, weights: Mapping[str, torch.Tensor], group: Group
) -> LLM:
    """This process's part of the model, wired to the group."""
    limits = SchedulerConfig(num_blocks=256, block_size=16)
    if job.mode == "tp":
        config, weights = tensor_slice(config, weights, group.rank, group.size)
        llm = LLM(config, weights, limits)
        for layer in _model(llm).layers:
            layer.reduce = group.all_reduce
        return llm
    llm = LLM(config, weights, limits)
    for mixture in _model(llm).mixtures:
        whole = mixture.experts
        assert isinstance(whole, LocalExperts)
        placement = Placement.contiguous(len(whole.w1), group.size)
        mine = placement.share(whole, group.rank)
        mixture.experts = ExpertParallel(group, mine, placement, SENDING[job.sending])
    return llm


def run_together(llm: LLM, group: Group, prompts: list[list[int]], count: int) -> list[list[int]]:
    """Serve ``prompts`` greedily in step with the group; returns their tokens."""
    rule = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True)
    states = [llm.add(prompt, rule) for prompt in prompts]
    while group.any(llm.scheduler.num_running + llm.scheduler.num_waiting > 0):
        if not llm.step():
            _idle_step(_model(llm))
    return [llm.output(state).token_ids for state in states]


class LogitsLog:
    """Keeps the logits of every request of an engine.

    Attributes:
        rows: by request id, float32 [1, vocab_size] for each token.
    """

    def __init__(self, llm: LLM) -> None:
        self.rows: dict[int, list[torch.Tensor]] = {}
        self._forward = llm.executor.model.forward
        llm.executor.model.forward = self._watched  # type: ignore[method-assign]

    def _watched(self, batch: StepBatch) -> torch.Tensor:
        logits = self._forward(batch)
        parts = torch.split(logits, batch.num_sampled)
        for request, rows in zip(batch.sampling, parts, strict=True):
            self.rows.setdefault(request.id, []).append(rows.clone())
        return logits


def _idle_step(model: DeepseekDecoder) -> None:
    """Take part in the exchanges of every layer with no token of one's own."""
    for mixture in model.mixtures:
        mixture(model.embedding[:0])


def _model(llm: LLM) -> DeepseekDecoder:
    model = llm.executor.model
    if not isinstance(model, DeepseekDecoder):
        raise InputError("only a DeepSeek runs on several processes")
    return model


def main() -> int:
    """Take part in the job of a folder; 3 if the group or the job fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rank", type=int)
    parser.add_argument("size", type=int)
    parser.add_argument("folder", type=Path, help="with job.json; the result is written there")
    options = parser.parse_args()
    from safetensors.torch import save_file

    from minilab.engine.loader import load

    folder, rank = options.folder, options.rank
    try:
        job = Job(**json.loads((folder / "job.json").read_text()))
        config, weights = load(job.checkpoint)
        if not isinstance(config, DeepseekConfig):
            raise InputError("only a DeepSeek runs on several processes")
        group = Group.join(rank, options.size, folder / "meeting", job.timeout)
        llm = shared_llm(job, config, weights, group)
        log = LogitsLog(llm) if job.logits else None
        mine = job.prompts if job.mode == "tp" else job.prompts[rank :: options.size]
        (folder / f"started-{rank}").touch()
        tokens = run_together(llm, group, mine, job.max_tokens)
        if log is not None:
            kept = {str(key): torch.cat(rows) for key, rows in log.rows.items()}
            save_file(kept, folder / f"rank-{rank}.safetensors")
        said: dict[str, Any] = {
            "tokens": tokens,
            "sent_bytes": dict(group.sent_bytes),
            "sent_rows": dict(group.sent_rows),
            "num_steps": llm.num_steps,
        }
        fresh = folder / f"rank-{rank}.new"
        fresh.write_text(json.dumps(said))
        os.replace(fresh, folder / f"rank-{rank}.json")
        group.leave()
    except (GroupError, InputError) as error:
        print(error, file=sys.stderr)
        return 3
    return 0


def write_job(job: Job, folder: Path) -> None:
    """Leave a job where the workers look for it."""
    (folder / "job.json").write_text(json.dumps(asdict(job)))


if __name__ == "__main__":
    sys.exit(main())
