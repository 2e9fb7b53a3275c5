"""Extensions: other packages that add formats, chunkers, embedders, stores and queue engines.

A package declares them as entry points, one group for each kind. They are looked up when a name is not one
of Penstock's own, so that a command that needs none does not pay for the search.
"""

from __future__ import annotations

import enum
import functools
import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import ExtensionFailed

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


class Extension(msgspec.Struct, frozen=True):
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
    return tuple(sorted(_declared(), key=lambda one: (one.kind, one.name, one.package)))


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


_REQUIREMENT = r"(?P<needed>[^;]+);.*\bextra\s*==\s*['\"](?P<extra>[\w-]+)['\"]"


class Extra(msgspec.Struct, frozen=True):
    """An optional part. ``module``: importable once the part is installed."""

    name: str
    module: str
    size_mb: int
    purpose: str

    @property
    def installed(self) -> bool:
        from importlib.util import find_spec

        return find_spec(self.module) is not None


EXTRAS = (
    Extra("chroma", "chromadb", 371, "vectors in Chroma"),
    Extra("fastembed", "fastembed", 114, "the embedder fastembed; models are downloaded by name"),
    Extra("grammars", "tree_sitter_ruby", 61, "code of more languages, cut between functions and classes"),
    Extra("langchain", "langchain_core", 65, "a retriever and a loader for LangChain"),
    Extra("llama-index", "llama_index", 144, "a retriever and an ingestion step for LlamaIndex"),
    Extra("mcp", "mcp", 40, "the MCP server for agents, `penstock mcp`"),
    Extra("minilm", "onnxruntime", 69, "the embedder MiniLM; its model takes 34 MB more"),
    Extra("neo4j", "neo4j", 8, "a copy of the graph in Neo4j"),
    Extra("otel", "opentelemetry", 1, "traces by OpenTelemetry, where the application sets a provider"),
    Extra("postgres", "psycopg", 21, "queue and catalog in PostgreSQL"),
    Extra("qdrant", "qdrant_client", 92, "vectors in Qdrant"),
    Extra("rapidocr", "rapidocr", 271, "OCR of poor pictures"),
    Extra("redis", "redis", 9, "queue in Redis, and the Redis contract"),
    Extra("serve", "fastapi", 22, "the HTTP server, `penstock serve`"),
    Extra("usearch", "usearch", 56, "an approximate index over very many vectors"),
    Extra("watch", "watchfiles", 2, "the watcher of folders, `penstock watch`"),
)
"""Optional parts, with the size of what they install, as ``python -m bench.install_size`` measures it."""


def install_command(extra: str) -> str:
    """Return the command to install the packages of an extra.

    It names the packages: ``pip install 'penstock[extra]'`` works only where an index has Penstock, and
    ``pip install '.[extra]'`` only in a clone.
    """
    # Imported for the message: every command that opens a store loads this module.
    import importlib.metadata
    import shlex

    try:
        listed = importlib.metadata.requires("penstock") or ()
    except importlib.metadata.PackageNotFoundError:
        listed = ()
    found = [re.fullmatch(_REQUIREMENT, one) for one in listed]
    needed = [match["needed"].strip() for match in found if match and match["extra"] == extra]
    # Without metadata this is an unpacked source tree.
    return f"pip install {shlex.join(needed or [f'.[{extra}]'])}"


def is_installed(extra: str) -> bool:
    """Check whether an extra is installed."""
    return any(each.installed for each in EXTRAS if each.name == extra)


def refuse_missing(extra: str, what: str) -> None:
    """Raise ``DriverMissing`` with the install command, unless the extra is installed."""
    if not is_installed(extra):
        from penstock.errors import DriverMissing

        raise DriverMissing(f"{what} needs the extra {extra}", remedy=install_remedy(extra))


def install_remedy(extra: str) -> str:
    """Return a remedy with the install command and the Python environment to use."""
    return f"Install it with `{install_command(extra)}`, in the environment {sys.prefix}."
