"""Reports of workers, and checks of the store."""

import msgspec

from penstock.queue.job import WorkerReport
from tests.conformance.conftest import T0, at, running

REPORT = WorkerReport(worker_id="w1", host="mill", pid=7, started_at=T0, info_json='{"lanes":["jobs"]}')


def test_there_are_no_workers_before_one_reports(queue):
    running(queue)
    assert [] == queue.workers()


def test_a_report_comes_back_with_the_time_it_was_seen(queue):
    queue.report(REPORT, now=at(5))
    assert [msgspec.structs.replace(REPORT, seen_at=at(5))] == queue.workers()


def test_a_later_report_replaces_the_one_before(queue):
    queue.report(REPORT, now=at(5))
    changed = msgspec.structs.replace(REPORT, pid=8, info_json="{}")
    queue.report(changed, now=at(9))
    assert [msgspec.structs.replace(changed, seen_at=at(9))] == queue.workers()


def test_workers_are_listed_in_the_order_of_their_ids(queue):
    for name in ("w2", "w10", "w1"):
        queue.report(msgspec.structs.replace(REPORT, worker_id=name), now=at(1))
    assert ["w1", "w10", "w2"] == [worker.worker_id for worker in queue.workers()]


def test_forgotten_reports_are_gone_and_the_others_stay(queue):
    for name in ("w1", "w2", "w3"):
        queue.report(msgspec.structs.replace(REPORT, worker_id=name), now=at(1))
    reports = queue.workers()

    assert 2 == queue.forget_workers([reports[0], reports[2]])

    assert reports[1:2] == queue.workers()
    assert 0 == queue.forget_workers([reports[0], reports[2]])
    assert 0 == queue.forget_workers([])
    assert reports[1:2] == queue.workers()


def test_a_worker_that_reported_again_is_not_forgotten(queue):
    queue.report(REPORT, now=at(1))
    silent = queue.workers()
    queue.report(REPORT, now=at(2))

    assert 0 == queue.forget_workers(silent)
    assert [msgspec.structs.replace(REPORT, seen_at=at(2))] == queue.workers()


def test_a_check_answers_with_what_a_person_should_read(queue):
    warnings = queue.check()
    assert warnings == [warning for warning in warnings if isinstance(warning, str) and warning]


def test_a_store_can_be_migrated_again(queue):
    claim = running(queue)
    queue.migrate()
    assert claim.queue_id == queue.get(claim.queue_id).queue_id
