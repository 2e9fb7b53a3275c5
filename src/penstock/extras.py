"""Optional parts of Penstock, and the commands that install them."""

from __future__ import annotations

import sys

from penstock.lazy_pattern import lazy_pattern
from penstock.named_tuple import NamedTuple

_REQUIREMENT = lazy_pattern(r"(?P<needed>[^;]+);.*\bextra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")


class Extra(NamedTuple):
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
    found = map(_REQUIREMENT.fullmatch, listed)
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
