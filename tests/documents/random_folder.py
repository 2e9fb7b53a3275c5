"""A folder with random changes, and the commands that report them to an index."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from penstock.service.requests import Submission
from tests.documents.conftest import book
from tests.pipeline.sample_documents import pdf

SMALL = 40
FOLDERS = ("", "a", "a/deep", "b", "b-side", "c")
_WORDS = "water wheel gate mill sluice weir race flume tail head stone grain flour sack cart".split()


class Tree:
    """A folder tree. ``change`` changes the disk and returns the commands of an observer."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root = root
        self._chance = chance
        self._made = 0
        self._changes: list[Callable[[], list[Submission]]] = [
            self._edit,
            self._edit,
            self._add,
            self._move_file,
            self._move_over,
            self._move_folder,
            self._delete,
            self._delete_folder,
            self._forget,
        ]

    def fill(self, small: int = SMALL) -> None:
        """Small files for the short path, and documents long enough for both lanes of tasks."""
        self.root.mkdir()
        for _ in range(small):
            self._add()
        (self.root / "book.md").write_text(book(260))
        self._write_pdf(self.root / "paper.pdf")

    def change(self) -> list[Submission]:
        told = self._chance.choice(self._changes)()
        # Some changes go unnoticed until the next walk.
        return told if self._chance.random() < 0.7 else []

    def index(self, tenant_id: str = "default") -> Submission:
        payload = {"folder_path": str(self.root)}
        metadata = {"allow_empty": True}
        return {
            "item_type": "folder",
            "op": "ingest",
            "payload": payload,
            "tenant_id": tenant_id,
            "metadata": metadata,
        }

    def files(self) -> list[Path]:
        return sorted(path for path in self.root.rglob("*") if path.is_file())

    def _folders(self) -> list[Path]:
        return sorted(path for path in self.root.rglob("*") if path.is_dir())

    def _text(self) -> str:
        self._made += 1
        parts = [" ".join(self._chance.choices(_WORDS, k=30)) for _ in range(self._chance.randint(1, 4))]
        return "\n\n".join(f"# Part {n} of mark{self._made}\n\n{part}." for n, part in enumerate(parts))

    def _write_pdf(self, path: Path) -> None:
        self._made += 1
        path.write_bytes(pdf(*(f"Page {number} of mark{self._made}, water." for number in range(40))))

    def _add(self) -> list[Submission]:
        path = self.root / self._chance.choice(FOLDERS) / f"{self._made}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._text())
        return [_file(path, "ingest")]

    def _edit(self) -> list[Submission]:
        path = self._chance.choice(self.files())
        if path.suffix == ".pdf":
            self._write_pdf(path)
        else:
            parts = path.read_text().split("\n\n")
            parts[self._chance.randrange(len(parts))] = self._text()
            path.write_text("\n\n".join(parts))
        return [_file(path, "update")]

    def _move_file(self) -> list[Submission]:
        old = self._chance.choice(self.files())
        new = self.root / self._chance.choice(FOLDERS) / f"moved-{self._made}-{old.name[-20:]}"
        self._made += 1
        new.parent.mkdir(parents=True, exist_ok=True)
        old.rename(new)
        return [_rename(old, new, folder=False)]

    def _move_over(self) -> list[Submission]:
        by_kind = [path for path in self.files() if path.suffix == ".md"]
        if len(by_kind) < 2:
            return self._add()
        old, new = self._chance.sample(by_kind, 2)
        old.replace(new)
        return [_rename(old, new, folder=False)]

    def _move_folder(self) -> list[Submission]:
        folders = self._folders()
        if not folders:
            return self._add()
        old = self._chance.choice(folders)
        self._made += 1
        new = self.root / f"folder-{self._made}"
        old.rename(new)
        return [_rename(old, new, folder=True)]

    def _delete(self) -> list[Submission]:
        path = self._chance.choice(self.files())
        if len(self.files()) < SMALL // 2:
            return self._add()
        path.unlink()
        return [_file(path, self._chance.choice(("delete", "ingest")))]

    def _delete_folder(self) -> list[Submission]:
        folders = self._folders()
        if not folders or len(self.files()) < SMALL:
            return self._add()
        path = self._chance.choice(folders)
        shutil.rmtree(path)
        return [_folder(path, "delete")]

    def _forget(self) -> list[Submission]:
        """Delete a document, but not the file: the next index of the folder restores it."""
        path = self._chance.choice([*self.files(), *self._folders()])
        return [_folder(path, "delete") if path.is_dir() else _file(path, "delete")]


def _file(path: Path, op: str) -> Submission:
    return {"item_type": "file", "op": op, "payload": {"file_path": str(path)}}


def _folder(path: Path, op: str) -> Submission:
    return {"item_type": "folder", "op": op, "payload": {"folder_path": str(path)}}


def _rename(old: Path, new: Path, *, folder: bool) -> Submission:
    payload = {"old_path": str(old), "new_path": str(new), "is_folder": folder}
    return {"item_type": "rename", "op": "update", "payload": payload}


def delete_tenant(tenant_id: str) -> Submission:
    payload = {"tenant_id_to_delete": tenant_id, "reason": "user_request"}
    return {"item_type": "delete_tenant", "op": "delete", "payload": payload}
