"""What a wide decode step costs beside a narrow one: the step times that lab 04 falls back on.

SmolLM2-135M in float32, one thread, CPU seconds; the shortest of nine takes, widths in turn. The
times go into ``src/minilab/lab/spec_texts.json``, whose texts stay as they are. The load before is
kept beside them: measure with nothing else running.
"""

from __future__ import annotations

import argparse
import json
from datetime import date
from pathlib import Path

import common

PLACE = Path(__file__).parent.parent / "src" / "minilab" / "lab" / "spec_texts.json"
WIDTHS, BATCHES, CONTEXT, REPEATS = range(1, 6), (1, 8), 256, 8


def main() -> None:
    """Measure, print, and write unless told not to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-write", action="store_true", help="leave the file alone")
    options = parser.parse_args()

    import torch

    from minilab.engine.load import smollm2_file
    from minilab.engine.loader import load
    from minilab.lab.spec_run import step_seconds

    torch.set_num_threads(1)
    about = common.host()
    checkpoint = load(smollm2_file())
    found = {}
    for batch in BATCHES:
        times = step_seconds(checkpoint, WIDTHS, batch, CONTEXT, REPEATS)
        found[str(batch)] = {str(width): round(seconds, 5) for width, seconds in times.items()}
        ratios = ", ".join(f"{width}: {times[width] / times[1]:.2f}" for width in WIDTHS)
        print(f"batch {batch}: {times[1] * 1e3:.1f} ms at width 1; in units of it {ratios}")
    if options.no_write:
        return
    kept = json.loads(PLACE.read_text(encoding="utf-8"))
    kept["origin"] = (
        "SmolLM2-135M-Instruct in float32, greedy, prompts of this course, up to 160 tokens; "
        f"step times: {about['cpu']}, one thread, torch {torch.__version__}, {date.today()}"
    )
    kept["load_before"], kept["step_seconds"] = round(about["load_before"], 2), found
    PLACE.write_text(json.dumps(kept, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"written to {PLACE}")


if __name__ == "__main__":
    main()
