"""Random edits and checkouts over two branches and a work tree: every branch equals a fresh index."""

from __future__ import annotations

import json
import random
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, config
from penstock.pipeline.embed.static import HashingEmbedder
from tests.documents.index_contents import fresh_index, read_index
from tests.servers.stores import given_back, others_later, store_url
from tests.watch.test_branches import git

FILES = ("a.md", "b.md", "c.md", "docs/a.md", "docs/b.md", "docs/c.md")
WORDS = ("wheel", "gate", "weir", "flour", "bread", "stone", "water", "axle", "miller", "grain")
SIZES: dict[str, Any] = {"chunk_size": 32, "chunk_overlap": 0}


class Repository:
    """A git repository with the branches ``main`` and ``wip``, and a work tree with the branch ``side``."""

    def __init__(self, place: Path, chance: random.Random) -> None:
        self._chance = chance
        self._numbers = count(1)
        self.root, self.tree = place / "mill", place / "side"
        self.root.mkdir()
        git(self.root, "init")
        git(self.root, "remote", "add", "origin", "https://example.org/mill.git")
        for name in FILES[:4]:
            self.write(self.root / name)
        self.commit(self.root)
        git(self.root, "branch", "wip")
        git(self.root, "worktree", "add", "-b", "side", str(self.tree))
        self.branch = "main"

    def write(self, path: Path) -> None:
        """Write a file of several chunks; most are in other files and branches as well."""
        path.parent.mkdir(exist_ok=True)
        lines = [
            f"The {word} of the mill turns beside the old {word} in the valley of the river.\n"
            for word in WORDS
        ]
        chosen = self._chance.sample(lines, self._chance.randint(2, 5))
        chosen += [f"Number {next(self._numbers)} was written here by the miller and not before.\n"]
        self._chance.shuffle(chosen)
        path.write_text("\n".join(chosen))

    def change(self, root: Path) -> None:
        there = [path for name in FILES if (path := root / name).is_file()]
        what = self._chance.choice(("write", "write", "add", "remove", "rename"))
        free = [path for name in FILES if not (path := root / name).is_file()]
        if what == "add" or len(there) < 2 or not free:
            self.write(root / self._chance.choice(FILES))
        elif what == "write":
            self.write(self._chance.choice(there))
        elif what == "remove":
            self._chance.choice(there).unlink()
        else:
            target = self._chance.choice(free)
            target.parent.mkdir(exist_ok=True)
            shutil.move(self._chance.choice(there), target)

    def commit(self, root: Path) -> None:
        git(root, "add", "--all")
        git(root, "commit", "--allow-empty", "--message", "change")

    def check_out(self, branch: str) -> None:
        git(self.root, "checkout", branch)
        self.branch = branch


@pytest.mark.parametrize("engine", others_later(["sqlite", "postgres"], ["sqlite"]))
@pytest.mark.parametrize("steps", [8, pytest.param(60, marks=pytest.mark.long)])
def test_every_branch_equals_a_fresh_index(
    engine: str, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    chance = random.Random(steps)
    embedded: list[str] = []
    embed = HashingEmbedder.embed

    def counted(self: HashingEmbedder, texts: Any) -> Any:
        embedded.extend(texts)
        return embed(self, texts)

    monkeypatch.setattr(HashingEmbedder, "embed", counted)
    repository = Repository(tmp_path, chance)
    state = tmp_path / "state"
    state.mkdir()
    settings = config.load(
        {}, url=store_url(engine, state), state_dir=state, embedder="hashing", sqlite_synchronous="NORMAL"
    )
    with Penstock(settings=settings) as app:
        with app.worker_thread():

            def index(root: Path) -> None:
                job = app.wait(app.index(root, project=True, allow_empty=True, **SIZES).job_id)
                assert "done" == job.status, job.error_message

            index(repository.root)
            index(repository.tree)
            for _ in range(steps):
                root = repository.tree if chance.random() < 0.2 else repository.root
                for _ in range(chance.randint(1, 3)):
                    repository.change(root)
                index(root)
                if chance.random() < 0.4:
                    repository.commit(repository.root)
                    repository.check_out("wip" if repository.branch == "main" else "main")
                    index(repository.root)
            repository.commit(repository.root)
        results = [json.loads(job.result_json or "{}") for job in app.jobs(item_type="file", limit=1000)]
        new = sum(result.get("chunks", 0) - result.get("kept", 0) for result in results)
        assert 0 < len(embedded) <= new
        monkeypatch.undo()
        (project,) = {view.tenant_id for view in app.documents.projects.all()}
        for root, branch in ((repository.root, "main"), (repository.root, "wip"), (repository.tree, "side")):
            if root == repository.root:
                repository.check_out(branch)
            found = read_index(app.documents.catalog, root, project, branch=branch)
            assert fresh_index(tmp_path, root, engine=engine, **SIZES) == found, branch
        assert [] == app.documents.catalog.audit()
    given_back(state)
