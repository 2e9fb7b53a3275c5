"""Packages with extensions, installed by their metadata in a folder of the import path."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from penstock import extensions
from penstock.pipeline.chunk import text
from penstock.pipeline.extract import file_types

EXAMPLE = Path(__file__).parents[2] / "examples" / "extension"
_CACHES = (
    extensions.installed,
    extensions._by_name,
    text.added_chunker,
)

Install = Callable[..., Path]


def metadata(folder: Path, name: str, groups: Mapping[str, Mapping[str, str]], version: str = "1.0") -> None:
    """Write the metadata of an installed package with entry points."""
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{point} = {target}" for point, target in points.items()))
    ]
    (place / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install packages for the time of a test: name, entry points, and the source of a module."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    modules = set(sys.modules)

    def install_one(name: str, groups: Mapping[str, Mapping[str, str]], **sources: str) -> Path:
        metadata(folder, name, groups)
        for module, source in sources.items():
            (folder / f"{module}.py").write_text(source)
        _forget()
        return folder

    _forget()
    yield install_one
    monkeypatch.undo()
    _forget()
    for module in set(sys.modules) - modules:
        if str(getattr(sys.modules[module], "__file__", "")).startswith(str(folder)):
            del sys.modules[module]


@pytest.fixture
def example(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of examples/extension, with the entry points of its project file."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    monkeypatch.syspath_prepend(str(EXAMPLE / "src"))
    install(project["name"], project["entry-points"])


def _forget() -> None:
    for cache in _CACHES:
        cache.cache_clear()
    file_types.forget_types()
