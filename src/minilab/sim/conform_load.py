"""A learner's own class, by ``file.py:Class`` or ``module:Class``; errors in it in one line."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from minilab.facts.errors import InputError
from minilab.sim.conform_run import shown_path

_HOW = "give FILE.py:CLASS or MODULE:CLASS"


def load_class(target: str) -> type[Any]:
    """The class that ``target`` names; the class may be left out where the file has only one.

    The module is imported, so its code runs.

    Raises:
        InputError: no such file, module or class; or the module does not import, told with the
            line of its own that failed.
    """
    module_name, _, class_name = target.rpartition(":")
    if not module_name or "/" in class_name or class_name.endswith(".py"):
        module_name, class_name = target, ""
    module = _import(module_name)
    classes = {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__
    }
    if class_name:
        return _named(module, module_name, class_name, classes)
    schedulers = [name for name, value in classes.items() if hasattr(value, "schedule")]
    if len(schedulers) != 1:
        there = ", ".join(schedulers) or "none"
        raise InputError(f"{module_name}: classes with a schedule method: {there}; {_HOW}")
    found: type[Any] = classes[schedulers[0]]
    return found


def _named(
    module: ModuleType, module_name: str, class_name: str, classes: dict[str, Any]
) -> type[Any]:
    found = getattr(module, class_name, None)
    if inspect.isclass(found):
        return found
    if found is not None:
        kind = type(found).__name__
        raise InputError(f"{module_name}: {class_name} is a {kind}, not a class; {_HOW}")
    close = difflib.get_close_matches(class_name, classes, n=2)
    hint = f"did you mean {' or '.join(close)}?" if close else f"it has {', '.join(classes)}"
    there = hint if classes else "it defines no class"
    raise InputError(f"{module_name}: no class {class_name!r}; {there}")


def _import(name: str) -> ModuleType:
    path = Path(name)
    own = name.endswith(".py") or "/" in name
    if own and not path.is_file():
        raise InputError(f"{name}: no such file; {_HOW}")
    folder = str(path.parent.resolve() if own else Path.cwd())
    sys.path.insert(0, folder)  # its neighbours, as if it were run from there
    try:
        return _from_file(path) if own else importlib.import_module(name)
    except SyntaxError as error:
        where = f"{shown_path(error.filename or name)}:{error.lineno}"
        raise InputError(f"{where}: {error.msg}; correct this line") from None
    except ModuleNotFoundError as error:
        if error.name is not None and name.split(".")[0] == error.name.split(".")[0]:
            raise InputError(f"{name}: no such module from here; {_HOW}") from None
        raise InputError(_told(error, name)) from None
    except (Exception, SystemExit) as error:
        raise InputError(_told(error, name)) from None
    finally:
        sys.path.remove(folder)


def _from_file(path: Path) -> ModuleType:
    name = f"conform_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file; {_HOW}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    return module


def _told(error: BaseException, name: str) -> str:
    """The error, at the last line that is the module's own."""
    frames = traceback.extract_tb(error.__traceback__)
    stem = Path(name).name if name.endswith(".py") else name.split(".")[-1] + ".py"
    mine = [frame for frame in frames if Path(frame.filename).name == stem]
    text = " ".join(str(error).split()) or "no message"
    what = f"{type(error).__name__}: {text}"
    if not mine:
        return f"{name}: {what}; it does not import"
    where = f"{shown_path(mine[-1].filename)}:{mine[-1].lineno}"
    return f"{where}: {what}; it does not import"
