"""SiliconRow: one measured operating point of a real engine, and how a table of them is read.

The table is AIConfigurator's ``silicon_sample.csv.gz``: mean TTFT and TPOT of a closed-loop
benchmark at one concurrency. Its traps end here: duplicates, precisions and lengths that are only
implied, GPUs that the tensor-parallel size does not count. ``silicon_gate`` refuses wrong rows.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from minilab.facts.errors import InputError
from minilab.facts.hardware import GPU, get_gpu
from minilab.facts.models import ModelSpec, get_model
from minilab.judge.launches import Launch, launch_of

FILE = "silicon_sample.csv.gz"

_MODELS = {
    "deepseek-ai/DeepSeek-R1": "deepseek-r1",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-r1",
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-v3",
    "MiniMaxAI/MiniMax-M2.5": "minimax-m2.5",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "nvidia/Qwen3-32B-NVFP4": "qwen3-32b",
    "Qwen/Qwen3.5-397B-A17B": "qwen3.5-397b-a17b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b-fp8",
    "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "moonshotai/Kimi-K2.5": "kimi-k2.5",
    "zhipuai/GLM-5": "glm-5",
}
_GPUS = {"gb300": "b300"}  # the same chip; a Grace host is not modelled
_EXPERTS_ONLY = ("kimi-k2.5", "gpt-oss-120b")  # quantised checkpoints that keep attention in bf16


@dataclass(frozen=True)
class SiliconRow:
    """One measurement. Times are seconds, lengths tokens.

    ``spec`` carries the formats of the weights as served ("native"). ``tp`` is the number of GPUs
    that the weights are split over.
    """

    id: str
    engine: str
    version: str
    spec: ModelSpec
    gpu: GPU
    system: str
    precision: str
    tp: int
    isl: int
    osl: int
    concurrency: int
    ttft: float
    tpot: float
    launch: Launch = Launch()  # noqa: RUF009 (a NamedTuple is immutable)

    @property
    def pair(self) -> str:
        """The (model, GPU) pair that splits are grouped by."""
        return f"{self.spec.name} on {self.system}"

    @property
    def family(self) -> str:
        """The GPU family whose constants apply."""
        return {90: "hopper", 100: "blackwell", 103: "blackwell"}.get(self.gpu.sm, "other")

    @property
    def digest(self) -> str:
        """sha256 (hex) of what was measured and what came out; the name of the row is not in it."""
        parts = (self.engine, self.version, self.pair, self.precision, self.tp, self.isl, self.osl)
        text = "|".join(str(p) for p in (*parts, self.concurrency, self.ttft, self.tpot))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def key(self) -> tuple[object, ...]:
        """What was asked, without engine version and result: repeats of one experiment share it."""
        return (self.engine, self.pair, self.precision, self.tp, self.isl, self.osl,
                self.concurrency, self.launch)  # fmt: skip


class Refused(NamedTuple):
    """A row that is not used, and why."""

    id: str
    reason: str


def read_table(path: str | Path) -> list[dict[str, str]]:
    """The raw rows of the CSV file at ``path`` (gzipped or not). Raises InputError."""
    path = Path(path)
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise InputError(f"{path}: cannot be read ({error}); give {FILE}") from None
    needed = {"id", "silicon_data_source", "silicon_ttft_ms", "silicon_tpot_ms", "mode", "system"}
    if not rows or not needed <= set(rows[0]):
        missing = ", ".join(sorted(needed - set(rows[0] if rows else ())))
        raise InputError(f"{path}: no rows or no columns {missing}; give {FILE}")
    return rows


def deduplicate(rows: Iterable[Mapping[str, str]]) -> tuple[list[Mapping[str, str]], list[Refused]]:
    """One row per measurement: equal digits of TTFT and TPOT on one system are one measurement.

    Published dumps overlap, and relabelled twins list one run under several tp and ep; of twins
    the one that claims the fewest GPUs stays. Rows with words for numbers are refused.
    """
    kept: dict[tuple[str, str, str], Mapping[str, str]] = {}
    dropped: list[Refused] = []
    sound: list[tuple[float, str, int, Mapping[str, str]]] = []
    for row in rows:
        try:
            sound.append((_claimed(row), row["id"], len(sound), row))
        except InputError as error:
            dropped.append(Refused(row["id"], str(error).removeprefix(f"{row['id']}: ")))
    for *_, row in sorted(sound):
        what = (_digits(row, "silicon_ttft_ms"), _digits(row, "silicon_tpot_ms"), row["system"])
        if what in kept:
            dropped.append(Refused(row["id"], f"the same measurement as {kept[what]['id']}"))
        else:
            kept[what] = row
    return list(kept.values()), dropped


def _digits(row: Mapping[str, str], name: str) -> str:
    """Nine digits: dumps of one measurement differ in the sixteenth."""
    return f"{_number(row, name):.9g}"


def _claimed(row: Mapping[str, str]) -> float:
    return max(_number(row, "tp_size"), _experts(row)) * max(1.0, _number(row, "attention_dp_size"))


def _experts(row: Mapping[str, str]) -> float:
    return _number(row, "moe_tp_size") * _number(row, "moe_ep_size")


def _number(row: Mapping[str, str], name: str) -> float:
    text = row.get(name) or "0"
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{row.get('id')}: {name} is {text!r}; give a number") from None
    return value if math.isfinite(value) else 0.0


def number(row: Mapping[str, str], name: str) -> float:
    """A column as a number, 0 where it is empty. Raises InputError for a word."""
    return _number(row, name)


def model_name(row: Mapping[str, str]) -> str:
    """Our name of a row's model. Raises InputError for one without geometry."""
    if row["model_path"] not in _MODELS:
        raise InputError(f"{row['id']}: no geometry for {row['model_path']}")
    return _MODELS[row["model_path"]]


def silicon_concurrency(row: Mapping[str, str]) -> int:
    """Clients of the closed loop that was measured. Raises InputError where it is not said."""
    found = re.search(r"silicon_concurrency=(\d+)", row["silicon_data_source"])
    if found is None:
        raise InputError(f"{row['id']}: the load is unknown")
    return int(found[1])


def parse(row: Mapping[str, str]) -> SiliconRow:
    """A raw row in our words. Raises InputError where it does not say what is needed."""
    name = row["id"]
    if row["model_path"] not in _MODELS:
        raise InputError(f"{name}: no geometry for {row['model_path']}; add it to the readers")
    source = row["silicon_data_source"]
    found = re.search(r"silicon_concurrency=(\d+)", source)
    if found is None:
        raise InputError(f"{name}: no silicon_concurrency in its source; the load is unknown")
    tp = int(_number(row, "tp_size"))
    if _experts(row) > tp:
        raise InputError(
            f"{name}: its experts span {_experts(row):g} GPUs, its tp {tp}; the number of GPUs is "
            "ambiguous (relabelled twins of tp runs are known)"
        )
    system = row["system"].removesuffix("_sxm")
    gpu = get_gpu(_GPUS.get(system, system))
    spec, precision = _as_served(get_model(_MODELS[row["model_path"]]), row["precision"])
    isl, version = int(_number(row, "isl")), row.get("backend_version", "")
    launch = launch_of(source, row["backend"], version, spec, gpu, precision, isl)
    return SiliconRow(
        id=name,
        engine=row["backend"],
        version=version,
        spec=spec,
        gpu=gpu,
        system=system,
        precision=precision,
        tp=tp,
        isl=isl,
        osl=int(_number(row, "osl")),
        concurrency=int(found[1]),
        ttft=_number(row, "silicon_ttft_ms") / 1e3,
        tpot=_number(row, "silicon_tpot_ms") / 1e3,
        launch=launch,
    )


def _as_served(spec: ModelSpec, precision: str) -> tuple[ModelSpec, str]:
    """The model with the formats that ``precision`` stands for; an empty one is bf16."""
    precision = precision or spec.dtype
    if precision == "int4" or spec.name == "gpt-oss-120b":
        return spec, precision
    dense = "bf16" if spec.name in _EXPERTS_ONLY else precision
    return replace(spec, dtype=dense, expert_dtype=precision), precision
