"""Chroma and a loop by hand: a hash of each file in the metadata tells what has changed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import chromadb

from bench.pipeline_peers.embedding import embed
from bench.pipeline_peers.sides.paragraphs import split


def index(folder: Path, state: Path) -> None:
    collection = _open(state)
    known = {each["path"]: each["hash"] for each in collection.get(include=["metadatas"])["metadatas"]}
    for path in sorted(folder.rglob("*.txt")):
        data = path.read_bytes()
        name, digest = str(path), hashlib.sha256(data).hexdigest()
        before = known.pop(name, None)
        if before == digest:
            continue
        if before is not None:
            collection.delete(where={"path": name})
        chunks = split(data.decode())
        collection.add(
            ids=[f"{name}#{number}" for number in range(len(chunks))],
            documents=chunks,
            embeddings=embed(chunks),
            metadatas=[{"path": name, "hash": digest}] * len(chunks),
        )
    for name in known:
        collection.delete(where={"path": name})


def stored(folder: Path, state: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    rows = _open(state).get(include=["metadatas", "documents"])
    for about, text in zip(rows["metadatas"], rows["documents"], strict=True):
        found.setdefault(str(Path(about["path"]).relative_to(folder)), []).append(text)
    return found


def _open(state: Path) -> chromadb.Collection:
    client = chromadb.PersistentClient(path=str(state / "chroma"))
    return client.get_or_create_collection("documents", embedding_function=None)
