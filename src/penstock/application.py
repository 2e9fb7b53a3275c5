"""Applications: load one by its name, and find the name under which processes can load this one."""

from __future__ import annotations

import importlib
import multiprocessing
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb
from typing import TYPE_CHECKING

from penstock.errors import AppNotFound, PenstockError, WorkerFailed
from penstock.interpreter import add_application_directory

if TYPE_CHECKING:
    from penstock.service.functions import FunctionJobs


def load_app(name: str) -> FunctionJobs:
    """Load the application named ``MODULE:NAME``; without a name after the colon, ``app``."""
    # A Penstock is one. Asking for Penstock itself would make this module and the worker import their user.
    from penstock.service.functions import FunctionJobs

    module_name, _, path = name.partition(":")
    found: object = _load_module(module_name, name)
    for part in (path or "app").split("."):
        if not hasattr(found, part):
            raise AppNotFound(f"{name}: module {module_name} has no {path or 'app'!r}")
        found = getattr(found, part)
    if not isinstance(found, FunctionJobs):
        raise AppNotFound(f"{name}: expected a Penstock, found {type(found).__name__}")
    return found


def _load_module(module_name: str, name: str) -> object:
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise AppNotFound(f"{name!r} is not the name of an application")
    add_application_directory()
    try:
        with _loading():
            return importlib.import_module(module_name)
    except PenstockError:
        raise
    except ModuleNotFoundError as error:
        if f"{module_name}.".startswith(f"{error.name}."):
            raise AppNotFound(f"{name}: there is no module {error.name}") from error
        missing = f"{name}: there is no module {error.name}{_place(error)}"
        raise AppNotFound(missing, remedy=f"Install it, or {_SEE % module_name}") from error
    except (Exception, SystemExit) as error:  # what a module does at its import is anybody's guess
        said = " ".join(f"{type(error).__name__} while it was imported: {error}".split())
        raise AppNotFound(
            f"{name}: {said}{_place(error)}", remedy=f"Mend the module; {_SEE % module_name}"
        ) from error


_SEE = "`python -c 'import %s'` shows the whole traceback."


def _place(error: BaseException) -> str:
    """Where it was raised, unless that is the import itself."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}, line {error.lineno})"
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    # The first is here, the second in importlib.
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 2 else ""


_modules_loading = 0


@contextmanager
def _loading() -> Iterator[None]:
    global _modules_loading
    _modules_loading += 1
    try:
        yield
    finally:
        _modules_loading -= 1


def refuse_while_loading() -> None:
    """A worker that is started by loading its application would be started again by each of its children."""
    # Python's own children run the main script again before they do anything; then it is this attribute.
    if _modules_loading or getattr(multiprocessing.current_process(), "_inheriting", False):
        raise WorkerFailed(
            'run_worker was called while a module was loaded, not behind `if __name__ == "__main__":`',
            remedy="Put it there: children load the module, too.",
        )


def name_of(app: object) -> str:
    """Where children will find this very application: the module and the global that hold it."""
    found = [
        f"{module_name}:{name}"
        for module_name, module in list(sys.modules.items())
        for name, value in list(getattr(module, "__dict__", {}).items())
        if value is app
    ]
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    # A child runs the script again; what was typed, or came from standard input, it cannot.
    script = main is not None and Path(main).is_file()
    usable = [name for name in found if script or not name.startswith("__m")]
    if not usable:
        raise AppNotFound(
            "this application is no global of a module, so worker processes cannot load it",
            remedy='Make it one, or say where it is: app.run_worker(app="mypkg.tasks:app").',
        )
    # The module's own name first: what is called __main__ runs a script again.
    return min(usable, key=lambda name: (name.startswith("__m"), name))
