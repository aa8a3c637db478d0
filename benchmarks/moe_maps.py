"""Draw chapter 6's regime maps from the simulator: too many runs for the build of a page.

``python benchmarks/moe_maps.py`` writes results/moe_maps.json, the maps as ``RegimeMap.to_dict``
gives them. Nothing is measured here but the seconds it took; tests recompute points of it.
"""

from __future__ import annotations

import argparse
import time
from functools import partial

from common import host, write

from minilab.lab import moe_maps

MAPS = {
    "parallel": moe_maps.parallel_map,
    "dispatch": moe_maps.dispatch_map,
    "latent_ranks": partial(moe_maps.latent_map, "dp"),
    "latent_slices": partial(moe_maps.latent_map, "tp"),
}


def main() -> None:
    """Draw them all and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-progress", action="store_true")
    progress = not parser.parse_args().no_progress
    machine, begin, found = host(), time.process_time(), {}
    for name, draw in MAPS.items():
        found[name] = draw(progress=progress)
        print(f"{name}\n{found[name].table()}\n")
    seconds = time.process_time() - begin
    maps = {name: each.to_dict() for name, each in found.items()}
    result = {"host": machine, "seed": 0, "cpu_seconds": round(seconds, 1), "maps": maps}
    print(f"{seconds:.0f} CPU seconds, written to {write('moe_maps', result)}")


if __name__ == "__main__":
    main()
