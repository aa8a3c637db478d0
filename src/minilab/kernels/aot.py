"""Compile the kernels for GPUs that are not here: python -m minilab.kernels.aot

Triton's compiler needs no GPU. What comes out is what a GPU would load, so registers, spilled
bytes, shared memory and the instructions can be read off, with the ``cuobjdump`` that comes with
triton. Not shown: speed, and whether results are right. Run it without TRITON_INTERPRET.

    python -m minilab.kernels.aot                      the fast subset, on 75, 80 and 90
    python -m minilab.kernels.aot --all --json FILE    every spec on every architecture
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from minilab.kernels.device import HAS_TRITON, INTERPRETED, MIXED, native_fp8_refusal, triton
from minilab.kernels.spec import Spec

MODULES = (
    *("block_copy", "kv_write", "mla_decode", "moe", "moe_align", "moe_router"),
    *("paged_decode", "paged_prefill", "quant_gemm", "quant_gemm_int4", "rejection"),
)
FAST_ARCHS = (75, 80, 90)
# Shared memory one program may use, bytes: 64 KiB, 163, 99 and 227 (CUDA C++ Programming Guide,
# technical specifications per compute capability). Without a GPU nothing else checks it.
SHARED_CAP = {75: 65_536, 80: 166_912, 89: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}
MATRIX = re.compile(r"\b(HMMA|HGMMA|QMMA|QGMMA|IMMA|IGMMA|UTC[A-Z]*MMA)\b")
COUNTED = ("FFMA", "HFMA2", "LDL", "STL")
RESOURCES = re.compile(r"REG:(\d+)\s+STACK:(\d+).*?LOCAL:(\d+)", re.S)


def all_specs(modules: Iterable[str] = MODULES) -> Iterator[Spec]:
    """The specs of the kernel files named."""
    for name in modules:
        yield from importlib.import_module(f"minilab.kernels.{name}").AOT


def compile_spec(spec: Spec, arch: int) -> dict[str, Any]:
    """Compile for one architecture and read off what it takes.

    Returns:
        registers and stack per thread, shared bytes per program, counts of matrix and some other
        instructions; ``error`` instead, where the compiler refused.
    """
    from triton.backends.compiler import GPUTarget  # type: ignore[import-untyped,unused-ignore]
    from triton.compiler import ASTSource  # type: ignore[import-untyped,unused-ignore]

    config = spec.configs[arch]
    names = spec.kernel.arg_names
    constexprs = {k: v for k, v in {**spec.constexprs, **config.tiles}.items() if k in names}
    signature = {name: spec.types.get(name, "constexpr") for name in names}
    attrs = {
        (position,): [["tt.divisibility", 16]]
        for position, name in enumerate(names)
        if signature[name].startswith("*")
        or (signature[name].startswith("i") and name not in spec.any_value)
    }
    source = ASTSource(
        spec.kernel, signature, {(names.index(k),): v for k, v in constexprs.items()}, attrs
    )
    options = {"num_warps": config.warps, "num_stages": config.stages}
    try:
        compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    except Exception as error:  # the compiler raises many kinds
        return {"error": " ".join(str(error).split())[-300:]}
    return {"shared": int(compiled.metadata.shared), **_read_binary(compiled.asm["cubin"])}


def _read_binary(cubin: bytes) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = _cuobjdump("--dump-resource-usage", file.name)
        code = _cuobjdump("-sass", file.name)
    found = RESOURCES.search(usage)
    if found is None:
        raise RuntimeError(f"cuobjdump printed no resource usage: {usage[:200]!r}")
    registers, stack, local = (int(number) for number in found.groups())
    matrix: dict[str, int] = {}
    for name in MATRIX.findall(code):
        matrix[name] = matrix.get(name, 0) + 1
    other = {name: len(re.findall(rf"\b{name}\b", code)) for name in COUNTED}
    return {"registers": registers, "stack": stack, "local": local, "matrix": matrix, **other}


def _cuobjdump(what: str, file: str) -> str:
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    return subprocess.run([tool, what, file], capture_output=True, text=True, check=True).stdout


def problems(spec: Spec, arch: int, result: dict[str, Any]) -> list[str]:
    """What is not as the spec says, in words; empty when all is well."""
    where = f"{spec.name} on sm_{arch}"
    if arch in spec.refused:
        expected = bool(native_fp8_refusal(arch)) and "error" in result
        return [] if expected else [f"{where}: compiles, though our guard refuses it"]
    if "error" in result:
        return [f"{where}: {result['error']}"]
    found = []
    allowed = spec.stack.get(arch, 0)
    if result["stack"] != allowed or result["local"]:
        found.append(f"{where}: {result['stack']} bytes of stack, {allowed} allowed")
    if result["shared"] > SHARED_CAP[arch]:
        found.append(f"{where}: {result['shared']} bytes of shared memory, cap {SHARED_CAP[arch]}")
    wanted = spec.expect.get(arch)
    if wanted and wanted not in result["matrix"]:
        found.append(f"{where}: no {wanted}, but {result['matrix'] or 'no matrix instruction'}")
    if not wanted and result["matrix"]:
        found.append(f"{where}: {result['matrix']}, but none was expected")
    return found


def in_a_child(spec: Spec, arch: int) -> dict[str, Any]:
    """``compile_spec`` in a forked process: a failing compiler pass may abort it."""
    fork = multiprocessing.get_context("fork")
    receive, send = fork.Pipe(duplex=False)
    child = fork.Process(target=lambda: send.send(compile_spec(spec, arch)))
    child.start()
    send.close()
    try:
        result: dict[str, Any] = receive.recv()
    except EOFError:
        result = {"error": "the compiler ended its process"}
    child.join()
    return result


def main(argv: list[str] | None = None) -> int:
    """The command line; 1 if a spec is not as it says, 2 if nothing can be compiled here."""
    args = _parse(argv)
    if not HAS_TRITON or INTERPRETED or MIXED:
        print("needs triton, and TRITON_INTERPRET not set", file=sys.stderr)
        return 2
    rows, wrong = [], []
    # A fresh cache: a warm one hides what no longer compiles.
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        for spec, arch in _jobs(args):
            result = in_a_child(spec, arch)
            wrong += problems(spec, arch, result)
            if arch in spec.refused:
                result = {"refused": native_fp8_refusal(arch)}
            rows.append({"spec": spec.name, "arch": arch, **result, **_work(spec)})
            print(_line(rows[-1]), flush=True)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        report = {"triton": triton.__version__, "shared_cap": SHARED_CAP, "rows": rows}
        args.json.write_text(json.dumps(report, indent=1) + "\n")
    print("\n".join(wrong) or f"all {len(rows)} are as their specs say")
    return int(bool(wrong))


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m minilab.kernels.aot", description=__doc__)
    parser.add_argument("--all", action="store_true", help="all specs on all architectures")
    parser.add_argument("--kernel", action="append", choices=MODULES, help="all specs of this file")
    parser.add_argument("--arch", action="append", type=int, choices=sorted(SHARED_CAP))
    parser.add_argument("--json", type=Path, help="write the results there")
    return parser.parse_args(argv)


def _jobs(args: argparse.Namespace) -> Iterator[tuple[Spec, int]]:
    archs = args.arch or (sorted(SHARED_CAP) if args.all else FAST_ARCHS)
    for spec in all_specs(args.kernel or MODULES):
        if spec.fast or args.all or args.kernel:
            yield from ((spec, arch) for arch in archs if arch in spec.configs)


def _work(spec: Spec) -> dict[str, Any]:
    if spec.cost is None:
        return {}
    moved, flops = spec.cost
    return {"case": spec.case, "dtype": spec.dtype, "bytes": moved, "flops": flops}


def _line(row: dict[str, Any]) -> str:
    start = f"{row['spec']:34s} sm_{row['arch']:<4d}"
    if "registers" not in row:
        return f"{start} {next(iter(row.keys() & {'error', 'refused'}))}"
    matrix = " ".join(f"{name} {count}" for name, count in row["matrix"].items()) or "-"
    return (
        f"{start} {row['registers']:3d} registers, {row['stack']} stack,"
        f" {row['shared']:6d} shared, {matrix}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
