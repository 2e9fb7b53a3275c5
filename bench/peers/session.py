"""One contender on one empty store: its client, its workers, and what they have done."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from bench.peers.contract import PLACE, URL, Command
from bench.peers.field import Contender
from bench.peers.marks import Marks
from bench.peers.places import Store
from bench.processes import kill_tree

ROOT = Path(__file__).resolve().parents[2]
LOOK_S = 0.005
STARTS_S = 30.0
STOPS_S = 5.0
MARKS = 2_100_000
"""One a job; so many that each worker of a floor has a million and some of its own."""


class Unable(Exception):
    """A contender did not do what was asked; the others go on."""


class Session:
    def __init__(self, contender: Contender, store: Store, directory: Path) -> None:
        self.contender = contender
        self._store = store
        self._directory = directory
        self.url = store.fresh(directory)
        self.marks = Marks(directory, MARKS)
        self._environment = os.environ | {URL: self.url, PLACE: str(directory)}
        self._client: subprocess.Popen[str] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._commands: dict[int, list[Command]] = {}

    # The client.

    def open(self) -> None:
        with (self._directory / "client.log").open("ab") as log:
            self._client = subprocess.Popen(
                [sys.executable, "-m", "bench.peers.client", self.contender.module],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT,
                env=self._environment, start_new_session=True,
            )  # fmt: skip
        self.answer()
        for count in range(1, self.contender.most_workers + 1):
            self._commands[count] = self.ask("workers", count)

    @property
    def client_pid(self) -> int:
        assert self._client is not None
        return self._client.pid

    def ask(self, verb: str, *arguments: object) -> Any:
        self.send(verb, *arguments)
        return self.answer()

    def send(self, verb: str, *arguments: object) -> None:
        assert self._client is not None
        assert self._client.stdin is not None
        try:
            self._client.stdin.write(msgspec.json.encode([verb, *arguments]).decode() + "\n")
            self._client.stdin.flush()
        except BrokenPipeError as error:
            raise self._unable("its client has ended") from error

    def answer(self) -> Any:
        assert self._client is not None
        assert self._client.stdout is not None
        # A library that prints is let talk.
        while line := self._client.stdout.readline():
            try:
                return msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue
        raise self._unable("its client has ended")

    def close_client(self) -> None:
        """It hands in what the server counts for it."""
        if self._client is not None:
            assert self._client.stdin is not None
            assert self._client.stdout is not None
            self._client.stdin.close()
            self._ended(self._client)
            self._client.stdout.close()
            self._client = None

    # Its workers.

    def start(self, count: int) -> None:
        with (self._directory / "worker.log").open("ab") as log:
            self._workers += [
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT,
                    env=self._environment, start_new_session=True,
                )
                for command in self._commands[count]
            ]  # fmt: skip

    def wait_for(self, reached: Callable[[], bool], limit_s: float) -> bool:
        deadline = time.monotonic() + limit_s
        while not reached():
            if time.monotonic() > deadline:
                return False
            if any(worker.poll() is not None for worker in self._workers):
                raise self._unable("its worker has ended")
            time.sleep(LOOK_S)
        return True

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._workers]

    def stop(self) -> None:
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self._workers:
            self._ended(worker)
        self._workers.clear()

    def kill(self) -> None:
        for worker in self._workers:
            kill_tree(worker.pid)
        for worker in self._workers:
            worker.wait()
        self._workers.clear()

    def _ended(self, process: subprocess.Popen[Any]) -> None:
        try:
            process.wait(STOPS_S)
        except subprocess.TimeoutExpired:
            kill_tree(process.pid)
            process.wait()

    # The store.

    def counts(self) -> tuple[int, ...]:
        return self._store.counts(self.url)

    def end(self) -> None:
        self.kill()
        if self._client is not None:
            kill_tree(self._client.pid)
        self.close_client()
        self._store.forget(self.url)

    def _unable(self, what: str) -> Unable:
        said = ""
        for log in (self._directory / "client.log", self._directory / "worker.log"):
            if log.exists():
                said += log.read_text(errors="replace")
        lines = said.strip().splitlines()
        return Unable(f"{what}: {lines[-1] if lines else 'it said nothing'}"[:200])


@contextmanager
def session(contender: Contender, store: Store, below: Path) -> Iterator[Session]:
    directory = Path(tempfile.mkdtemp(prefix="s-", dir=below))
    each = Session(contender, store, directory)
    try:
        each.open()
        yield each
    finally:
        each.end()
        shutil.rmtree(directory, ignore_errors=True)
