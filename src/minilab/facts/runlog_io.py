"""RunLog files: write and read, told apart by the name's ending (.jsonl or .parquet).

JSON lines need nothing and can be read by eye; Parquet (extra: data) opens in pandas, requests as
rows. Neither can run code when it is read, unlike a pickle.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

from minilab.facts import runlog_jsonl, runlog_parquet
from minilab.facts.atomic import whole_file
from minilab.facts.errors import InputError
from minilab.facts.runlog import RunLog

_FORMATS: dict[str, ModuleType] = {".jsonl": runlog_jsonl, ".parquet": runlog_parquet}


def write(log: RunLog, path: str | os.PathLike[str]) -> None:
    """Check the log, then write it whole or not at all.

    Raises:
        InputError: the log breaks a rule (``RunLog.check``), the ending is unknown, the file cannot
            be written, or pyarrow is missing for .parquet.
    """
    form = _form(path)
    log.check()
    with whole_file(path) as file:
        form.write(log, file)


def read(path: str | os.PathLike[str]) -> RunLog:
    """The log in the file, checked.

    Raises:
        InputError: no such file, not a run log, newer than this minilab knows, damaged (the
            message names file, line and limit), or pyarrow is missing for .parquet.
    """
    form = _form(path)
    try:
        log: RunLog = form.read(Path(path))
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{path}: cannot be read: {reason}; give a run log's path") from error
    try:
        return log.check()
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def _form(path: str | os.PathLike[str]) -> ModuleType:
    ending = Path(path).suffix.lower()
    if ending not in _FORMATS:
        raise InputError(
            f"{path}: a run log cannot end in {ending or 'nothing'!r}; name it .jsonl or .parquet"
        )
    return _FORMATS[ending]
