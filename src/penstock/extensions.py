"""Extensions: other packages that add formats, chunkers, embedders, stores and queue engines.

A package declares them as entry points, one group for each kind. They are looked up when a name is not one
of Penstock's own, so that a command that needs none does not pay for the search.
"""

from __future__ import annotations

import enum
import functools
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import ExtensionFailed
from penstock.named_tuple import NamedTuple

if TYPE_CHECKING:
    from importlib.metadata import PathDistribution

_METADATA = (".dist-info", ".egg-info")


class ExtensionKind(enum.StrEnum):
    """Kinds of extensions. The value is the group of the entry points."""

    FORMAT = "penstock.formats"
    """``pipeline.extract.added_formats.AddedFormat``; the name is the one of the extractor."""
    CHUNKER = "penstock.chunkers"
    """Callable without arguments that returns a ``Chunker``; the name is the one of an extractor."""
    EMBEDDER = "penstock.embedders"
    """Callable with the directory of models that returns an ``Embedder``; the name is the setting's value."""
    VECTOR_STORE = "penstock.vector_stores"
    """Callable with URL and timeout in seconds that returns a ``VectorStore``; the name is the scheme."""
    GRAPH_STORE = "penstock.graph_stores"
    """Callable with URL and timeout in seconds that returns a ``GraphCopy``; the name is the scheme."""
    QUEUE = "penstock.queues"
    """Callable with the URL that returns a ``Queue``; the name is the scheme."""


class Extension(NamedTuple):
    """A declared extension. ``target``: module and attribute, as ``module:name``."""

    kind: ExtensionKind
    name: str
    package: str
    version: str
    target: str

    def load(self) -> Any:
        """Import the object. Raises ``ExtensionFailed`` with the name of the package."""
        import importlib

        module, _, attribute = self.target.partition(":")
        try:
            return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
        except Exception as error:
            raise self.failure(f"cannot be loaded: {error}") from error

    def call(self, *arguments: Any) -> Any:
        """Import a factory and call it. Errors of Penstock pass; others become ``ExtensionFailed``."""
        from penstock.errors import PenstockError

        factory = self.load()
        try:
            return factory(*arguments)
        except PenstockError:
            raise
        except Exception as error:
            raise self.failure(f"cannot be opened: {error}") from error

    @property
    def title(self) -> str:
        """Kind and name, such as ``vector store acme``."""
        return f"{self.kind.name.lower().replace('_', ' ')} {self.name}"

    def failure(self, reason: str) -> ExtensionFailed:
        """The error naming this extension and the package."""
        return ExtensionFailed(
            f"the {self.title} of the package {self.package} {reason}",
            remedy=f"Upgrade the package {self.package}, or remove it with `pip uninstall {self.package}`.",
        )


@functools.cache
def installed() -> tuple[Extension, ...]:
    """All extensions of this environment, by kind, name and package."""
    return tuple(sorted(_declared()))


@functools.cache
def _by_name(kind: ExtensionKind) -> dict[str, list[Extension]]:
    found: dict[str, list[Extension]] = {}
    for extension in installed():
        if extension.kind is kind:
            found.setdefault(extension.name, []).append(extension)
    return found


def names(kind: ExtensionKind) -> tuple[str, ...]:
    """The names of all extensions of a kind, in order."""
    return tuple(_by_name(kind))


def find(kind: ExtensionKind, name: str) -> Extension | None:
    """The extension of this name. Raises ``ExtensionFailed`` where two packages declare it."""
    found = _by_name(kind).get(name, ())
    if len(found) > 1:
        packages = " and ".join(extension.package for extension in found)
        raise found[0].failure(f"is declared twice, by {packages}")
    return found[0] if found else None


def _declared() -> Iterator[Extension]:
    groups = {kind.value: kind for kind in ExtensionKind}
    for distribution in _distributions():
        for point in distribution.entry_points:
            kind = groups.get(point.group)
            if kind is not None:
                yield Extension(
                    kind, point.name, distribution.name, distribution.version, point.value.replace(" ", "")
                )


def _distributions() -> Iterator[PathDistribution]:
    """Installed packages with extensions, the first of each name on the import path.

    ``importlib.metadata.entry_points`` parses the metadata of every package, which takes ten times as long.
    """
    seen: set[str] = set()
    for folder, name in _metadata_folders():
        if not _declares(os.path.join(folder, name)):
            continue
        from importlib.metadata import PathDistribution
        from pathlib import Path

        distribution = PathDistribution(Path(folder, name))
        if distribution.name not in seen:
            seen.add(distribution.name)
            yield distribution


def _metadata_folders() -> Iterator[tuple[str, str]]:
    for folder in dict.fromkeys(sys.path):
        try:
            listed = os.listdir(folder)
        except OSError:
            # An entry that is no folder, such as a zip file: extensions are looked for in folders only.
            continue
        yield from ((folder, name) for name in sorted(listed) if name.endswith(_METADATA))


def _declares(metadata: str) -> bool:
    try:
        with open(os.path.join(metadata, "entry_points.txt"), "rb") as file:
            return b"[penstock." in file.read()
    except OSError:
        return False
