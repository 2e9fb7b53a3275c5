"""Tasks of one entity never overlap and keep their order, while those of others run beside them."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest

from penstock.job import Status
from tests.worker.processes import Field


def check_order(field: Field, processes: int, entities: int, tasks: int, seconds: float) -> None:
    field.queue.add(
        [
            field.new("sleep", payload={"seconds": seconds}, lock_key=f"worker:w{entity}")
            for _ in range(tasks)
            for entity in range(entities)
        ]
    )

    assert 0 == field.worker(processes=processes, until_idle=True).ended(1200)

    assert entities * tasks == field.count(Status.DONE)
    began = {line[1]: line for line in field.recorded("began")}
    ended = {line[1]: line for line in field.recorded("ended")}
    by_entity: defaultdict[str | None, list[str]] = defaultdict(list)
    for job in field.jobs():
        by_entity[job.lock_key].append(job.queue_id)
    assert {tasks} == {len(ids) for ids in by_entity.values()}
    for ids in by_entity.values():
        # In the order they were added, each only after the one before had ended.
        assert all(float(ended[one][4]) <= float(began[other][4]) for one, other in pairwise(ids))
    assert overlaps(began, ended) > 0


def overlaps(began: dict[str, list[str]], ended: dict[str, list[str]]) -> int:
    """How often a job began in one process while one ran in another."""
    in_order = sorted(began.values(), key=lambda line: float(line[4]))
    return sum(
        one[3] != other[3] and float(other[4]) < float(ended[one[1]][4]) for one, other in pairwise(in_order)
    )


def test_two_processes_and_a_few_entities(field: Field):
    # Long enough for the second process to come up while the first is still at work.
    check_order(field, processes=2, entities=20, tasks=6, seconds=0.03)


@pytest.mark.chaos
def test_4_processes_200_entities_and_50_tasks_each(field: Field):
    check_order(field, processes=4, entities=200, tasks=50, seconds=0.001)
