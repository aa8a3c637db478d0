"""One process of a split: ``python -m minilab.engine.pd.process``. ``split`` starts two of them."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

from minilab.engine.load import load_llm
from minilab.engine.pd.channel import Channel, wait
from minilab.engine.pd.decode import DecodeWorker
from minilab.engine.pd.nixl import Handshake, NixlReceiver, NixlSender, new_agent
from minilab.engine.pd.packing import Gathered, Packing, Pieces
from minilab.engine.pd.prefill import PrefillWorker
from minilab.engine.pd.settings import PdSettings
from minilab.engine.pd.transport import Receiver, Sender
from minilab.engine.pd.wire import Wire
from minilab.facts.errors import InputError

ROLES = ("prefill", "decode")
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
Worker = PrefillWorker | DecodeWorker


def main() -> int:
    """Load, join the other process, work until the one that started this is gone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("--settings", required=True, help="PdSettings as JSON")
    parser.add_argument("--store", required=True, help="file through which the two find each other")
    parser.add_argument("--proxy", type=int, required=True, help="descriptor of a socket")
    parser.add_argument("--peer", type=int, required=True, help="descriptor of a socket")
    args = parser.parse_args()
    torch.set_num_threads(1)
    settings = PdSettings.from_json(args.settings)
    proxy, peer = (Channel(socket.socket(fileno=fd)) for fd in (args.proxy, args.peer))
    rank = ROLES.index(args.role)
    try:
        llm = load_llm(
            settings.model,
            settings.decode if rank else settings.prefill,
            settings.dtype,
            device_of(settings, rank),
            settings.seed,
        )
    except InputError as error:
        proxy.send("refused", error=str(error))
        return 2
    worker: Worker = (DecodeWorker if rank else PrefillWorker)(llm, settings, proxy, peer)
    try:
        _connect(worker, args.store)
    except InputError as error:
        proxy.send("refused", error=str(error))
        return 2
    proxy.send(
        "ready",
        max_model_len=llm.max_model_len,
        vocab_size=llm.executor.model.config.vocab_size,
    )
    worker.run()
    return 0


def device_of(settings: PdSettings, rank: int) -> str:
    """Where a process computes.

    Raises:
        InputError: NCCL, but fewer than two GPUs.
    """
    if settings.transport != "nccl":
        return settings.device
    if torch.cuda.device_count() < 2:
        raise InputError(
            "transport nccl needs two GPUs, for NCCL refuses two ranks on one card; torch sees "
            f"{torch.cuda.device_count()}; use transport gloo"
        )
    return f"cuda:{rank}"


def _connect(worker: Worker, store: str) -> None:
    """Give ``worker`` the transport that its settings name."""
    if worker.settings.transport == "nixl":
        _read_remotely(worker)
        return
    wire = _wire(worker, store)
    ring = worker.bell.ring
    if isinstance(worker, PrefillWorker):
        worker.transport = Sender(wire, ring)
    else:
        worker.transport = Receiver(wire, ring, worker.ask)


def _wire(worker: Worker, store: str) -> Wire:
    settings, rank = worker.settings, worker.connector.engine_id
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    limit = timedelta(seconds=max(60.0, settings.timeout))  # loading may take its time
    dist.init_process_group(
        settings.transport, init_method=f"file://{store}", rank=rank, world_size=2, timeout=limit
    )
    cache = worker.llm.executor.model.kv_cache
    place = cache.device if settings.transport == "nccl" else torch.device("cpu")
    packing: Packing = (Gathered if settings.gather else Pieces)(cache, place)
    return Wire(packing, 1 - rank, settings.timeout, place)


def _read_remotely(worker: Worker) -> None:
    cache = worker.llm.executor.model.kv_cache
    if isinstance(worker, PrefillWorker):
        sender = NixlSender(new_agent("prefill"), cache)
        worker.transport = sender
        worker.peer.send("nixl", **sender.handshake()._asdict())
        return
    receiver = NixlReceiver(new_agent("decode"), cache, worker.settings.timeout)
    worker.transport = receiver
    receiver.meet(_handshake(worker))


def _handshake(worker: Worker) -> Handshake:
    """The prefill end's first message, which is there as soon as it has loaded its model."""
    until = time.monotonic() + max(60.0, worker.settings.timeout)
    while worker.peer.open and time.monotonic() < until:
        wait([worker.peer], 1.0)
        for message in worker.peer.receive():
            message.pop("op")
            return Handshake(**message)
    raise InputError("the prefill process did not say where its blocks lie")


def _main() -> None:
    """End at once: threads of a broken wire, and torch's own clean-up, would wait for the peer."""
    try:
        status = main()
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _main()
