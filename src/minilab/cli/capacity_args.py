"""The options that describe a deployment, for ``capacity``: the model, the memory, the GPUs."""

from __future__ import annotations

import argparse
from dataclasses import replace

from minilab.cli.parser import Parser, number, positive, whole_number, whole_numbers
from minilab.facts.capacity_log import read_startup_log
from minilab.facts.capacity_plan import GIB, Deployment
from minilab.facts.errors import InputError
from minilab.facts.hardware import GPU, get_gpu
from minilab.facts.kv_layout import kv_dtype
from minilab.facts.models import get_model


def add_deployment(parser: Parser) -> None:
    """Add the options; ``deployment_of`` reads them, and ``--log`` where the command has it."""
    one = whole_number(1)
    add = parser.add_argument
    add("--model", metavar="NAME", help="see `minilab models`")
    add("--config", metavar="FILE", help="a config.json instead of, or called, --model")
    add("--kv-dtype", metavar="DTYPE", default="bf16", help="bf16, fp8, ... (default bf16)")
    add("--block-size", type=one, default=16, metavar="N", help="tokens per block (default 16)")
    add("--no-mla", type=one, metavar="D", help="an MLA model as MHA, its heads padded to D")
    _add_memory(parser)
    _add_parallelism(parser)


def deployment_of(args: argparse.Namespace) -> Deployment:
    """The deployment that the options describe. Raises InputError."""
    model = get_model(args.model or "model", args.config)
    if args.no_mla:
        model = model.as_mha(args.no_mla)
    available = args.available_gib
    if args.log and available is None and args.gpu is None:
        logged = read_startup_log(args.log).available
        available = None if logged is None else (logged * GIB,)
    if available is None and args.gpu is None:
        raise InputError("neither --available-gib nor --gpu given; give one of the two")
    return Deployment(
        model=model,
        gpu=_gpu(args),
        kv_dtype=kv_dtype(args.kv_dtype),
        weight_dtype=args.weight_dtype,
        tp=args.tp or 1,
        pp=args.pp,
        dp=args.dp_attention,
        pp_layers=tuple(args.pp_layers) if args.pp_layers else None,
        block_size=args.block_size,
        utilization=args.utilization,
        available=available,
        weights=args.weights_gib,
        non_torch=args.non_torch_gib,
        activation=args.activation_gib,
        cuda_graphs=args.cuda_graph_gib,
        draft=get_model(args.draft_model) if args.draft_model else None,
        draft_layers=args.draft_layers,
        draft_weights=None if args.draft_weights_gib is None else args.draft_weights_gib * GIB,
        max_num_batched_tokens=args.max_num_batched_tokens,
        max_num_seqs=args.max_num_seqs,
    )


def _add_memory(parser: Parser) -> None:
    group = parser.add_argument_group(
        "memory per GPU (GiB; with commas: one per stage, or one per GPU)"
    )
    add = group.add_argument
    add("--available-gib", type=_sizes, metavar="X", help="for KV, as the engine logs it")
    add("--gpu", metavar="NAME", help="see `minilab gpus`: then the budget is computed")
    add("--gpu-file", metavar="FILE", help="GPUs of your own, as JSON")
    add("--gpu-gib", type=positive, metavar="X", help="its memory as the engine logs it")
    add("--utilization", type=positive, default=0.9, metavar="U", help="share used (default 0.9)")
    add("--weights-gib", type=_sizes, metavar="X", help="default: from --weight-dtype")
    add("--weight-dtype", default="native", metavar="DTYPE", help="bf16, fp8, int4, ...")
    add("--non-torch-gib", type=_sizes, metavar="X", help="default 0.5, a prior")
    add("--activation-gib", type=_sizes, metavar="X", help="default: an estimate and a range")
    add("--cuda-graph-gib", type=_sizes, metavar="X", help="default: 0 to 1")
    add("--max-num-batched-tokens", type=whole_number(1), default=8192, metavar="N")
    add("--max-num-seqs", type=whole_number(1), default=256, metavar="N")


def _add_parallelism(parser: Parser) -> None:
    group = parser.add_argument_group("GPUs and drafts")
    one = whole_number(1)
    add = group.add_argument
    add("--tp", type=one, metavar="N", help="tensor parallel (default 1)")
    add("--pp", type=one, default=1, metavar="N", help="pipeline stages (default 1)")
    add("--pp-layers", type=whole_numbers(1), metavar="A,B", help="layers of each stage")
    add("--dp-attention", type=one, default=1, metavar="N", help="attention replicas among tp")
    add("--draft-model", metavar="NAME", help="a draft model on the same GPUs")
    add("--draft-layers", type=whole_number(0), default=0, metavar="N", help="MTP, EAGLE layers")
    add("--draft-weights-gib", type=number, metavar="X", help="default: from its shape")


def _gpu(args: argparse.Namespace) -> GPU | None:
    if args.gpu is None:
        if args.gpu_gib is not None:
            raise InputError("--gpu-gib says how large --gpu is; give --gpu too")
        return None
    gpu = get_gpu(args.gpu, args.gpu_file)
    return gpu if args.gpu_gib is None else replace(gpu, mem_bytes=int(args.gpu_gib * GIB))


def _sizes(text: str) -> tuple[float, ...]:
    return tuple(number(part.strip()) * GIB for part in text.split(","))
