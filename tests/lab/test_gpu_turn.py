"""gpu_turn: one at a time on a machine, also when the one before was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from minilab.facts.errors import InputError
from minilab.lab.gpu_turn import VARIABLE, gpu_turn, lock_path

HOLD = """
from minilab.lab import gpu_turn
gpu_turn._cap_memory = lambda share: None
with gpu_turn.gpu_turn():
    print("mine", flush=True)
    import time
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gpu.lock"))
    monkeypatch.setattr("minilab.lab.gpu_turn._cap_memory", lambda share: None)


def test_two_processes_take_turns_and_a_killed_one_gives_its_turn_back() -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdout.readline() == "mine\n"
    with pytest.raises(InputError, match=r"busy for 0\.3 s"), gpu_turn(wait=0.3):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with gpu_turn(wait=30.0) as waited:
        assert waited < 30.0
    with gpu_turn(wait=0.0):  # the turn before was given back
        pass


def test_an_error_in_the_turn_ends_it() -> None:
    with pytest.raises(ZeroDivisionError), gpu_turn():
        1 / 0  # noqa: B018
    with gpu_turn(wait=0.0):
        pass


def test_bad_calls_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="share=50"), gpu_turn(share=50):
        pass
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none" / "gpu.lock"))
    assert lock_path().parent.name == "none"
    with pytest.raises(InputError, match="cannot be opened"), gpu_turn():
        pass
