"""Write a file whole or not at all: under another name in the same folder, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from minilab.facts.errors import InputError


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file to write to, which becomes ``path`` when the block ends without an error.

    Raises:
        InputError: the disk is full, the folder is missing or may not be written. Whatever goes
            wrong, ``path`` keeps what it had and no temporary file stays.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"{path}: cannot be written: {reason}; nothing was changed there, "
            f"make room or name another place"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
