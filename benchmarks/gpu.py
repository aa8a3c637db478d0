"""Check and time every kernel on the GPU of this machine: python benchmarks/gpu.py

For each kernel: the error against float64, the median time, the floor that its bytes and FLOPs set
at the bandwidth and the rate measured on this card, torch's own way and the plain-torch twin in the
same run. Needs torch and triton, and of this repository benchmarks/ and src/. Writes
benchmarks/results/gpu_<card>.json. Without a GPU it says so and ends; --rehearse runs every case on
the CPU, tiny, to see that it runs.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from common import verdict, write

try:
    import torch
except ImportError:
    print("torch is not installed here, so no kernel was measured")
    sys.exit(0)
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from on_gpu import attention, copies, products
from on_gpu.measure import (
    Case,
    Peaks,
    World,
    driver,
    floor_us,
    input_sets,
    relative,
    slug,
    time_us,
    wall_us,
)

from minilab.kernels import device

HEAD = ("kernel", "case", "ran as", "error", "us", "floor", "share", "torch", "twin", "")
WIDTHS = (15, 47, 11, 9, 9, 9, 6, 9, 10, 0)


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    if args.rehearse:
        return rehearse(args)
    if not torch.cuda.is_available():
        print("no CUDA GPU here, so no kernel was measured")
        return 0
    if device.INTERPRETED:
        print("TRITON_INTERPRET is set: unset it to measure, or give --rehearse", file=sys.stderr)
        return 2
    gpu = torch.device("cuda")
    world = World(gpu, device.capability_of(gpu))
    # fp32 means fp32: the twins and the peak must not round to tf32.
    torch.backends.cuda.matmul.allow_tf32 = False
    peaks = Peaks(gpu)
    result = {"card": torch.cuda.get_device_name(gpu), **versions(), "peaks": peaks.to_dict()}
    print(f"{result['card']}: {peaks.bandwidth / 1e9:,.0f} GB/s copying, matrices at", end=" ")
    rates = result["peaks"]["flops_per_s"]
    print(", ".join(f"{rate / 1e12:,.0f} TFLOPS {name}" for name, rate in rates.items()))
    print(line(HEAD))
    result["rows"] = []
    for case in cases(world, args.kernel):
        row = guarded(case, world, peaks, args.repeats)
        result["rows"].append(row)
        print(line(cells(row)), flush=True)
    if not args.no_write:
        name = slug(result["card"])
        print(f"written to {write(f'gpu_{name}', result)}")
    return 1 if args.strict and not all(row["met"] for row in result["rows"]) else 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=30, help="timed calls per kernel")
    parser.add_argument("--kernel", action="append", help="only cases of this kernel")
    parser.add_argument("--strict", action="store_true", help="exit 1 if a goal is missed")
    parser.add_argument("--no-write", action="store_true", help="leave the result file as it is")
    parser.add_argument("--rehearse", action="store_true", help="tiny, on the CPU, nothing timed")
    args = parser.parse_args(argv)
    if args.repeats < 1:
        parser.error(f"--repeats {args.repeats}; at least 1")
    return args


def cases(world: World, only: list[str] | None) -> Iterator[Case]:
    for case in (*attention.cases(world), *copies.cases(world), *products.cases(world)):
        if not only or case.kernel in only:
            yield case


def rehearse(args: argparse.Namespace) -> int:
    """Every case once, tiny, on the CPU; 1 if a result is wrong."""
    wrong = 0
    for case in cases(World(torch.device("cpu"), 0, tiny=True), args.kernel):
        inputs = case.make(1)
        with device.backends_used() as used:
            out = case.run(inputs)
        error = case.error(inputs, out)
        case.reference(inputs)
        own = run_torch(case, inputs, out)
        # The interpreter cuts bf16 off instead of rounding it.
        right = error <= 2 * case.tolerance
        wrong += not right
        ran = used[case.kernel].name
        print(f"{case.kernel:15s} {case.label:47s} {ran:11s} {error:.1e} {verdict(right)}{own}")
    return int(wrong > 0)


def run_torch(case: Case, inputs: dict[str, Any], out: Any) -> str:
    """Whether torch's own way runs here, and how far its result is from the kernel's."""
    if case.torch is None:
        return ""
    name, own = case.torch
    try:
        result = own(inputs)
    except Exception as error:  # torch's CPU lacks some of what its CUDA has
        return f" ({name}: {' '.join(str(error).split())[:60]})"
    if not (isinstance(out, torch.Tensor) and isinstance(result, torch.Tensor)):
        return f" ({name}: runs)"
    return f" ({name}: differs by {relative(result.flatten(), out.flatten()):.0e})"


def versions() -> dict[str, Any]:
    return {
        "capability": device.capability_of(torch.device("cuda")) / 10,
        "driver": driver(),
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "triton": getattr(device.triton, "__version__", None) if device.HAS_TRITON else None,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def guarded(case: Case, world: World, peaks: Peaks, repeats: int) -> dict[str, Any]:
    """``measure``; a case that fails becomes a row that says so, and the others go on."""
    try:
        return measure(case, world, peaks, repeats)
    except Exception as error:  # a small card runs out of memory, an old torch lacks a type
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return {"kernel": case.kernel, "case": case.label, "failed": said, "met": False}
    finally:
        torch.cuda.empty_cache()


def measure(case: Case, world: World, peaks: Peaks, repeats: int) -> dict[str, Any]:
    """One row of the table."""
    cache = getattr(torch.cuda.get_device_properties(world.device), "L2_cache_size", 50 * 2**20)
    with warnings.catch_warnings(), device.backends_used() as used:
        warnings.simplefilter("ignore")  # the fallback is told in the row
        sets = [case.make(100 * n) for n in range(input_sets(case.cost[0], cache))]
        error = case.error(sets[0], case.run(sets[0]))
        backend = used[case.kernel].name
        row: dict[str, Any] = {"kernel": case.kernel, "case": case.label, "backend": backend}
        row |= {"error": error, "tolerance": case.tolerance, "right": error <= case.tolerance}
        row |= {"bytes": case.cost[0], "flops": case.cost[1], "rate": case.rate, "goal": case.goal}
        row["floor_us"] = floor_us(case.cost, peaks.bandwidth, peaks.rate(case.rate))
        row["reference_us"] = wall_us(lambda: case.reference(sets[0]))
        row |= torch_time(case, sets, repeats)
        if backend == "triton":
            timing = time_us([lambda s=s: case.run(s) for s in sets], repeats)
            row |= {"us": timing.median, "least_us": timing.least, "queued": timing.queued}
            row["share"] = row["floor_us"] / timing.median
    row["met"] = is_met(row, case.or_torch)
    return row


def torch_time(case: Case, sets: list[dict[str, Any]], repeats: int) -> dict[str, Any]:
    """torch's own way; where this torch or this card has none, its reason."""
    if case.torch is None:
        return {"torch": None, "torch_us": None}
    name, own = case.torch
    try:
        timing = time_us([lambda s=s: own(s) for s in sets], repeats)
    except Exception as error:  # not there, or not for this card or type
        return {"torch": name, "torch_us": None, "torch_failed": " ".join(str(error).split())[:120]}
    return {"torch": name, "torch_us": timing.median}


def is_met(row: dict[str, Any], or_torch: bool) -> bool:
    """Right, no slower than the plain-torch twin, and as near the floor as the goal says."""
    if not row["right"]:
        return False
    if "us" not in row:  # the twin ran, as it should where the kernel has no variant
        return True
    beats = or_torch and row["torch_us"] is not None and row["us"] <= row["torch_us"]
    near = row["goal"] is None or row["share"] >= row["goal"] or beats
    return bool(near and row["us"] <= row["reference_us"])


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row for people: microseconds, share of the floor, and what is missing."""
    if "failed" in row:
        return (row["kernel"], row["case"], "failed", *[""] * 6, row["failed"])

    def us(name: str) -> str:
        return f"{row[name]:,.1f}" if row.get(name) is not None else "-"

    goal = f", goal {row['goal']:.0%}" if row["goal"] else ""
    said = ("" if row["right"] else "WRONG, ") + verdict(row["met"]) + goal
    said += f" ({row['torch']})" if row["torch"] else ""
    said += "" if row.get("queued", True) else ", launches included"
    share = f"{row['share']:.0%}" if "share" in row else "-"
    times = (us("us"), us("floor_us"), share, us("torch_us"), us("reference_us"))
    return (row["kernel"], row["case"], row["backend"], f"{row['error']:.1e}", *times, said)


def line(values: tuple[str, ...]) -> str:
    parts = zip(values, WIDTHS, range(len(values)), strict=True)
    return " ".join(f"{v:<{w}}" if at < 3 else f"{v:>{w}}" for v, w, at in parts).rstrip()


if __name__ == "__main__":
    sys.exit(main())
