"""Shared state: readers get whole values, no matter which process dies when."""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.pipeline.budget import FileMark
from penstock.queue.job import Settlement, Status
from penstock.worker.shared_state import MOST_MEMBERS, RESULTS_LIMIT, ExecutingJob, Execution, SharedState

LONG_ID = "é" * 64
"""128 bytes: the longest id that can be submitted."""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[SharedState]:
    state = SharedState.create(tmp_path / "w.state")
    yield state
    state.close()


@pytest.fixture
def supervisor(child: SharedState) -> Iterator[SharedState]:
    state = SharedState(child.path)
    yield state
    state.close()


def settled(number: int, result: str = "{}") -> Settlement:
    return Settlement(
        queue_id=f"job_{number}", claim_number=1, status=Status.DONE, what="done", result_json=result
    )


def test_the_supervisor_reads_what_the_child_executes(child: SharedState, supervisor: SharedState):
    assert supervisor.executing() is None
    members = tuple(ExecutingJob(f"{LONG_ID}{i}", i, 7200) for i in range(MOST_MEMBERS))

    number = child.begin(members, 12.5)

    assert Execution(number, 12.5, members) == supervisor.executing()
    child.end(len(members))
    assert supervisor.executing() is None
    assert len(members) == supervisor.executed


def test_a_death_in_the_middle_of_writing_reads_as_nothing(child: SharedState, supervisor: SharedState):
    child.begin((ExecutingJob("job_1", 1, 60),), 1.0)
    page = child.path.read_bytes()
    at = page.index(b"job_1") // 4096 * 4096
    (sequence,) = struct.unpack_from("Q", page, at)
    with child.path.open("r+b") as file:
        file.seek(at)
        file.write(struct.pack("Q", sequence + 1))

    assert supervisor.executing() is None


def test_a_reader_never_sees_half_of_a_change(child: SharedState, supervisor: SharedState):
    """Members, start and number of an execution belong together however the two sides interleave."""
    stop = threading.Event()

    def write() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            size = turn % 50 + 1
            child.begin(tuple(ExecutingJob(f"job_{turn}", turn, size) for _ in range(size)), float(turn))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = [supervisor.executing() for _ in range(3_000)]
    finally:
        stop.set()
        writer.join()
    whole = [doing for doing in seen if doing is not None]
    assert whole
    for doing in whole:
        expected = ExecutingJob(f"job_{doing.number}", doing.number, len(doing.members))
        assert {expected} == set(doing.members)
        assert doing.number == doing.started


def test_a_stop_is_for_one_member_of_one_execution(child: SharedState, supervisor: SharedState):
    first = child.begin((ExecutingJob("job_1", 1, 60), ExecutingJob("job_2", 1, 60)), 1.0)
    supervisor.request_stop(first, 1)

    assert [False, True] == [child.stop_requested(first, index) for index in (0, 1)]
    child.end(2)
    second = child.begin((ExecutingJob("job_3", 1, 60), ExecutingJob("job_4", 1, 60)), 2.0)
    assert not any(child.stop_requested(second, index) for index in (0, 1))


def test_a_thread_that_outlived_its_job_does_not_speak_for_the_next(
    child: SharedState, supervisor: SharedState
):
    first = child.begin((ExecutingJob("job_1", 1, 60),), 1.0)
    child.write_progress(first, 0, '{"current":1}')
    assert '{"current":1}' == supervisor.progress(first, 0)
    second = child.begin((ExecutingJob("job_2", 1, 60),), 2.0)

    child.write_progress(first, 0, '{"current":2}')

    assert supervisor.progress(second, 0) is None


def test_threads_of_one_handler_may_all_tell_how_far_they_are(child: SharedState, supervisor: SharedState):
    number = child.begin((ExecutingJob("job_1", 1, 60),), 1.0)
    stop = threading.Event()

    def tell(letter: str, length: int) -> None:
        while not stop.is_set():
            child.write_progress(number, 0, letter * length)

    threads = [threading.Thread(target=tell, args=("abcd"[i], 900 * (i + 1))) for i in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    for thread in threads:
        thread.start()
    try:
        seen = [supervisor.progress(number, 0) for _ in range(1_000)]
    finally:
        sys.setswitchinterval(before)
        stop.set()
        for thread in threads:
            thread.join()
    whole = {said for said in seen if said}
    assert whole <= {"a" * 900, "b" * 1800, "c" * 2700, "d" * 3600}
    assert whole


def test_results_that_were_torn_are_read_up_to_the_tear(child: SharedState, supervisor: SharedState):
    """After a power cut the length may be written and the bytes not."""
    whole = settled(1)
    child.save_results([whole])
    before = child.path.read_bytes()
    child.save_results([settled(2), settled(3)])
    after = child.path.read_bytes()
    assert 3 == len(supervisor.results())

    # The first page, with the length, is new; the results are old.
    child.path.write_bytes(after[:4096] + before[4096:])

    assert [whole] == supervisor.results()


def test_members_that_were_torn_read_as_nothing(child: SharedState, supervisor: SharedState):
    child.begin((ExecutingJob("job_1", 1, 60),), 1.0)
    page = child.path.read_bytes()
    at = page.index(b"job_1")
    with child.path.open("r+b") as file:
        file.seek(at - 3)
        file.write(b"\0" * 8)

    assert supervisor.executing() is None


def test_text_that_was_torn_within_a_character_reads_as_nothing(child: SharedState, supervisor: SharedState):
    """Each worker of the host reads the file of a dead one: an error would end all of them."""
    members = (ExecutingJob("é", 1, 60),)
    number = child.begin(members, 1.0)
    child.record_beside(members)
    child.save_results([settled(1), settled(2, '"é"')])
    child.mark_file(number, FileMark(0, 0.0, 1.0, 1, 1, "é"), 1.0)
    with child.path.open("r+b") as file:
        data = file.read()
        assert 4 == data.count("é".encode())
        file.seek(0)
        file.write(data.replace("é".encode(), b"\xc3\x00"))

    assert (None, (), None) == (supervisor.executing(), supervisor.beside(), supervisor.file_run(number))
    assert ["job_1"] == [result.queue_id for result in supervisor.results()]


def test_results_are_kept_until_they_are_sent(child: SharedState, supervisor: SharedState):
    results = [settled(1), settled(2, '"' + "x" * 10_000 + '"')]

    assert child.save_results(results[:1])
    assert child.save_results(results[1:])

    assert results == supervisor.results()
    assert not child.save_results([settled(3, "x" * RESULTS_LIMIT)])
    assert results == supervisor.results()
    child.clear_results()
    assert [] == supervisor.results()


@pytest.mark.parametrize("sizes", [(3, 1), (1, 3)])
def test_results_are_dropped_in_the_order_of_their_arrival(
    child: SharedState, supervisor: SharedState, sizes: tuple[int, int]
):
    """With more behind them than before them the results stay in their place, else they move to the start."""
    results = [settled(number) for number in range(1, sum(sizes) + 1)]
    child.save_results(results[: sizes[0]])
    until = child.results_end
    child.save_results(results[sizes[0] :])

    child.drop_results(until)

    assert results[sizes[0] :] == supervisor.results()
    assert child.save_results([settled(9)])
    assert [*results[sizes[0] :], settled(9)] == supervisor.results()


def test_results_that_come_and_go_never_fill_the_memory(child: SharedState, supervisor: SharedState):
    """As an exchange is always on its way: some results are sent, others have come meanwhile."""
    until = 0
    for number in range(1, 200):
        assert child.save_results([settled(number, '"' + "x" * 10_000 + '"')])
        child.drop_results(until)
        until = child.results_end
        assert number == int(supervisor.results()[-1].queue_id.rpartition("_")[2])
