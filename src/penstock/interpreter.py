"""Import path of this process and its child processes: no code of the working directory runs.

Only ``os`` and ``sys`` are imported here: with ``python -m penstock`` the working directory is still in front
of the path when this module is loaded, and a file there could be taken for any other module.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import FileFinder, ModuleSpec
    from subprocess import CompletedProcess
    from types import ModuleType

RESERVED = frozenset(
    "penstock click msgspec chardet numpy pathspec pypdfium2 "
    "pypdfium2_raw pypdfium2_cfg selectolax tree_sitter tree_sitter_c tree_sitter_cpp "
    "tree_sitter_go tree_sitter_java tree_sitter_javascript tree_sitter_python tree_sitter_rust "
    "tree_sitter_typescript wordllama olefile python_calamine psycopg psycopg_binary typing_extensions "
    "usearch simsimd numkong redis hiredis async_timeout tqdm yaml "
    "fastapi starlette pydantic pydantic_core annotated_doc annotated_types typing_inspection anyio uvicorn "
    "h11 httptools idna cryptography mcp mcp_types httpx2 httpcore2 sse_starlette python_multipart "
    "watchfiles orjson psutil opentelemetry sniffio xxhash".split()
)
"""Top-level modules imported by Penstock; an application's directory cannot replace them."""

KEPT_VARIABLES = frozenset(["PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"])
"""Environment variables of an isolated interpreter, besides ``LC_*``.

It parses hostile files, and other variables may hold passwords. ``LD_LIBRARY_PATH`` is kept because some
installations of Python do not start without it.
"""

ONE_THREAD = frozenset(["OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"])
"""Variables that an isolated interpreter gets with the value 1.

Libraries that start threads when they are loaded would make its forks unsafe."""

_COLLECT_AFTER = 100_000
"""New objects after which garbage is collected, for about 10 MB; Python's default is 700.

A short command makes 60,000, nearly all of them modules and classes that stay."""

_ISOLATED = "import sys; sys.path += [path for path in sys.argv[1:] if path not in sys.path]; "

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_original_pythonpath: str | None = None
_application_directories: list[str] = []
_appended_directories: list[str] = []


def leave_working_directory() -> None:
    """Take the working directory and every relative entry off the import path, here and for children.

    The interpreter's own directories stay, and the directory of this package, which is the working directory
    in a checkout.
    """
    global _original_pythonpath
    relative = _relative_entries()
    sys.path[:] = [entry for entry in safe_path() if entry not in relative]
    if _HOME not in sys.path:
        sys.path.append(_HOME)
    given, here = os.environ.get("PYTHONPATH"), _working_directory()
    if given:
        kept = [
            entry
            for entry in given.split(os.pathsep)
            if os.path.isabs(entry) and os.path.realpath(entry) != here
        ]
        _original_pythonpath, os.environ["PYTHONPATH"] = given, os.pathsep.join(kept)


def collect_rarely() -> None:
    """Let garbage collections begin after more new objects than by default.

    Modules, classes and rows make thousands of objects that stay, and each collection reads the new ones.
    """
    import gc

    gc.set_threshold(_COLLECT_AFTER, *gc.get_threshold()[1:])


class WithoutCollections:
    """A ``with`` block that imports or opens what stays: collections would read it all and free nothing.

    Collections after the block do not read it either.
    """

    def __enter__(self) -> None:
        import gc

        self._enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        import gc

        gc.freeze()
        if self._enabled:
            gc.enable()


def skip_last_collection() -> None:
    """Exempt everything from the collection at the end of the process, which would free it all one by one.

    Objects in no cycle are still finalized, and so is whatever is registered with ``atexit``.
    """
    import gc

    gc.freeze()


def safe_path() -> list[str]:
    """The import path without relative entries, the working directory and an application's directories."""
    here, own = _working_directory(), _interpreter_directories()
    absolute = [(entry, os.path.realpath(entry)) for entry in sys.path if os.path.isabs(entry)]
    return [
        entry
        for entry, real in absolute
        if real in own or (real != here and entry not in _application_directories)
    ]


def add_application_directory() -> None:
    """Make the modules of the working directory importable, for an application named by the user.

    They come before installed packages, but never replace the standard library or modules used by Penstock.
    The PYTHONPATH removed by ``leave_working_directory`` is restored.
    """
    global _original_pythonpath
    if _original_pythonpath is not None:
        os.environ["PYTHONPATH"], _original_pythonpath = _original_pythonpath, None
    here = _working_directory()
    for directory in [*([here] if here is not None else []), *_relative_entries()]:
        if directory not in _application_directories:
            _application_directories.append(directory)
        if directory not in sys.path:
            # For child processes of the application, which get the path but not the finder.
            sys.path.append(directory)
            _appended_directories.append(directory)
        # A finder that was cached before the hook was there knows no reserved names.
        sys.path_importer_cache.pop(directory, None)
    if _ApplicationFinder not in sys.meta_path:
        sys.meta_path.insert(0, _ApplicationFinder)
        sys.path_hooks.insert(0, _appended_directory)


def inherited_path() -> list[str]:
    """The import path for worker processes: without the directories added for an application. Each process
    adds them itself, once everything else is loaded."""
    return [entry for entry in sys.path if entry not in _appended_directories]


class _ApplicationFinder:
    """Finds top-level modules in the application's directories, except reserved names."""

    @staticmethod
    def find_spec(
        name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        from importlib.machinery import PathFinder

        if path is not None or _is_reserved(name):
            return None
        return PathFinder.find_spec(name, _application_directories, target)


def _is_reserved(name: str) -> bool:
    return name in RESERVED or name in sys.stdlib_module_names


def _appended_directory(directory: str) -> "FileFinder":
    """Path hook for an application's directory, where modules with a reserved name are not found.

    The standard library and optional dependencies try modules that this machine may not have, such as
    ``msvcrt``. Without this, a file of that name would be found at the end of the path and run.
    """
    from importlib import machinery

    if directory not in _appended_directories:
        raise ImportError(directory)

    class AppendedDirectory(machinery.FileFinder):
        def find_spec(self, fullname: str, target: "ModuleType | None" = None) -> "ModuleSpec | None":
            return None if _is_reserved(fullname) else super().find_spec(fullname, target)

    return AppendedDirectory(
        directory,
        (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
        (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES),
        (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
    )


def isolated_command(code: str) -> list[str]:
    """Command line of an isolated interpreter for ``code``, independent of the environment.

    The modules of this process are importable there as well, after the interpreter's own directories.
    """
    return [sys.executable, "-I", "-c", _ISOLATED + code, *safe_path()]


def run_pip(*arguments: str, timeout_s: float) -> "CompletedProcess[str]":
    """Run the environment's pip. It imports no module of the working directory."""
    import subprocess

    command = [sys.executable, "-I", "-m", "pip", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def isolated_environment() -> dict[str, str]:
    """The few variables that an isolated interpreter needs: none that changes Python or holds a password."""
    kept = {
        name: value for name, value in os.environ.items() if name in KEPT_VARIABLES or name.startswith("LC_")
    }
    return kept | dict.fromkeys(ONE_THREAD, "1")


def _relative_entries() -> list[str]:
    """Relative entries of PYTHONPATH as the interpreter put them on the path; an empty one is dropped."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [os.path.abspath(entry) for entry in given if entry and not os.path.isabs(entry)]


def _working_directory() -> str | None:
    try:
        return os.path.realpath(os.getcwd())
    except FileNotFoundError:
        return None


def _interpreter_directories() -> set[str]:
    """Directories of the standard library, of installed packages and of this one."""
    import site

    library = os.path.dirname(os.__file__)
    own = [_HOME, library, os.path.join(library, "lib-dynload"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        own.append(site.getusersitepackages())
    return {os.path.realpath(directory) for directory in own}
