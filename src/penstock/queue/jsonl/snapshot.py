"""Snapshot of the whole state: header, a line per job, pause, worker, schedule and limit, a final line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from penstock.errors import SchemaMismatch, StateDamaged
from penstock.job import WorkerReport
from penstock.limits import Limit
from penstock.named_tuple import NamedTuple
from penstock.queue.jsonl import records
from penstock.queue.jsonl.records import RecordedTable
from penstock.queue.rules.pauses import Pause
from penstock.queue.schedule_rows import Key, key_of
from penstock.schedule import Schedule

VERSION = 1
_CHUNK = 1_000


class JournalState(NamedTuple):
    """The state up to record ``n``."""

    n: int
    table: RecordedTable
    workers: dict[str, WorkerReport]
    schedules: dict[Key, Schedule]


class _Header(msgspec.Struct):
    snapshot: int
    rows: int
    version: int


class _Trailer(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A line after the rows: one of the fields is set."""

    paused: Pause | None = None
    worker: WorkerReport | None = None
    schedule: Schedule | None = None
    limit: Limit | None = None
    end: int | None = None


_encode = msgspec.json.Encoder().encode
_header = msgspec.json.Decoder(_Header)
_trailer = msgspec.json.Decoder(_Trailer)


def empty() -> JournalState:
    return JournalState(0, RecordedTable(), {}, {})


def chunks(state: JournalState) -> Iterator[bytes]:
    """Yield the file in pieces, so a large file is not in memory twice."""
    yield _line(_Header(state.n, len(state.table.rows), VERSION))
    jobs = iter(state.table.rows.values())
    while part := list(islice(jobs, _CHUNK)):
        yield records.encode_jobs(part)
    for pause in records.sorted_pauses(state.table.pauses()):
        yield _line(_Trailer(paused=pause))
    for worker in state.workers.values():
        yield _line(_Trailer(worker=worker))
    for schedule in state.schedules.values():
        yield _line(_Trailer(schedule=schedule))
    for limit in state.table.all_limits():
        yield _line(_Trailer(limit=limit))
    yield _line(_Trailer(end=state.n))


def _line(value: msgspec.Struct) -> bytes:
    return _encode(value) + b"\n"


def parse(path: Path, lines: Sequence[bytes] | None) -> JournalState:
    """Parse a snapshot. Raises ``StateDamaged`` with the line, or ``SchemaMismatch`` for a newer version."""
    if lines is None:
        return empty()
    number = 1
    try:
        header = _header.decode(lines[0] if lines else b"")
        if header.version > VERSION:
            raise SchemaMismatch(
                f"{path} has version {header.version}; this Penstock reads up to version {VERSION}"
            )
        if header.version != VERSION:
            raise ValueError(f"there never was a version {header.version}")
        state = empty()._replace(n=header.snapshot)
        for number, line in enumerate(lines[1:], 2):
            if number <= header.rows + 1:
                state.table.restore([records.decode_job(line)])
                continue
            trailer = _trailer.decode(line)
            if _adopt(state, trailer):
                continue
            if trailer.end == header.snapshot and number == len(lines):
                return state
            raise ValueError("this is not the end the first line announces")
        number = len(lines) + 1
        raise ValueError("the closing line is missing")
    except (msgspec.MsgspecError, ValueError) as error:
        raise damaged(path, number, error) from error


def _adopt(state: JournalState, trailer: _Trailer) -> bool:
    """Take over a pause, worker, schedule or limit. False for the final line."""
    if trailer.paused is not None:
        state.table.set_pause(trailer.paused)
    elif trailer.worker is not None:
        state.workers[trailer.worker.worker_id] = trailer.worker
    elif trailer.schedule is not None:
        state.schedules[key_of(trailer.schedule)] = trailer.schedule
    elif trailer.limit is not None:
        state.table.set_limit(trailer.limit)
    else:
        return False
    return True


def damaged(path: Path, line: int, reason: object) -> StateDamaged:
    return StateDamaged(f"{path}, line {line}: {reason}")
