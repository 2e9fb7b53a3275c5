"""The progress line of a job: share, rate and time left, also after a resume and over several runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.cli.progress import JobProgress, JobSample, Pace, line_text, shortened
from penstock.handlers.reindex import WalkCounts
from penstock.queue import transitions
from penstock.queue.job import Claim, ClaimRequest, NewJob, Settlement

WIDE = 80


class Watch:
    """A clock that the test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Penstock]:
    with Penstock("memory://", state_dir=tmp_path / "state") as app:
        yield app


@pytest.fixture
def watch() -> Watch:
    return Watch()


def submit(app: Penstock) -> str:
    payload = {"folder_path": "/mill"}
    return app.submit(item_type="folder", op="ingest", payload=payload).job_id


def walk(app: Penstock, run: int, files: int, *, resumed_chunks: int = 0) -> None:
    """Claim the folder job and settle it as waiting for this many files of 10 bytes."""
    (claim,) = app.queue.claim(ClaimRequest("w1"))
    children = tuple(child(f"{run}-{number:03d}") for number in range(files))
    counts = WalkCounts(seen=files, added=files, sent=files, bytes=10 * files)
    counts.resumed_chunks = resumed_chunks
    result = json.dumps({"outcome": "indexed"} | counts.as_dict())
    app.queue.settle([transitions.waits(claim, children=children, result_json=result)])


def child(name: str) -> NewJob:
    return NewJob(
        queue_id=f"job_{name}",
        item_type="file",
        op="ingest",
        tenant_id="default",
        collection="default",
        idempotency_key=f"file:{name}",
        payload_json=json.dumps({"file_path": f"/mill/{name}", "size_bytes": 10}),
        priority=4,
    )


def index(app: Penstock, number: int) -> None:
    claims = app.queue.claim(ClaimRequest("w1", number))
    app.queue.settle([indexed(claim) for claim in claims])


def indexed(claim: Claim) -> Settlement:
    return transitions.done(claim, result_json='{"outcome":"indexed","chunks":2}')


def test_rate_and_time_left_count_from_the_first_progress(app: Penstock, watch: Watch):
    job_id = submit(app)
    walk(app, 1, 100)
    index(app, 80)
    follower = JobProgress(app, job_id, watch)
    pace, lines = Pace(), []
    for seconds, files in ((0, 0), (8, 5), (10, 5), (5, 5)):
        watch.now += seconds
        index(app, files)
        seen = follower.sample()
        pace.follow(seen)
        lines.append(line_text(seen, pace.since, WIDE))
    assert [
        "80 of 100 files, 160 chunks",
        "85 of 100 files, 170 chunks",
        "90 of 100 files, 0:20 left, 180 chunks, 0.5 files/s",
        "95 of 100 files, 0:08 left, 190 chunks, 0.7 files/s",
    ] == lines


def test_the_bar_never_goes_back_when_another_run_follows(app: Penstock, watch: Watch):
    job_id = submit(app)
    walk(app, 1, 10)
    follower = JobProgress(app, job_id, watch)
    samples = [follower.sample()]
    submit(app)
    index(app, 10)
    samples.append(follower.sample())
    assert "checking for changes" == samples[-1].message
    walk(app, 2, 5, resumed_chunks=20)
    watch.now += 10
    samples.append(follower.sample())
    assert (15, 10, 20) == (samples[-1].files, samples[-1].done, samples[-1].chunks)
    index(app, 5)
    samples.append(follower.sample())
    shares = [sample.share or 0.0 for sample in samples]
    assert (shares, 1.0, True) == (sorted(shares), shares[-1], samples[-1].ended)
    assert (15, 15, 30) == (samples[-1].files, samples[-1].done, samples[-1].chunks)


def sample(at: float, done: int, share: float, failed: int = 0, chunks: int = 0) -> JobSample:
    return JobSample(
        at=at,
        ended=False,
        walking=False,
        files=2_000,
        done=done,
        share=share,
        failed=failed,
        chunks=chunks,
    )


def test_the_line_drops_what_does_not_fit():
    first, seen = sample(0, 600, 0.3), sample(60, 1_200, 0.6, failed=3, chunks=6_000)
    whole = "1,200 of 2,000 files, 1:20 left, 3 failed, 6,000 chunks, 10 files/s"
    assert whole == line_text(seen, first, len(whole))
    assert "1,200 of 2,000 files, 1:20 left, 3 failed, 6,000 chunks" == line_text(seen, first, len(whole) - 1)
    assert "1,200 of 2,000 files, 1:20 left" == line_text(seen, first, 40)
    assert "1,200 of 2,000, 1:20 left" == line_text(seen, first, 26)
    assert "1,200 of 2,000" == line_text(seen, first, 15)


def test_a_long_title_keeps_its_verb_and_the_end_of_its_path():
    assert "Indexing docs" == shortened("Indexing docs", 30)
    assert "Indexing …/reader/documents/mill" == shortened("Indexing /srv/the/reader/documents/mill", 32)
    assert "Rebuilding" == shortened("Rebuilding", 5)


@pytest.mark.parametrize(("here", "told"), [(True, "starting"), (False, "waiting for a worker")])
def test_only_a_command_that_leaves_the_job_to_a_worker_waits_for_one(app: Penstock, here: bool, told: str):
    assert told == JobProgress(app, submit(app), here=here).sample().message
