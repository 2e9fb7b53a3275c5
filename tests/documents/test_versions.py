"""A tree updated to its next version: the index equals a fresh one, for the cost of the changes."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.pipeline.embed.static import HashingEmbedder
from tests.documents.conftest import IndexedFolder, ManualWorker
from tests.documents.index_contents import IndexContents, fresh_index, read_index, settled
from tests.documents.random_folder import Tree
from tests.pipeline.sample_documents import pdf
from tests.servers.stores import FIRST, others_later

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

pytestmark = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)

TOOL = "PENSTOCK_VERSIONS_TOOL"
"""Program that creates two releases of projects: ``TARGET --step``, then ``TARGET --apply NAME``."""


class Counting(HashingEmbedder):
    """Records the texts to embed."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.texts += texts
        return super().embed(texts)


class Run:
    """An indexed folder with a count of embedded texts. ``before``: contents of the first index."""

    def __init__(self, docs: IndexedFolder, worker: ManualWorker, embedder: Counting, folder: Path) -> None:
        self._desk = docs
        self._worker = worker
        self._embedder = embedder
        self.folder = folder
        self.engine = "postgres" if docs.app.settings.url.startswith("postgres") else "sqlite"
        assert self.index()
        self.before = self.read_index()

    def index(self) -> int:
        """Number of embedded texts."""
        self._embedder.texts.clear()
        self._desk.app.index(self.folder, include_code=True)
        self._worker.drain()
        return len(self._embedder.texts)

    def read_index(self) -> IndexContents:
        settled(self._desk.app)
        return read_index(self._desk.app.documents.catalog, self.folder)


@contextmanager
def indexed(docs: IndexedFolder, folder: Path) -> Iterator[Run]:
    embedder = Counting()
    with docs.manual_worker(embedder) as worker:
        yield Run(docs, worker, embedder, folder)


def changed(before: IndexContents, after: IndexContents, renamed: Mapping[str, str]) -> int:
    """Chunks that are new for their file, under any name."""
    old: dict[str, Counter[str]] = {}
    for piece in before.pieces:
        old.setdefault(renamed.get(piece.path, piece.path), Counter())[piece.text] += 1
    new: dict[str, Counter[str]] = {}
    for piece in after.pieces:
        new.setdefault(piece.path, Counter())[piece.text] += 1
    return sum((texts - old.get(path, Counter())).total() for path, texts in new.items())


def step(run: Run, tmp_path: Path, renamed: Mapping[str, str]) -> tuple[int, int]:
    """Texts embedded by the second run, and new chunks; the result must equal a fresh index."""
    embedded = run.index()
    after = run.read_index()
    assert fresh_index(tmp_path, run.folder, engine=run.engine, include_code=True) == after
    return embedded, changed(run.before, after, renamed)


@pytest.mark.parametrize("seed", range(2))
def test_a_tree_that_changed_in_place_costs_what_changed(docs: IndexedFolder, tmp_path: Path, seed: int):
    tree = Tree(tmp_path / "tree", random.Random(seed))
    tree.fill(20)
    with indexed(docs, tree.root) as run:
        for _ in range(8):
            tree.change()
        embedded, new = step(run, tmp_path, {})
        assert 0 < embedded <= new


def test_pure_renames_embed_nothing(docs: IndexedFolder, tmp_path: Path):
    tree = Tree(tmp_path / "tree", random.Random(1))
    tree.fill(20)
    with indexed(docs, tree.root) as run:
        for path in tree.files()[::2]:
            path.rename(path.with_name(f"new-{path.name}"))
        (tree.root / "b").rename(tree.root / "elsewhere")
        embedded, _ = step(run, tmp_path, {})
        assert 0 == embedded


def paragraphs(number: int, words: int) -> list[str]:
    chance = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [
        " ".join("".join(chance.choices(letters, k=chance.randint(3, 9))) for _ in range(words)) + "."
        for _ in range(number)
    ]


def long_pdf(texts: list[str]) -> bytes:
    """A PDF with a page per paragraph."""
    pages = []
    for text in texts:
        words = text.split()
        pages.append("\n".join(" ".join(words[at : at + 10]) for at in range(0, len(words), 10)))
    return pdf(*pages)


@pytest.mark.parametrize(
    ("name", "number", "words", "most"),
    [
        ("long.md", 150, 120, 3),
        pytest.param("long.md", 600, 120, 3, marks=pytest.mark.long),
        pytest.param("long.md", 1_500, 120, 3, marks=pytest.mark.chaos),
        ("short.md", 1_250, 12, 6),
        pytest.param("short.md", 5_000, 12, 6, marks=pytest.mark.long),
        pytest.param("long.pdf", 500, 300, 3, marks=pytest.mark.chaos),
    ],
)
def test_an_edited_paragraph_costs_a_few_chunks(
    docs: IndexedFolder, tmp_path: Path, name: str, number: int, words: int, most: int
):
    """150 paragraphs of 120 words are about 50 pages; the longer runs have 200 and 500, also as a PDF."""
    texts = paragraphs(number, words)
    folder = tmp_path / "tree"
    folder.mkdir()

    def write() -> None:
        body = long_pdf(texts) if name.endswith("pdf") else "\n\n".join(texts).encode()
        (folder / name).write_bytes(body)

    write()
    with indexed(docs, folder) as run:
        for at in (number // 3, number // 2, number - 2):
            texts[at] = f"Another beginning. {texts[at]}"
            write()
            assert 0 < run.index() <= most
        assert fresh_index(tmp_path, folder, include_code=True) == run.read_index()


def many(folder: Path, number: int) -> None:
    for at in range(number):
        path = folder / "old" / f"{at // 500:03}" / f"{at:05}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"Note {at} about the wheel.")


def renamed_folder(docs: IndexedFolder, folder: Path, *, told: bool) -> tuple[int, int]:
    """Texts embedded by a folder rename, and number of transactions."""
    embedder = Counting()
    with docs.manual_worker(embedder) as worker:
        docs.app.index(folder)
        worker.drain()
        embedder.texts.clear()
        (folder / "old").rename(folder / "new")
        if told:
            payload = {
                "old_path": str(folder / "old"),
                "new_path": str(folder / "new"),
                "is_folder": True,
            }
            docs.app.submit(item_type="rename", op="update", payload=payload)
        else:
            docs.app.index(folder)
        calls = worker.paused.counted("rename" if told else "move")
        worker.drain()
        assert {"new"} == {Path(path).parts[0] for path in read_index(worker.catalog, folder, words=0).paths}
        return len(embedder.texts), calls()


@pytest.mark.parametrize("told", [True, False])
def test_a_renamed_folder_embeds_nothing_and_takes_a_transaction_a_batch(
    docs: IndexedFolder, tmp_path: Path, told: bool
):
    many(tmp_path / "tree", 1_100)
    assert (0, 2) == renamed_folder(docs, tmp_path / "tree", told=told)


@pytest.mark.chaos
@pytest.mark.parametrize("told", [True, False])
def test_a_folder_of_ten_thousand_files_is_renamed_in_ten_transactions(
    docs: IndexedFolder, tmp_path: Path, told: bool
):
    many(tmp_path / "tree", 10_000)
    assert (0, 10) == renamed_folder(docs, tmp_path / "tree", told=told)


def releases(tmp_path: Path) -> Path:
    """Two real releases of five projects, from the package index."""
    target = Path(os.environ.get("PENSTOCK_VERSIONS_DIR", tmp_path / "versions"))
    if not target.exists():
        subprocess.run([sys.executable, os.environ[TOOL], str(target), "--step"], check=True)
    return target


@pytest.mark.versions
def test_real_releases_become_the_next_in_place(docs: IndexedFolder, tmp_path: Path):
    below = releases(tmp_path)
    for project in sorted(path for path in below.iterdir() if path.is_dir()):
        live = tmp_path / "projects" / project.name
        shutil.copytree(project, live)
        shutil.rmtree(live / "live", ignore_errors=True)
        shutil.copytree(live / "old", live / "live", symlinks=True)
        changes = json.loads((live / "changes.json").read_text())
        pure = {one["from"]: one["to"] for one in changes["renamed"] if one["similarity"] == 100}
        with indexed(docs, live / "live") as run:
            command = [sys.executable, os.environ[TOOL], str(tmp_path / "projects"), "--apply", project.name]
            subprocess.run(command, check=True)
            embedded, new = step(run, tmp_path, pure)
            print(f"{project.name}: {embedded} embedded, {new} new or changed, {len(pure)} pure renames")
            assert embedded <= new
        docs.run("delete_tenant", "delete", {"tenant_id_to_delete": "default"})
