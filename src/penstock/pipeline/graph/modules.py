"""Names of modules: the name by which other files import a source file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

_PYTHON = (".py", ".pyi", ".pyw")


def module_name(path: str, is_package: Callable[[str], bool]) -> str:
    """The dotted name of a Python file, below the outermost folder that is a package; of others the path.

    ``is_package``: whether a folder has the file that makes it a package.
    """
    file = PurePosixPath(path)
    if file.suffix not in _PYTHON:
        return path
    parts = [] if file.stem == "__init__" else [file.stem]
    folder = file.parent
    while folder.name and is_package(str(folder)):
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts) or folder.name or file.stem
