"""Source trees, known by their git repository or by a file that a build tool reads."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

from penstock.pipeline.walk.repository import find_repository

PROJECT_FILES = (
    "pyproject.toml",
    "setup.py",
    "package.json",
    "deno.json",
    "Cargo.toml",
    "go.mod",
    "pom.xml",
    "build.gradle",
    "build.gradle.kts",
    "build.sbt",
    "CMakeLists.txt",
    "meson.build",
    "configure.ac",
    "Gemfile",
    "composer.json",
    "mix.exs",
    "Package.swift",
    "pubspec.yaml",
    "dune-project",
    "stack.yaml",
    "*.cabal",
    "*.csproj",
    "*.sln",
)
"""Names of files in the top folder of a source tree. No Makefile: folders of documents have one, too."""


def code_reason(folder: str) -> str | None:
    """The reason to index source code below a folder; None where the folder is no source tree."""
    if find_repository(folder) is not None:
        return "the folder is in a git repository"
    try:
        names = sorted(path.name for path in Path(folder).iterdir() if path.is_file())
    except OSError:
        return None
    found = (name for pattern in PROJECT_FILES for name in names if fnmatchcase(name, pattern))
    name = next(found, None)
    return None if name is None else f"the folder has a {name}"
