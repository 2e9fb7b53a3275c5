"""Process groups of dead children: processes left behind, and other processes with the same id."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import pytest

from penstock.worker.liveness_lock import GroupLeader, kill_left_behind
from tests.worker.worker_processes import alive, until

LEAVE = "sleep 600 & echo $!; read until_told"
"""A leader that exits when its input is closed, and leaves a process running."""


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        ["sh", "-c", LEAVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    )
    yield started
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    for stream in (started.stdin, started.stdout):
        assert stream is not None
        stream.close()
    started.wait()


def left_by(program: subprocess.Popen[str]) -> tuple[GroupLeader, int]:
    """Let the leader exit; return the leader and the id of the process left running."""
    assert program.stdin is not None
    assert program.stdout is not None
    left = int(program.stdout.readline())
    leader = GroupLeader.of(program.pid)
    assert leader is not None
    program.stdin.close()
    program.wait()
    return leader, left


def test_what_is_left_of_a_dead_childs_group_is_killed(program: subprocess.Popen[str]):
    leader, left = left_by(program)

    assert 1 == kill_left_behind(leader)

    until(lambda: not alive([left]))
    assert 0 == kill_left_behind(leader)


@pytest.mark.parametrize("field", ["session", "started", "realm"])
def test_what_only_bears_its_number_is_left_alone(program: subprocess.Popen[str], field: str):
    leader, left = left_by(program)
    others = {
        "session": msgspec.structs.replace(leader, session=leader.session + 1),
        "started": msgspec.structs.replace(leader, started=leader.started + 10**6),
        "realm": msgspec.structs.replace(leader, realm="another boot"),
    }

    assert 0 == kill_left_behind(others[field])

    assert [left] == alive([left])


def test_whoever_was_given_the_number_of_the_leader_is_left_alone():
    with subprocess.Popen(["sleep", "600"], process_group=0) as other:
        leader = GroupLeader.of(other.pid)
        assert leader is not None

        assert 0 == kill_left_behind(msgspec.structs.replace(leader, started=leader.started - 1))
        assert [other.pid] == alive([other.pid])
        assert 1 == kill_left_behind(leader)
        assert -signal.SIGKILL == other.wait()


def test_it_is_read_back_as_it_was_written():
    leader = GroupLeader.of(os.getpid())

    assert leader is not None
    assert leader == GroupLeader.parse(leader.to_text().split())
    assert GroupLeader.parse(leader.to_text().split()[:-1]) is None
    assert GroupLeader.parse([]) is None
