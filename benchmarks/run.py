"""Run every benchmark of this folder, one after the other (``make bench``).

Options are handed on, so ``run.py --strict`` fails where a target is missed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HELPERS = ("common.py", "run.py")


def main() -> int:
    folder = Path(__file__).parent
    failed = []
    for script in sorted(path for path in folder.glob("*.py") if path.name not in HELPERS):
        print(f"== {script.stem}", flush=True)
        if subprocess.run([sys.executable, script, *sys.argv[1:]], check=False).returncode:
            failed.append(script.stem)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
