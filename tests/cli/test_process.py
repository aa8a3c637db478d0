"""What only a process of its own can show: pipes that close, a full output, the exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MINILAB = (sys.executable, "-m", "minilab.cli.main")
SIM = (*MINILAB, "sim", "--trace", "synthetic", "--limit", "20", "--json")


def test_reader_goes_away():
    """``minilab models | head -1`` must not end in a BrokenPipeError, also at the exit."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*MINILAB, "models"], stdout=writing, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_is_full():
    """A result that could not be written is an error, told once."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(SIM, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "minilab: standard output: no space left on device\n"


def test_status_and_streams():
    """Results on stdout, errors on stderr, and the status reaches the shell."""
    done = subprocess.run([*SIM, "--gpu", "h1000"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("minilab: unknown GPU 'h1000'")


def test_version():
    """The number that a report of a fault has to name."""
    from minilab import __version__

    done = subprocess.run([*MINILAB, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"minilab {__version__}\n")
