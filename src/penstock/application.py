"""Applications: load one by name, and find the name of a loaded one for child processes."""

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
    # Penstock is a subclass. Importing Penstock itself here would be an import cycle.
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
        raise AppNotFound(f"{name!r} is not a valid application name")
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
    except (Exception, SystemExit) as error:  # an import runs arbitrary code
        cause = " ".join(f"{type(error).__name__} during the import: {error}".split())
        raise AppNotFound(
            f"{name}: {cause}{_place(error)}", remedy=f"Correct the module; {_SEE % module_name}"
        ) from error


_SEE = "`python -c 'import %s'` shows the whole traceback."


def _place(error: BaseException) -> str:
    """File and line of the error, unless the import itself raised."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}, line {error.lineno})"
    frames = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    # The first frame is here, the second in importlib.
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
    """Refuse ``run_worker`` at import time: every child process would start a worker again."""
    # Child processes of multiprocessing run the main script first; meanwhile this attribute is set.
    if _modules_loading or getattr(multiprocessing.current_process(), "_inheriting", False):
        raise WorkerFailed(
            'run_worker was called during an import, not behind `if __name__ == "__main__":`',
            remedy="Move the call there: child processes import the module as well.",
        )


def name_of(app: object) -> str:
    """The name ``MODULE:GLOBAL`` under which child processes can load this application."""
    found = [
        f"{module_name}:{name}"
        for module_name, module in list(sys.modules.items())
        for name, value in list(getattr(module, "__dict__", {}).items())
        if value is app
    ]
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    # A child can run a script again, but not typed code or standard input.
    script = main is not None and Path(main).is_file()
    usable = [name for name in found if script or not name.startswith("__m")]
    if not usable:
        raise AppNotFound(
            "this application is not a global of a module, so worker processes cannot load it",
            remedy='Assign it to a global, or name it: app.run_worker(app="mypkg.tasks:app").',
        )
    # The module's own name first: __main__ would run the script again.
    return min(usable, key=lambda name: (name.startswith("__m"), name))
