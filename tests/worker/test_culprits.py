"""Jobs responsible for the delay of a batch, as a table of cases."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from penstock.pipeline.budget import FileMark
from penstock.queue import transitions
from penstock.queue.job import Job, NewJob, Status
from penstock.worker import orphans, supervisor
from penstock.worker.shared_state import ExecutingJob, Execution, FileRun

BATCH = Execution(7, 100.0, tuple(ExecutingJob(f"job{number}", 1, 60) for number in range(3)))
ALONE = msgspec.structs.replace(BATCH, members=BATCH.members[:1])
MARK = FileMark(1, 5.0, 20.0, 10, 10, "")
PARSING = FileRun(MARK, 130.0)
BETWEEN = FileRun(None, 130.0)


def held(queue_id: str = "job0") -> Job:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    new = NewJob(
        queue_id=queue_id,
        item_type="file",
        op="ingest",
        tenant_id="t",
        collection="c",
        idempotency_key="k",
        payload_json="{}",
    )
    return msgspec.structs.replace(transitions.added(new, now, 0), claim_number=1)


@pytest.mark.parametrize(
    ("execution", "run", "elapsed", "cpu", "expected"),
    [
        (BATCH, None, 59.0, None, None),
        (BATCH, None, 61.0, None, ({0, 1, 2}, "ERR_JOB_TIMEOUT")),
        (BATCH, PARSING, 59.0, 26.0, None),
        (BATCH, PARSING, 1.0, 27.5, ({1}, "ERR_FILE_TIME")),
        (BATCH, PARSING, 61.0, None, ({1}, "ERR_JOB_TIMEOUT")),
        (BATCH, BETWEEN, 61.0, 1000.0, ({0, 1, 2}, None)),
        (ALONE, BETWEEN, 61.0, 1000.0, ({0}, "ERR_JOB_TIMEOUT")),
    ],
)
def test_who_is_late(
    execution: Execution,
    run: FileRun | None,
    elapsed: float,
    cpu: float | None,
    expected: tuple[set[int], str | None] | None,
):
    found = supervisor.late_jobs(execution, run, elapsed, cpu)

    assert expected == (found and (set(found.indexes), found.resolve(held()).error_code))


def test_a_batch_of_files_counts_from_the_file_in_hand():
    assert 100.0 == supervisor.clock_start(BATCH, None)
    assert 130.0 == supervisor.clock_start(BATCH, PARSING)
    assert 100.0 == supervisor.clock_start(ALONE, PARSING)


def test_a_suspect_spends_no_retry_and_runs_alone():
    before = held()

    settlement = transitions.suspected(before, "its batch took too long")

    assert (Status.PENDING, before.retry_count, before.lost_count + 1) == (
        settlement.status,
        settlement.retry_count,
        settlement.lost_count,
    )


def test_only_the_job_of_the_file_being_parsed_is_lost_with_its_process():
    members = tuple(ExecutingJob(f"job{number}", 1, 60) for number in range(3))
    resolve = orphans.resolve_dead(Execution(7, 100.0, members), PARSING)

    ended = [resolve(held(f"job{number}")).what for number in range(3)]

    assert ["released", "lost", "released"] == ended


@pytest.mark.parametrize("run", [None, BETWEEN])
def test_no_job_of_a_batch_pays_when_no_file_was_being_parsed(run: FileRun | None):
    resolve = orphans.resolve_dead(BATCH, run)

    jobs = [msgspec.structs.replace(held(f"job{number}"), max_retries=0) for number in range(4)]
    ended = [(one.status, one.retry_count, one.lost_count) for one in map(resolve, jobs)]

    assert [(Status.PENDING, 0, 1)] * 3 + [(Status.PENDING, 0, 0)] == ended


@pytest.mark.parametrize("run", [None, BETWEEN])
def test_a_job_that_ran_alone_pays_for_its_process(run: FileRun | None):
    assert "lost" == orphans.resolve_dead(ALONE, run)(held()).what


def test_a_job_that_blocks_the_store_also_when_it_runs_alone_ends():
    job, ends = msgspec.structs.replace(held(), max_retries=1), []
    for _ in range(3):
        settlement = supervisor.blocked_the_store(job)
        ends.append((settlement.status, settlement.retry_count))
        job = msgspec.structs.replace(
            job, retry_count=settlement.retry_count, lost_count=settlement.lost_count
        )

    assert [(Status.PENDING, 0), (Status.PENDING, 1), (Status.FAILED, 1)] == ends
