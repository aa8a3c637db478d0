"""``minilab models`` and ``minilab gpus``: what is known by name, and where it was read."""

from __future__ import annotations

import argparse
from typing import Any

from minilab.cli.output import facts, plain, print_json, table
from minilab.cli.parser import Parser
from minilab.facts.hardware import GPU, get_gpu, gpus, read_gpu_file
from minilab.facts.models import ModelSpec, get_model, models


def add(commands: Any) -> None:
    """Add both commands."""
    parser: Parser = commands.add_parser(
        "models", help="models known by name", description="Models: parameters, FLOPs, KV bytes."
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="one model, all its numbers")
    parser.add_argument("--config", metavar="FILE", help="a config.json of your own, called NAME")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run_models)
    parser = commands.add_parser(
        "gpus", help="GPUs known by name", description="GPUs: rates, memory, price, with sources."
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="one GPU, all its numbers")
    parser.add_argument("--gpu-file", metavar="FILE", help="GPUs of your own, as JSON")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run_gpus)


def run_models(args: argparse.Namespace) -> int:
    """Run ``models``."""
    if args.name is None and args.config is None:
        known = list(models().values())
        if args.json:
            print_json([spec.to_dict() for spec in known])
        else:
            print(_model_table(known))
        return 0
    spec = get_model(args.name or "model", args.config)
    if args.json:
        print_json(spec.to_dict())
    else:
        print(facts(_model_facts(spec), 22))
    return 0


def _model_table(known: list[ModelSpec]) -> str:
    rows = [["model", "params", "active", "GFLOP/token", "KV B/token", "weights GiB", "context"]]
    for spec in known:
        counts = (f"{n / 1e9:.2f} B" for n in (spec.params_total, spec.params_active))
        weights = f"{spec.weight_bytes() / 2**30:.1f}"
        flops, kv = f"{spec.flops_per_token / 1e9:.1f}", str(spec.kv_bytes_per_token())
        rows.append([spec.name, *counts, flops, kv, weights, str(spec.max_len or "n/a")])
    return table(rows)


def _model_facts(spec: ModelSpec) -> list[tuple[str, str]]:
    return [
        ("name", spec.name),
        ("parameters", f"{spec.params_total:,}"),
        ("active per token", f"{spec.params_active:,}"),
        ("FLOPs per token", f"{spec.flops_per_token:,}"),
        *((f"KV {d}", f"{spec.kv_bytes_per_token(d):,} B a token") for d in ("bf16", "fp8")),
        *((f"weights {d}", f"{spec.weight_bytes(d):,} B") for d in ("native", "bf16", "fp8")),
        ("state", f"{spec.state_bytes():,} B a sequence"),
        *((name, str(value)) for name, value in spec.geometry().items() if name != "name"),
    ]


def run_gpus(args: argparse.Namespace) -> int:
    """Run ``gpus``."""
    if args.name is None:
        known = {**gpus(), **(read_gpu_file(args.gpu_file) if args.gpu_file else {})}
        if args.json:
            print_json([gpu.to_dict() for gpu in known.values()])
        else:
            print(_gpu_table(list(known.values())))
        return 0
    gpu = get_gpu(args.name, args.gpu_file)
    if args.json:
        print_json(gpu.to_dict())
    else:
        print(facts(_gpu_facts(gpu), 22))
    return 0


def _gpu_table(known: list[GPU]) -> str:
    rows = [["gpu", "memory GiB", "TB/s", "16-bit TFLOPS", "fp8 TFLOPS", "link", "USD/h"]]
    for gpu in known:
        fp8 = plain(gpu.flops["fp8"] / 1e12) if "fp8" in gpu.flops else "-"
        flops = (plain(gpu.flops_at("bf16") / 1e12), fp8)
        memory, price = f"{gpu.mem_bytes / 2**30:.1f}", plain(gpu.price_per_hour)
        rows.append([gpu.name, memory, plain(gpu.mem_bw / 1e12), *flops, gpu.links[0], price])
    return table(rows)


def _gpu_facts(gpu: GPU) -> list[tuple[str, str]]:
    values = gpu.to_dict()
    source = values.pop("source")
    pairs = []
    for name, value in values.items():
        nested = value.items() if isinstance(value, dict) else ()
        for key, number in [(f"{name}.{k}", v) for k, v in nested] or [(name, value)]:
            said = ", ".join(map(str, number)) if isinstance(number, list) else str(number)
            where = f"  ({source[key]})" if key in source else ""
            pairs.append((key, said + where))
    return pairs
