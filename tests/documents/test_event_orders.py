"""Events of changes on disk, reported late and in any order: in the end the index equals the disk."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, permutations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.catalog.values import Filters
from penstock.service.requests import Submission
from tests.documents.conftest import IndexedFolder, ManualWorker
from tests.servers.stores import FIRST, others_later

pytestmark = pytest.mark.parametrize("docs", others_later(FIRST, ["sqlite"]), indirect=True)

FILES = ("a.md", "b.md", "p/a.md", "p/b.md", "q/a.md")
FOLDERS = ("p", "q", "r")
_numbers = count(1)

changes = st.one_of(
    st.tuples(st.just("rename"), st.sampled_from(FILES), st.sampled_from(FILES)),
    st.tuples(st.just("folder"), st.sampled_from(FOLDERS), st.sampled_from(FOLDERS)),
    st.tuples(st.just("write"), st.sampled_from(FILES)),
    st.tuples(st.just("remove"), st.sampled_from(FILES)),
)
reported_changes = st.tuples(changes, st.integers(0, 3), st.integers(0, 10), st.booleans())
"""A change, the delay of its event, the priority, and whether jobs run before the next change."""


class EventFolder:
    """A separate folder and tenant for each example, in a shared catalog."""

    def __init__(self, docs: IndexedFolder, worker: ManualWorker) -> None:
        self._number = next(_numbers)
        self._worker = worker
        self._app = docs.app
        self._texts = count(1)
        self.tenant_id = f"t{self._number}"
        self.root = docs.folder / str(self._number)
        self.root.mkdir()

    def write(self, name: str) -> list[Submission]:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"Text {next(self._texts)} of {name} in {self.tenant_id}.")
        return [_file(path)]

    def rename(self, old: str, new: str) -> list[Submission]:
        before, after = self.root / old, self.root / new
        if not before.is_file() or old == new:
            return []
        after.parent.mkdir(parents=True, exist_ok=True)
        before.replace(after)
        return [_rename(before, after, folder=False)]

    def folder(self, old: str, new: str) -> list[Submission]:
        before, after = self.root / old, self.root / new
        if not before.is_dir() or after.exists():
            return []
        before.rename(after)
        return [_rename(before, after, folder=True)]

    def remove(self, name: str) -> list[Submission]:
        path = self.root / name
        if not path.is_file():
            return []
        path.unlink()
        return [_file(path)]

    def tell(self, events: list[Submission], priority: int = 5) -> None:
        for event in events:
            placed: Submission = {**event, "tenant_id": self.tenant_id, "priority": priority}
            self._app.submit(**placed)

    def index(self) -> None:
        self._app.index(self.root, tenant_id=self.tenant_id, allow_empty=True)
        self._worker.drain()

    def on_disk(self) -> dict[str, str]:
        return {str(path): path.read_text() for path in self.root.rglob("*") if path.is_file()}

    def indexed(self) -> dict[str, str]:
        return dict(self._shown())

    def _shown(self) -> Iterator[tuple[str, str]]:
        with self._worker.catalog.snapshot() as snapshot:
            for source in snapshot.sources(Filters(tenant_id=self.tenant_id), limit=100):
                assert source.published_id is not None
                (page,) = snapshot.pages(source.published_id)
                (view,) = snapshot.hydrate([chunk.content_id for chunk in snapshot.chunks(page.page_id)])
                assert view is not None
                yield view.path, view.text


def _file(path: Path) -> Submission:
    return {"item_type": "file", "op": "ingest", "payload": {"file_path": str(path)}}


def _rename(old: Path, new: Path, *, folder: bool) -> Submission:
    payload = {"old_path": str(old), "new_path": str(new), "is_folder": folder}
    return {"item_type": "rename", "op": "update", "payload": payload}


def play(docs: IndexedFolder, told: list[tuple[tuple[str, ...], int, int, bool]]) -> None:
    with docs.manual_worker() as worker:
        field = EventFolder(docs, worker)
        for name in FILES[:4]:
            field.write(name)
        field.index()
        waiting: list[tuple[int, int, list[Submission]]] = []
        for now, ((what, *names), delay, priority, run) in enumerate(told):
            waiting.append((now + delay, priority, getattr(field, what)(*names)))
            for due, urgency, events in waiting:
                if due <= now:
                    field.tell(events, urgency)
            waiting = [one for one in waiting if one[0] > now]
            if run:
                worker.run_jobs()
        for _, priority, events in waiting:
            field.tell(events, priority)
        worker.drain()
        assert field.on_disk() == field.indexed()


EXAMPLES = [
    (10, 6),
    pytest.param(40, 8, marks=pytest.mark.long),
    pytest.param(300, 12, marks=pytest.mark.chaos),
]


@pytest.mark.parametrize(("examples", "events"), EXAMPLES)
def test_events_in_any_order_end_as_the_disk_is(docs: IndexedFolder, examples: int, events: int):
    @settings(
        max_examples=examples,
        # A long list of events takes minutes to make shorter.
        phases=tuple(Phase) if examples < 300 else (Phase.generate,),
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(told=st.lists(reported_changes, min_size=1, max_size=events))
    def check(told: list[tuple[tuple[str, ...], int, int, bool]]) -> None:
        play(docs, told)

    check()


def test_renames_that_cross_do_not_wait_for_each_other(docs: IndexedFolder):
    """Each has a lock that the other's checks would wait for."""
    there = (("rename", "p/a.md", "b.md"), 0, 0, False)
    back = (("rename", "b.md", "p/a.md"), 1, 1, True)
    play(docs, [there, back, (("write", "b.md"), 0, 0, False)])


@pytest.mark.parametrize("is_folder", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_chain_of_renames_told_in_every_order(docs: IndexedFolder, is_folder: bool):
    """Three events in any order, with or without jobs in between."""
    with docs.manual_worker() as worker:
        for order in permutations(range(3)):
            for together in (True, False):
                field = EventFolder(docs, worker)
                field.write("p/a.md")
                field.index()
                steps = [("p", "q"), ("q", "r"), ("r", "s")]
                if is_folder:
                    events = [field.folder(*step) for step in steps]
                else:
                    events = [field.rename(f"{old}/a.md", f"{new}/a.md") for old, new in steps]
                for number in order:
                    field.tell(events[number], priority=number if together else 5)
                    if not together:
                        worker.drain()
                worker.drain()
                assert field.on_disk() == field.indexed()
