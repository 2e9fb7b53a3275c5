"""A host that runs the schedules of a store, each time that it is told how many minutes have passed.

Run as ``python -m tests.conformance.schedule_process ENGINE PLACE DIE_AT``. Each line on stdin is a number of
minutes, and is answered when the schedules were run. From minute DIE_AT on (0: never) the host is killed
after it added a job, before it moved the schedule on.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from penstock.queue.job import NewJob
from penstock.queue.schedules import Missed, Schedule
from penstock.worker.upkeep import ScheduleRunner
from tests.conformance.durable_engines import opened

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def moments(number: int) -> Iterator[datetime]:
    return (NOON + timedelta(minutes=minute) for minute in range(1, number + 1))


def every_minute() -> Schedule:
    return Schedule(
        tenant_id="acme",
        name="beat",
        schedule_id="beat",
        timing="* * * * *",
        zone="UTC",
        job=NewJob(
            queue_id="",
            item_type="function",
            op="run",
            tenant_id="acme",
            collection="docs",
            idempotency_key="function:docs:x",
            payload_json='{"function_name":"beat"}',
            dedupe=False,
        ),
        summary="call beat",
        missed=Missed.RUN_ALL,
        start_at=NOON,
        created_at=NOON,
        next_at=NOON + timedelta(minutes=1),
    )


def main(engine: str, place: str, die_at: int) -> None:
    queue = opened(engine, Path(place))
    print("ready", flush=True)
    for line in sys.stdin:
        if die_at and int(line) >= die_at:
            queue.put_schedule = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        ScheduleRunner(queue).run(NOON + timedelta(minutes=int(line)))
        print(line.strip(), flush=True)
    queue.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
