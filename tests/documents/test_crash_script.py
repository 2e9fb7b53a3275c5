"""Crashes during edits, renames, moves and deletes: the same commands repair the index."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from penstock import Penstock, config
from tests.documents.conftest import QUEUES
from tests.documents.index_contents import IndexContents, fresh_index, read_index, settled
from tests.documents.random_folder import Tree, delete_tenant
from tests.documents.worker_commands import Driver
from tests.servers.stores import given_back, others_later

CATALOGS = ("sqlite", "postgres")
OTHER = "other"


class Script:
    """One index with many changes and kills."""

    def __init__(self, tmp_path: Path, engine: str, seed: int) -> None:
        self._place = tmp_path
        self._chance = random.Random(seed)
        settings = config.load(
            {},
            url=QUEUES[engine](tmp_path),
            state_dir=tmp_path / "state",
            embedder="hashing",
            sqlite_synchronous="NORMAL",
        )
        self._driver = Driver(settings)
        self._tree = Tree(tmp_path / "files", self._chance)
        self._tree.fill()
        began = time.monotonic()
        self._driver.run([self._tree.index()])
        self._usual = time.monotonic() - began

    def run(self, kills: int, kills_between: int) -> None:
        """Kills between two comparisons with a fresh index."""
        killed = compared = 0
        while killed < kills:
            killed += self._step()
            if killed - compared >= kills_between or killed >= kills:
                self.compare()
                compared = killed

    def _step(self) -> int:
        """Make some changes and kill their commands once or twice.

        Sometimes only the next step, or the comparison, finishes their work.
        """
        chance = self._chance
        commands = [told for _ in range(chance.randint(1, 4)) for told in self._tree.change()]
        if chance.random() < 0.8:
            commands.append(self._tree.index())
        if chance.random() < 0.5:
            commands += [chance.choice([delete_tenant(OTHER), self._tree.index(OTHER)])]
        together = chance.random() < 0.5
        killed = 0
        for _ in range(chance.randint(1, 2)):
            killed += self._driver.killed(commands, chance.uniform(0, 0.7 * self._usual), together=together)
        if chance.random() < 0.5:
            self._driver.run(commands, together=together)
        return killed

    def compare(self) -> None:
        gone = self._chance.random() < 0.5
        other = delete_tenant(OTHER) if gone else self._tree.index(OTHER)
        # An interrupted delete runs before the files are requested again.
        self._driver.run([], together=True)
        self._driver.run([self._tree.index(), other])
        expected = fresh_index(self._place, self._tree.root)
        with Penstock(settings=self._driver.settings) as app:
            settled(app)
            catalog = app.documents.catalog
            assert expected == read_index(catalog, self._tree.root)
            assert (IndexContents([], {}) if gone else expected) == read_index(
                catalog, self._tree.root, OTHER
            )


@pytest.mark.parametrize("engine", others_later(CATALOGS, []))
def test_an_index_is_right_after_kills_in_the_middle_of_changes(tmp_path: Path, engine: str):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    Script(tmp_path, engine, seed).run(2, 2)
    given_back(tmp_path)


@pytest.mark.chaos
@pytest.mark.parametrize("engine", [*CATALOGS, "jsonl"])
def test_an_index_is_right_after_a_hundred_kills_in_the_middle_of_changes(tmp_path: Path, engine: str):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    Script(tmp_path, engine, seed).run(100, 5)
    given_back(tmp_path)
