"""Questions on chapters 0 to 3: bottlenecks, goodput, the split, prefixes, tiers.

Each value is computed by the function of the package that the chapter uses, never written down.
"""

from __future__ import annotations

from minilab.facts.capacity import kv_tokens
from minilab.facts.hardware import get_gpu, get_link
from minilab.facts.models import get_model
from minilab.lab.self_check import Question
from minilab.lab.self_check_runs import (
    computed_again,
    computed_by_tenants,
    cost_of_a_thousand,
    found_round_robin,
    one_stall,
    only,
    shared_part,
    ten_requests,
)
from minilab.lab.split import pools

MODEL, GPU = get_model("llama-3.1-8b"), get_gpu("h100")


def _token_seconds() -> float:
    return MODEL.flops_per_token / GPU.flops_at("bf16")


ENGINE = (
    Question(
        "floor",
        "I can say what a decode step must take at least, however clever the kernel.",
        "Llama-3.1-8B in bf16 has 16.06 GB of weights, an H100 reads 3.35 TB/s. How many "
        "milliseconds does one pass over the weights take?",
        lambda: 1e3 * MODEL.weight_bytes() / GPU.mem_bw,
        "ms",
        "16.06 GB / 3.35 TB/s = {answer}. No batch of one is faster than that.",
    ),
    Question(
        "ridge",
        "I can say from which batch on the products of a decode step are bound by arithmetic.",
        "An H100 computes 989 TFLOP/s in bf16 and reads 3.35 TB/s. A weight of 2 bytes costs 2 "
        "FLOP per sequence. At which batch do reading and computing take equally long?",
        lambda: GPU.flops_at("bf16") / GPU.mem_bw,
        "sequences",
        "2 bytes / 3.35 TB/s = batch × 2 FLOP / 989 TFLOP/s, so the batch is {answer}. Verifying "
        "drafts and chunks of prompts count as sequences.",
    ),
    Question(
        "utilisation",
        "I can say why GPU utilisation tells no bottleneck apart.",
        "One single sequence decodes without a pause: utilisation is 100 %. Which share of the "
        "989 TFLOP/s is used, in percent, if a step takes as long as reading the weights?",
        lambda: (
            100 * MODEL.flops_per_token * GPU.mem_bw / MODEL.weight_bytes() / GPU.flops_at("bf16")
        ),
        "%",
        "15 GFLOP in 4.8 ms are 3.1 TFLOP/s: {answer} of the peak. The gauge says only that some "
        "kernel was running.",
    ),
)

GOODPUT = (
    Question(
        "goodput",
        "I can compute goodput from a list of requests, failed ones included.",
        "Ten requests within 10 s on 2 GPUs. Seven keep every limit, two are late, one fails. "
        "Goodput per GPU, in requests per second?",
        lambda: ten_requests().goodput_per_gpu or 0.0,
        "requests/s",
        "7 good / 10 s / 2 GPUs = {answer}. The failed one stays in the denominator of attainment, "
        "which is 70 %.",
    ),
    Question(
        "tpot",
        "I can say what TPOT is here, and that it is a mean.",
        "An answer of 41 tokens. The first comes at 0.5 s, the last at 2.5 s. TPOT in ms?",
        lambda: 1e3 * only(one_stall(), "tpot"),
        "ms",
        "(2.5 − 0.5) s / 40 gaps = {answer}.",
    ),
    Question(
        "stall",
        "I can say what a mean gap hides.",
        "The same answer had 39 gaps of 25 ms. How long, in ms, was the fortieth?",
        lambda: 1e3 * only(one_stall(), "stall"),
        "ms",
        "2,000 − 39 × 25 = {answer}. A TPOT limit of 60 ms is kept, and the user saw the stream "
        "stop for a second.",
    ),
    Question(
        "price",
        "I can say what a good request costs.",
        "The two GPUs of the first question cost 2 dollars an hour each. What do a thousand good "
        "requests cost, in dollars?",
        cost_of_a_thousand,
        "dollars",
        "4 dollars an hour / 3,600 s / 0.7 good requests a second × 1,000 = {answer}. Late ones "
        "were paid for too.",
    ),
)

SPLIT = (
    Question(
        "kv-bytes",
        "I can compute the KV bytes of a request.",
        "Llama-3.1-8B: 32 layers, 8 KV heads of 128 numbers, 2 bytes each. How many MB (10⁶ "
        "bytes) does a prompt of 4,000 tokens leave behind?",
        lambda: MODEL.kv_bytes(4000) / 1e6,
        "MB",
        "2 (K and V) × 32 × 8 × 128 × 2 bytes = 131,072 bytes a token, × 4,000 = {answer}.",
    ),
    Question(
        "wire",
        "I can say how long they are on the wire.",
        "How many milliseconds do these bytes take at 100 Gbit/s?",
        lambda: 1e3 * MODEL.kv_bytes(4000) / get_link("roce-100").bandwidth,
        "ms",
        "100 Gbit/s are 12.5 GB/s; 524 MB / 12.5 GB/s = {answer}, before the cost of each piece.",
    ),
    Question(
        "pools",
        "I can compute the ratio of the pools from the work per phase.",
        "A request takes 25 ms of GPU time for its prompt and 75 ms for its answer. Of 8 GPUs, how "
        "many should compute prompts?",
        lambda: float(pools(8, 25 / (25 + 75))[0]),
        "GPUs",
        "25 / (25 + 75) of 8 = {answer}. It is wrong as soon as the traffic's mix changes.",
        tolerance=0.0,
    ),
)

PREFIX = (
    Question(
        "full-hit",
        "I can compute by hand what a prompt can hit, block size and last token included.",
        "A prompt of 4,096 tokens comes a second time, in blocks of 16. How many of its tokens are "
        "computed again?",
        computed_again,
        "tokens",
        "The last token must be computed, since its logits are needed, and with it its block: "
        "{answer}.",
        tolerance=0.0,
    ),
    Question(
        "shared-part",
        "I can say what a partial match is worth.",
        "Two prompts share their first 1,000 tokens. Blocks of 16. How many tokens does the second "
        "one find?",
        shared_part,
        "tokens",
        "Whole blocks only: 62 × 16 = {answer}.",
        tolerance=0.0,
    ),
    Question(
        "round-robin",
        "I can say what a router that ignores the prefix costs.",
        "Ten questions about one document go round robin to 4 replicas. For which share of them, "
        "in percent, does the replica have the document?",
        found_round_robin,
        "%",
        "Each of the 4 computes it once, 6 of 10 find it: {answer}. A router that follows the "
        "prefix would reach 90 %.",
        tolerance=0.01,
    ),
    Question(
        "salt",
        "I can say what isolating tenants costs in hits.",
        "Three tenants, each with a cache_salt of its own, ask 5 times each about the same "
        "document. How many times is the document computed?",
        computed_by_tenants,
        "times",
        "Once per salt: {answer}. Without salts it is once, and each tenant could find out by a "
        "stopwatch that another one had asked.",
        tolerance=0.0,
    ),
)

TIERS = (
    Question(
        "tier-bandwidth",
        "I can compute the bandwidth that a tier needs to beat a given card.",
        "A token of Llama-3.1-8B has 131,072 bytes of KV and costs 15.0 GFLOP. At the full 989 "
        "TFLOP/s of an H100, from how many GB/s on is loading it faster than computing it?",
        lambda: MODEL.kv_bytes_per_token() / _token_seconds() / 1e9,
        "GB/s",
        "15.0 GFLOP / 989 TFLOP/s = 15.2 µs; 131,072 bytes / 15.2 µs = {answer}. A real kernel is "
        "slower than the peak, so a real tier may be, too.",
    ),
    Question(
        "tier-tokens",
        "I can say how much a tier holds.",
        "How many tokens of that KV fit in 256 GiB of CPU memory?",
        lambda: float(kv_tokens(256 * 2**30, MODEL)),
        "tokens",
        "256 × 2³⁰ / 131,072 = {answer}.",
    ),
    Question(
        "tier-time",
        "I can say what a hit in a tier costs.",
        "A prompt of 8,000 tokens lies in CPU memory, behind PCIe 5 with 64 GB/s. How many ms does "
        "the load take?",
        lambda: 1e3 * MODEL.kv_bytes(8000) / get_link("pcie-5").bandwidth,
        "ms",
        "8,000 × 131,072 bytes / 64 GB/s = {answer}, in whole blocks and without the copies' "
        "overhead.",
    ),
)

CHAPTERS = {
    "from-engine": ENGINE,
    "goodput": GOODPUT,
    "pd-split": SPLIT,
    "prefix-cache": PREFIX,
    "kv-tiers": TIERS,
}
"""Questions by page."""
