"""One GPU for a class: cells that need it take turns, each with a share of its memory.

``with gpu_turn():`` waits for a lock file that all users of the machine can open, so that two
kernels never measure at once: a time measured beside somebody else's run is nobody's. The lock goes
with its process, also when that is killed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from minilab.facts.errors import InputError

VARIABLE = "MINILAB_GPU_LOCK"
ASK_S = 0.2


def lock_path() -> Path:
    """The file that ``MINILAB_GPU_LOCK`` names, else one in the machine's temporary folder."""
    return Path(os.environ.get(VARIABLE) or Path(tempfile.gettempdir()) / "minilab-gpu.lock")


@contextmanager
def gpu_turn(share: float = 0.5, wait: float = 600.0) -> Iterator[float]:
    """Hold the GPU's lock; gives the seconds that were waited for it.

    share: of the GPU's memory that this process may allocate through torch from here on, 0 to 1.
    wait: seconds after which it gives up.

    Raises:
        InputError: a share that is none, a lock file that cannot be opened, or a wait that ran out.
    """
    if not 0 < share <= 1:
        raise InputError(f"gpu_turn: share={share}; a share of the GPU's memory, such as 0.5")
    fcntl = _fcntl()
    path = lock_path()
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        with suppress(OSError):  # another user's file: it was opened, which is all that is needed
            os.chmod(path, 0o666)
    except OSError as error:
        raise InputError(
            f"gpu_turn: {path.name} cannot be opened ({error.strerror}); name a file that the "
            f"whole class may write in {VARIABLE}"
        ) from error
    begin = time.monotonic()
    try:
        while not _taken(fcntl, descriptor):
            if time.monotonic() - begin > wait:
                raise InputError(
                    f"gpu_turn: the GPU was busy for {wait:g} s; try again, or pass a longer wait"
                )
            time.sleep(ASK_S)
        _cap_memory(share)
        yield time.monotonic() - begin
    finally:
        os.close(descriptor)  # and with it the lock


def _fcntl() -> Any:
    if importlib.util.find_spec("fcntl") is None:
        raise InputError("gpu_turn needs Linux, macOS or WSL: this system has no lock of that kind")
    return importlib.import_module("fcntl")


def _taken(fcntl: Any, descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _cap_memory(share: float) -> None:
    """Of what this process may allocate; nothing to do without torch or without a GPU."""
    if importlib.util.find_spec("torch") is None:
        return
    torch = importlib.import_module("torch")
    if torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share)
