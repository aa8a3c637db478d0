"""What a KV transfer costs between two processes of this machine: in pieces, and gathered.

The wire is the one of ``minilab.engine.pd``: torch.distributed with gloo, over the loopback. A time
is from the first byte packed at one end to the last one in its place at the other, which answers
with one number. All pieces of a transfer are under way at once, so nothing waits for a round trip.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from common import MIB, host, one_thread, spread, write

from minilab.engine.pd.packing import Gathered, Pieces
from minilab.engine.pd.process import LOOPBACK
from minilab.engine.pd.wire import Wire

TIMEOUT = 120.0
PLANES = 64
"""Of 32 layers: keys and values."""
TOTAL = 8 * MIB
PIECES = tuple(2**k for k in range(10, 18))
"""Bytes of a block of one layer's keys. SmolLM2-135M: 6 KiB; Llama-3.1-8B: 32 KiB."""
PACKINGS: dict[str, type[Any]] = {"pieces": Pieces, "gathered": Gathered}


def kv_cache(piece: int, seed: int) -> torch.Tensor:
    """Random bits, as a cache of 32 layers whose blocks have ``piece`` bytes per plane."""
    dice = torch.Generator().manual_seed(seed)
    blocks = 2 * TOTAL // (PLANES * piece)
    shape = (PLANES // 2, 2, blocks, 16, 1, piece // 32)
    return torch.randint(-(2**15), 2**15, shape, generator=dice, dtype=torch.int16)


def some_blocks(piece: int, seed: int) -> list[int]:
    """Half of the cache's blocks, anywhere, as a pool hands them out."""
    dice = torch.Generator().manual_seed(seed)
    count = TOTAL // (PLANES * piece)
    found: list[int] = torch.randperm(2 * count, generator=dice)[:count].tolist()
    return found


def one_end(rank: int, store: str, repeats: int) -> list[dict[str, Any]]:
    """Run every case at this end; rank 0 sends and returns its rows."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=TIMEOUT),
    )
    rows = []
    for piece in PIECES:
        cache, block_ids = kv_cache(piece, rank), some_blocks(piece, rank)
        row: dict[str, Any] = {"piece_bytes": piece, "bytes": TOTAL, "count": TOTAL // piece}
        for name, make in PACKINGS.items():
            wire = Wire(make(cache, torch.device("cpu")), 1 - rank, TIMEOUT)
            times = [_once(rank, wire, block_ids) for _ in range(repeats + 1)]
            row[name] = spread(times[1:])  # the first one warms up
            assert wire.moved.nbytes == TOTAL * (repeats + 1)
            _check(cache, block_ids)
        rows.append(row)
        if rank == 0:
            print(
                f"{row['count']:>5} pieces of {piece:>6} bytes: {_ms(row['pieces'])}, "
                f"gathered {_ms(row['gathered'])}",
                flush=True,
            )
    return rows


def _ms(times: dict[str, float]) -> str:
    return f"{1e3 * times['min']:.1f} ms (median {1e3 * times['median']:.1f})"


def _once(rank: int, wire: Wire, block_ids: list[int]) -> float:
    answer = torch.zeros(1)
    dist.barrier()
    begin = time.perf_counter()
    if rank:
        wire.recv(0, block_ids)
        dist.send(answer, 0)
    else:
        wire.send(0, block_ids)
        dist.recv(answer, 1)
    return time.perf_counter() - begin


def _check(cache: torch.Tensor, block_ids: list[int]) -> None:
    """What arrived last is what was sent, by a weighted sum over all of it."""
    sent = cache[:, :, block_ids].flatten().long()
    weights = torch.arange(1, sent.numel() + 1, dtype=torch.int64) % 1009
    mine = (sent * weights).sum().reshape(1)
    sums = [torch.zeros_like(mine) for _ in range(2)]
    dist.all_gather(sums, mine)
    assert sums[0] == sums[1], "what arrived is not what was sent"


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What a piece costs, from the smallest ones, and where gathering stops to pay (fastest runs).

    The fastest run is the one in which nobody else wanted the two cores.
    """
    first = rows[0]
    extra = first["pieces"]["min"] - first["gathered"]["min"]
    wins = [row["piece_bytes"] for row in rows if row["gathered"]["min"] < row["pieces"]["min"]]
    best = min(row["gathered"]["min"] for row in rows)
    return {
        "seconds_per_piece": extra / (first["count"] - 1),
        "smallest_ratio": first["pieces"]["min"] / first["gathered"]["min"],
        "gathering_wins_up_to_bytes": max(wins, default=0),
        "bytes_per_second": TOTAL / best,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--no-write", action="store_true", help="leave the result file as it is")
    parser.add_argument("--other-end", metavar="STORE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error("--repeats at least 1")
    if args.other_end:
        one_end(1, args.other_end, args.repeats)
        return 0
    machine = host()
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store"
        command = [sys.executable, __file__, "--other-end", store, "--repeats", str(args.repeats)]
        other = subprocess.Popen(command, env={**os.environ, **one_thread()})
        try:
            rows = one_end(0, store, args.repeats)
        finally:
            if sys.exc_info()[0]:
                other.kill()
            status = other.wait()
    result: dict[str, Any] = {
        "host": machine | {"torch": torch.__version__, "threads": 1},
        "wire": "torch.distributed gloo over the loopback, two processes on one machine",
        "seed": "the rank, of blocks and bytes",
        "repeats": args.repeats,
        "rows": rows,
        "summary": summary(rows),
    }
    found = result["summary"]
    print(
        f"a piece costs {1e6 * found['seconds_per_piece']:.1f} us, gathered "
        f"{found['bytes_per_second'] / 1e9:.2f} GB/s; gathering wins up to pieces of "
        f"{found['gathering_wins_up_to_bytes']:,} bytes"
    )
    if not args.no_write:
        print(f"written to {write('pd_transfer', result)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
