"""Folders that a command indexes in its own process, and those that it leaves to a worker."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from penstock import Penstock, clock, config
from penstock.assembly import Assembly
from penstock.handlers.context import Registry
from penstock.queue import transitions
from penstock.queue.job import Claim, ClaimRequest, JobQuery, NewJob, Status
from penstock.worker.in_process import file_batches, is_small_folder, run_small_job
from penstock.worker.launch import small_job_options
from tests.cli import test_cold_commands
from tests.cli.test_cold_commands import Place

place = test_cold_commands.place


def test_folders_that_are_known_and_not_too_large_are_compared_here(
    place: Place, monkeypatch: pytest.MonkeyPatch
):
    place.run("index", ".")
    with Penstock(state_dir=place.state) as app:
        catalog = app.documents.catalog
        known = app.job(app.index(place.folder).job_id)
        unknown = app.job(app.index(place.folder, collection="other").job_id)
        page = msgspec.structs.replace(known, payload_json='{"folder_path": "https://mill.example/"}')
        lost = msgspec.structs.replace(known, lost_count=2)

        found = [is_small_folder(job, catalog) for job in (known, unknown, page, lost)]
        monkeypatch.setattr("penstock.worker.in_process.MOST_ENTRIES", 0)
        with_few = [is_small_folder(job, catalog) for job in (known, unknown)]
        monkeypatch.setattr("penstock.worker.in_process.MOST_KNOWN", 0)

        assert [True, True, False, False] == found
        assert ([True, False], False) == (with_few, is_small_folder(known, catalog))


@pytest.mark.parametrize(
    ("limit", "changes"),
    [
        ("MOST_FILES", {"a.md": 1, "b.md": 1, "c.md": 1}),
        ("MOST_BYTES", {"a.md": 3}),
        ("SMALL_BYTES", {"a.md": 3}),
        ("MOST_OTHERS", {"a.pdf": 1, "b.docx": 1, "c.png": 1}),
        ("MOST_SLOW", {"a.md": 1, "b.md": 1, "c.md": 1}),
    ],
)
def test_many_or_large_changes_of_a_folder_are_left_to_a_worker(
    place: Place, monkeypatch: pytest.MonkeyPatch, limit: str, changes: dict[str, int]
):
    with closing(Assembly(config.load({}, state_dir=place.state))) as assembly:
        folder, queue = assembly.documents.index(str(place.folder)).job_id, assembly.queue
        claim = queue.start(folder, ClaimRequest("w1"))
        assert claim is not None
        for name, size in changes.items():
            (place.folder / name).write_text("x" * size)
        children = tuple(_child_of(claim, str(place.folder / name)) for name in changes)
        queue.settle([transitions.waits(claim, children=children)])

        def batches() -> list[Sequence[str]]:
            return list(file_batches(queue, folder, quick_model=limit != "MOST_SLOW"))

        assert [sorted(child.queue_id for child in children)] == [sorted(ids) for ids in batches()]
        monkeypatch.setattr(f"penstock.worker.in_process.{limit}", 2)
        assert [] == batches()


def _child_of(claim: Claim, path: str) -> NewJob:
    return NewJob(
        queue_id=clock.new_id(),
        item_type="file",
        op="ingest",
        tenant_id=claim.tenant_id,
        collection=claim.collection,
        idempotency_key=path,
        payload_json=json.dumps({"file_path": path}),
    )


@pytest.mark.parametrize(("while_running", "left"), [("folder", 2), ("file", 1)])
def test_a_command_that_is_stopped_leaves_the_files_of_a_folder(
    place: Place, monkeypatch: pytest.MonkeyPatch, while_running: str, left: int
):
    """The first signal lets the running jobs finish; no worker is started for the others."""
    monkeypatch.setattr("penstock.worker.in_process.MOST_MEMBERS", 1)
    (place.folder / "wheel.md").write_text("The wheel turns.\n")
    assembly = Assembly(config.load({}, state_dir=place.state))
    with closing(assembly):
        job_id = assembly.documents.index(place.folder).job_id
        options = small_job_options(assembly)
        assert options is not None

        def register(registry: Registry) -> Callable[[], None]:
            signalled = Registry()
            close = options.register(signalled)
            for name in ("folder", "file"):
                handler = signalled.find(name, "ingest")
                assert handler is not None
                call = partial(_signalled, handler.call) if name == while_running else handler.call
                registry.register(name, "ingest", call, batch=handler.batch)
            return close

        with pytest.raises(KeyboardInterrupt):
            run_small_job(job_id, msgspec.structs.replace(options, register=register))

        job = assembly.jobs.job(job_id)
        assert (False, left) == (job.ended, job.children_open)


def _signalled(call: Callable[[Any], Any], jobs: Any) -> Any:
    os.kill(os.getpid(), signal.SIGTERM)
    return call(jobs)


def _waiting_folder(assembly: Assembly, place: Place, *, began_s: float) -> str:
    """A folder whose walk began so many seconds ago, with the jobs for its files."""
    job_id = assembly.documents.index(place.folder, timeout_s=60).job_id
    began = clock.now() - timedelta(seconds=began_s)
    claim = assembly.queue.start(job_id, ClaimRequest("w1"), now=began)
    assert claim is not None
    children = tuple(_child_of(claim, str(path)) for path in place.folder.iterdir())
    assembly.queue.settle([transitions.waits(claim, children=children)])
    return job_id


@pytest.mark.parametrize("began_s", [59, 61])
def test_the_files_of_a_folder_whose_timeout_is_over_are_not_indexed_here(place: Place, began_s: int):
    with closing(Assembly(config.load({}, state_dir=place.state))) as assembly:
        job_id = _waiting_folder(assembly, place, began_s=began_s)
        options = small_job_options(assembly)
        assert options is not None

        assert run_small_job(job_id, options)

        job = assembly.jobs.job(job_id)
        if began_s < 60:
            assert ("done", None) == (job.status, job.error_message)
        else:
            assert ("failed", "Timeout after 60s") == (job.status, job.error_message)
            states = {child.status for child in assembly.queue.find(JobQuery(parent_id=job_id))}
            assert {Status.CANCELLED} == states


@pytest.mark.long
@pytest.mark.parametrize("slow", ["folder", "file"])
def test_a_folder_of_a_command_ends_with_its_timeout(place: Place, slow: str):
    with closing(Assembly(config.load({}, state_dir=place.state))) as assembly:
        job_id = assembly.documents.index(place.folder, timeout_s=1).job_id
        options = small_job_options(assembly)
        assert options is not None

        def register(registry: Registry) -> Callable[[], None]:
            given = Registry()
            close = options.register(given)
            for name in ("folder", "file"):
                handler = given.find(name, "ingest")
                assert handler is not None
                call = _until_stopped if name == slow else handler.call
                registry.register(name, "ingest", call, batch=handler.batch)
            return close

        assert run_small_job(job_id, msgspec.structs.replace(options, register=register))

        job = assembly.jobs.job(job_id)
        assert ("failed", "Timeout after 1s") == (job.status, job.error_message)
        open_jobs = JobQuery(statuses=frozenset({Status.PENDING, Status.IN_PROGRESS}))
        assert [] == assembly.queue.find(open_jobs)


def _until_stopped(jobs: Any) -> Any:
    while True:
        (jobs[0] if isinstance(jobs, Sequence) else jobs).checkpoint()
