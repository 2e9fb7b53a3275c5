"""The sides: Penstock, a bare loop, and the libraries, each in an environment of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
OURS, FLOOR = "Penstock", "bare loop"
TELEMETRY_OFF = {
    "ANONYMIZED_TELEMETRY": "False",
    "COCOINDEX_DISABLE_USAGE_TRACKING": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "False",
}


class Side(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    module: str
    """Its script below ``sides``."""
    packages: tuple[str, ...] = ()
    """Installed into its environment, the first one gives its version; none: the project's environment."""
    setup: str
    lacks: str = ""
    """What it does not do by itself."""

    def command(self, python: Path, verb: str, folder: Path, state: Path) -> list[str]:
        if self.name == OURS and verb == "index":
            return [str(python), "-m", "penstock", "index", str(folder), "--wait", "--json"]
        return [str(python), "-m", "bench.pipeline_peers.side", self.module, verb, str(folder), str(state)]

    def environment(self, state: Path) -> dict[str, str]:
        if self.name == OURS:
            counted = Path(__file__).with_name("counted")
            return {"PENSTOCK_STATE": str(state), "PYTHONPATH": f"{counted}:{ROOT}"}
        return TELEMETRY_OFF | {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}

    def python(self, environments: Path) -> Path:
        return environments / self.module / "bin" / "python" if self.packages else Path(sys.executable)


FIELD = (
    Side(
        name=OURS,
        module="penstock_side",
        setup="`penstock index FOLDER --wait`, all settings at their defaults",
    ),
    Side(
        name=FLOOR,
        module="bare_loop",
        setup="Penstock's reader, splitter and model; one SQLite table each of files, chunks and words",
        lacks="retries, jobs, search, recovery from a half-written file; a renamed file is a new one",
    ),
    Side(
        name="CocoIndex",
        module="cocoindex_side",
        packages=("cocoindex",),
        setup="`App` with `walk_dir`, `mount_each`, `RecursiveSplitter` and the SQLite target; files and "
        "embeddings memoized; its state is an LMDB file",
        lacks="keyword search; reading anything but text; a renamed file is a new one",
    ),
    Side(
        name="LlamaIndex",
        module="llama_index_side",
        packages=("llama-index-core", "llama-index-vector-stores-chroma"),
        setup="`SimpleDirectoryReader`, `IngestionPipeline` with `SentenceSplitter`, a document store "
        "(`upserts_and_delete`) and Chroma",
        lacks="saving before the end of a run; it reads every file in each run",
    ),
    Side(
        name="Haystack",
        module="haystack_side",
        packages=("haystack-ai", "chroma-haystack"),
        setup="`CacheChecker` by path, `TextFileToDocument`, `DocumentSplitter`, `DocumentWriter` and Chroma",
        lacks="noticing that a known file was edited, renamed or deleted; saving before the end of a run",
    ),
    Side(
        name="txtai",
        module="txtai_side",
        packages=("txtai", "torch"),
        setup="`Embeddings.upsert` of all chunks and `save`; an external function, Faiss and SQLite",
        lacks="files and folders, splitting, skipping what has not changed, removing what is gone",
    ),
    Side(
        name="Chroma + loop",
        module="chroma_loop",
        packages=("chromadb",),
        setup="a loop that compares hashes of files with Chroma's metadata, adds and deletes",
        lacks="reading, splitting and comparing, which the loop does; a renamed file is a new one",
    ),
)
NAMES = tuple(side.name for side in FIELD)
