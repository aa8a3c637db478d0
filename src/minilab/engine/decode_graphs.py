"""DecodeGraphs: decode steps replayed from CUDA graphs.

A small model's decode step is hundreds of kernels of a few microseconds each, and the CPU cannot
launch them that fast: the GPU waits. A CUDA graph is recorded once per batch size and launched as
one. The price: fixed shapes, so a batch is padded to the next recorded size, and memory for each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from minilab.engine.batch import StepBatch
from minilab.engine.model import Decoder
from minilab.facts.errors import InputError
from minilab.kernels.device import choose_backend

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)

Run = Callable[[], torch.Tensor]
Capture = Callable[[Run], Run]


@dataclass(frozen=True)
class LaunchShare:
    """Seconds of one decode step of ``num_seqs``, its kernels launched one by one or as a graph."""

    num_seqs: int
    eager: float
    replayed: float

    @property
    def share(self) -> float:
        """Part of the eager step that is spent on launching."""
        return max(0.0, 1 - self.replayed / self.eager)

    def __str__(self) -> str:
        return (
            f"launch share {self.share:.0%} of a decode step of {self.num_seqs} "
            f"({self.eager * 1e3:.2f} ms, {self.replayed * 1e3:.2f} ms as a CUDA graph)"
        )


class DecodeGraphs:
    """Runs what ``Decoder.forward`` runs; steps of plain decodes from graphs.

    Attributes:
        num_replays: steps that came from a graph.
    """

    def __init__(
        self,
        model: Decoder,
        max_blocks: int,
        sizes: Sequence[int] = SIZES,
        capture: Capture | None = None,
    ) -> None:
        """``max_blocks``: longest block table; ``capture`` replaces CUDA's recorder in tests.

        Raises:
            InputError: no GPU on which the Triton kernels run; their references cannot be recorded.
        """
        if (
            capture is None
            and choose_backend("paged_decode", model.device, "auto").name != "triton"
        ):
            raise InputError(
                f"CUDA graphs need a GPU that runs the Triton kernels; the model is on "
                f"{model.device}; leave them off"
            )
        self.num_replays = 0
        self._model = model
        self._width = max_blocks
        self._sizes = sorted(sizes)
        self._capture = capture or cuda_capture
        self._recorded: dict[int, tuple[StepBatch, Run]] = {}

    def forward(self, batch: StepBatch) -> torch.Tensor:
        """Logits as of ``Decoder.forward``; those of a graph are valid until the next step."""
        count = len(batch.requests)
        size = next((size for size in self._sizes if size >= count), None)
        if size is None or any(length != 1 for length in batch.query_lens) or batch.num_prefills:
            return self._model.forward(batch)
        still, replay = self._recorded.get(size) or self._record(size)
        _fill(still, batch, count)
        self.num_replays += 1
        return replay()[:count]

    def launch_share(self, repeats: int = 20) -> LaunchShare:
        """Median times of a step of the largest recorded size. Writes no KV. Needs CUDA."""
        size = max(self._recorded)
        still, replay = self._recorded[size]
        still.slot_mapping.fill_(-1)
        eager = _median(lambda: self._model.forward(still), repeats)
        return LaunchShare(size, eager, _median(replay, repeats))

    def _record(self, size: int) -> tuple[StepBatch, Run]:
        still = _padding(size, self._width, self._model)
        self._recorded[size] = still, self._capture(lambda: self._model.forward(still))
        return self._recorded[size]


def cuda_capture(run: Run) -> Run:
    """Record what ``run`` launches; the result launches it again, into the same output."""
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):  # compile the kernels and let cuBLAS take its workspace first
            run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = run()

    def replay() -> torch.Tensor:
        graph.replay()
        return logits

    return replay


def _padding(size: int, width: int, model: Decoder) -> StepBatch:
    """A batch of ``size`` sequences of length 0 that write nowhere."""

    def full(value: int, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        return torch.full(shape, value, dtype=dtype, device=model.device)

    return StepBatch(
        requests=[],
        num_prefills=0,
        query_lens=[1] * size,
        block_size=model.kv_cache.shape[3],
        token_ids=full(0, torch.int64, size),
        positions=full(0, torch.int64, size),
        slot_mapping=full(-1, torch.int64, size),
        block_tables=full(0, torch.int32, size, width),
        seq_lens=full(0, torch.int32, size),
        cu_seqlens=torch.arange(size + 1, dtype=torch.int32, device=model.device),
        sampled=torch.arange(size, device=model.device),
        sampling=[],
        num_sampled=[1] * size,
    )


def _fill(still: StepBatch, batch: StepBatch, count: int) -> None:
    """Put a step into the recorded tensors; what is left of them is padding again."""
    still.slot_mapping.fill_(-1)
    still.seq_lens.zero_()
    for name in ("token_ids", "positions", "slot_mapping", "seq_lens"):
        getattr(still, name)[:count] = getattr(batch, name)
    still.block_tables[:count, : batch.block_tables.shape[1]] = batch.block_tables


def _median(run: Run, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return sorted(times)[repeats // 2]
