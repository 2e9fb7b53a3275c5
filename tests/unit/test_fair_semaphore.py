"""Threads get their turn in the order they came, whoever is fastest."""

from __future__ import annotations

import threading

import pytest

from penstock.database.schema import FairSemaphore


def test_a_waiting_thread_goes_before_one_that_comes_again():
    semaphore, taken = FairSemaphore(1), 0
    waiting, served = threading.Event(), threading.Event()

    def wait_once() -> None:
        waiting.set()
        semaphore.acquire()
        served.set()
        semaphore.release()

    semaphore.acquire()
    thread = threading.Thread(target=wait_once)
    thread.start()
    waiting.wait(60)
    while not semaphore.has_waiting():
        pass
    while not served.is_set():
        semaphore.release()
        assert semaphore.acquire(60)
        taken += 1
    thread.join()

    assert 1 == taken


def test_who_leaves_in_time_takes_no_turn_with_it():
    semaphore = FairSemaphore(1)
    semaphore.acquire()

    assert not semaphore.acquire(0.001)
    semaphore.release()
    assert semaphore.acquire(0)


def test_a_thread_that_is_interrupted_takes_no_turn_with_it(monkeypatch: pytest.MonkeyPatch):
    semaphore = FairSemaphore(1)
    semaphore.acquire()

    def interrupted(_event: threading.Event, _timeout: float | None = None) -> bool:
        semaphore.release()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Event, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            semaphore.acquire()

    assert semaphore.acquire(0)
