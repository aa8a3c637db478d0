"""From results of a calibration to ``facts/constants.json``: what ships is what was scored."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from minilab.facts.atomic import whole_file
from minilab.judge.terms import FITTED

SOURCE = "AIConfigurator silicon data (ai-dynamo/aiconfigurator 095f58a51, Apache-2.0)"
RUNS = "vLLM run published with LLMServingSim 2.0 (casys-kaist/LLMServingSim 5daddb21a, MIT)"
_SM = {"hopper": [90], "blackwell": [100, 103]}
_KEPT = ("n", "median", "p90", "bias", "low", "high")


def fits(silicon: dict[str, Any], replays: list[dict[str, Any]]) -> dict[str, Any]:
    """The ``fits`` of constants.json from the results of ``silicon.calibrate`` and replays."""
    found: dict[str, Any] = {}
    for row in replays:
        found[row["gpu"]] = _of_run(row)
    for name, family in silicon["families"].items():
        found[name] = _of_family(name, family, silicon["left_out"].get(name))
    return found


def _of_family(name: str, row: dict[str, Any], left_out: dict[str, Any] | None) -> dict[str, Any]:
    gpus = ", ".join(gpu.upper() for gpu in row["gpus"])
    entry: dict[str, Any] = {
        "sm": _SM[name],
        "values": _values(row["constants"]),
        "fitted": list(FITTED),
        "on": f"{row['fitted_rows']} vLLM measurements of {name.title()} GPUs ({gpus})",
        "source": SOURCE,
        "models": row["models"],
        "error_of": f"error on {row['tpot']['n']} rows that no fit saw, median / p90",
        "error": _errors(row),
    }
    if left_out:
        entry["new_model"] = _errors(left_out)
    return entry


def _of_run(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "gpus": [row["gpu"]],
        "values": _values(row["shipped"]),
        "fitted": row["fitted"],
        "on": f"one {RUNS}: 300 requests of {row['model']}",
        "source": RUNS,
        "models": [row["model"]],
        "error_of": "error of single requests of that same run, median / p90",
        "error": _errors(row["requests"]),
    }


def _values(constants: dict[str, Any]) -> dict[str, float]:
    return {k: float(f"{v:.4g}") for k, v in constants.items() if k != "provenance"}


def _errors(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {k: v if k == "n" else float(f"{v:.4g}") for k, v in row[name].items() if k in _KEPT}
        for name in ("tpot", "ttft")
    }


def write(found: dict[str, Any], path: str | Path | None = None) -> Path:
    """Put the fits into constants.json (the package's own, or ``path``); the rest stays."""
    shipped = resources.files("minilab.facts").joinpath("constants.json")
    place = Path(str(shipped)) if path is None else Path(path)
    data = json.loads(shipped.read_text(encoding="utf-8"))
    data["fits"] = found
    with whole_file(place) as file:
        file.write((json.dumps(data, indent=1) + "\n").encode())
    return place
