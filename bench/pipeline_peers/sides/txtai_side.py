"""txtai: every chunk is upserted, as its guide says; the library has no notion of a folder."""

from __future__ import annotations

from pathlib import Path

from txtai import Embeddings

from bench.pipeline_peers.embedding import embed
from bench.pipeline_peers.sides.paragraphs import split


def index(folder: Path, state: Path) -> None:
    embeddings = _open(state)
    embeddings.upsert(
        (f"{path.relative_to(folder)}#{number}", text, None)
        for path in sorted(folder.rglob("*.txt"))
        for number, text in enumerate(split(path.read_text()))
    )
    embeddings.save(str(state / "index"))


def stored(folder: Path, state: Path) -> dict[str, list[str]]:  # noqa: ARG001 - ids are relative
    found: dict[str, list[str]] = {}
    embeddings = _open(state)
    for row in embeddings.search(f"SELECT id, text FROM txtai LIMIT {embeddings.count()}"):
        found.setdefault(row["id"].rpartition("#")[0], []).append(row["text"])
    return found


def _open(state: Path) -> Embeddings:
    # The function is not stored with the index: it is given again when that is loaded.
    settings = {"method": "external", "transform": embed, "content": True}
    embeddings = Embeddings(settings)
    if (state / "index").exists():
        embeddings.load(str(state / "index"), config=settings)
    return embeddings
