"""Redis keys of the contract, and all Redis access of a gateway. Atomic steps are one script or one MULTI."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from penstock import clock
from penstock.redis_contract.messages import (
    DONE,
    FAILED,
    HEAD_BYTES,
    MARK,
    MAX_BYTES,
    PROCESSING,
    QUEUED,
    STATUS_FIELDS,
    SUBMITTED,
)

QUEUE = "rag:ingest:queue"
DEAD_LETTER = f"{QUEUE}:dead-letter"
GATEWAYS = "rag:ingest:gateways"
"""Hash: gateway → its last heartbeat as JSON."""
_OPEN = "rag:ingest:open"
"""Hash: job → the gateway that mirrors it."""
RAGS = "rag:ingest:rags"
"""Hash: RAG → when a gateway last announced that it serves the RAG, in milliseconds of the server's clock."""
_WAITING_PREFIX = "rag:ingest:waiting:"
_RECENT = "rag:ingest:recent"
"""Sorted set: job → when its hash is compared with ``_RECENT_FIELDS`` next."""
_RECENT_FIELDS = "rag:ingest:recent:fields"
"""Hash: job → the fields that a gateway wrote last, as JSON."""
_FILE_PREFIX = "rag:ingest:file:"
PRIORITIES: Mapping[str, int] = MappingProxyType({"high": 8, "normal": 5, "low": 1})
NORMAL = PRIORITIES["normal"]
RESERVED = frozenset({*PRIORITIES, "dead-letter"})
"""Names that no RAG can have, because the lists of these names have another meaning."""
_KEPT_S = 604_800
"""Seconds that the hash of a job is kept after the job ended."""
_LOWEST_FIRST_EVERY = 16
"""One take in so many begins with the lowest list, so that many urgent messages do not starve the others."""
SILENT_S = 5.0
"""A gateway without a heartbeat for so long counts as dead; another takes over its messages and jobs. If it
is alive after all, its next write fails: every write checks that the message or job is still its own."""
_PER_CALL = 500
"""Messages or hashes that one script processes, so that no script blocks the server for long."""
_MAX_CALLS = 20
"""Calls of one such script in a row."""
_RECHECK_MS = (2_000, 15_000, 60_000)
"""Times after a write at which a hash is checked for a status that its producer wrote over ours."""
Fields = Mapping[str, str]


def job_key(job_id: str) -> str:
    return f"rag:ingest:job:{job_id}"


def list_key(rag_id: str) -> str:
    """List: messages for one RAG. Only gateways which serve the RAG take them."""
    return f"{QUEUE}:{rag_id}"


def waiting_key(rag_id: str) -> str:
    """List: messages passed on to the gateways which serve this RAG, by a gateway which does not."""
    return f"{_WAITING_PREFIX}{rag_id}"


def _ttl_key(job_id: str) -> str:
    return f"{job_key(job_id)}:ttl"


def file_key(rag_id: str, known_as: str) -> str:
    """Set: the jobs of one file."""
    named = hashlib.sha256(f"{rag_id}\n{known_as}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"{_FILE_PREFIX}{named[:16]}"


def processing_key(gateway: str, priority: int) -> str:
    """List: messages taken by a gateway and not yet handed over.

    There is one list per priority, because a message does not contain its priority.
    """
    return f"rag:ingest:processing:{gateway}:{priority}"


class ServedList(msgspec.Struct, frozen=True):
    key: str
    priority: int


def served_lists(rag_ids: Iterable[str]) -> list[ServedList]:
    """List all served lists, most urgent first."""
    of_rags = [key for rag_id in rag_ids for key in (waiting_key(rag_id), list_key(rag_id))]
    middle = [QUEUE, f"{QUEUE}:normal", *of_rags]
    high, low = ServedList(f"{QUEUE}:high", PRIORITIES["high"]), ServedList(f"{QUEUE}:low", PRIORITIES["low"])
    return [high, *(ServedList(key, NORMAL) for key in middle), low]


def rotate_lists(lists: list[ServedList], turn: int) -> list[ServedList]:
    """Order the lists for one take: lists of normal priority rotate, and sometimes the lowest comes first."""
    middle = [one for one in lists if one.priority == NORMAL]
    start = turn % len(middle)
    order = [lists[0], *middle[start:], *middle[:start], lists[-1]]
    return order[::-1] if turn % _LOWEST_FIRST_EVERY == _LOWEST_FIRST_EVERY - 1 else order


class Broker(Protocol):
    """Connection to a Redis server. Failures are raised as Penstock errors."""

    label: str

    def call(self, *command: Any) -> Any: ...

    def calls(self, commands: Sequence[Sequence[Any]], *, together: bool = False) -> list[Any]: ...

    def close(self) -> None: ...


class TakenMessage(msgspec.Struct, frozen=True):
    """A message in a processing list of this gateway."""

    raw: bytes
    priority: int


class Lists:
    """The lists and hashes as one gateway uses them. ``group``: the gateways of one queue."""

    def __init__(self, broker: Broker, *, gateway: str, group: str, rag_ids: Sequence[str]) -> None:
        self.broker = broker
        self.gateway = gateway
        self._group = group
        self._served = served_lists(rag_ids)
        self._turn = 0
        self.misplaced: dict[str, str] = {}
        """Keys of lists that hold another Redis type, with that type; from the last ``has_messages``."""

    # Messages.

    def has_messages(self) -> bool:
        """Check whether any served list holds a message."""
        named = [one.key for one in self._served]
        found = dict(zip(named, lengths(self.broker, named), strict=True))
        self.misplaced = {key: kind for key, kind in found.items() if isinstance(kind, str)}
        return any(isinstance(length, int) and length for length in found.values())

    def take(self, limit: int) -> list[TakenMessage]:
        """Move up to ``limit`` messages to this gateway's lists; none before the first heartbeat."""
        order = rotate_lists(self._served, self._turn)
        self._turn += 1
        pairs = [key for one in order for key in (one.key, processing_key(self.gateway, one.priority))]
        answer = self._run("take", [GATEWAYS, *pairs], limit, MAX_BYTES, self.gateway)
        found = zip(answer[::2], answer[1::2], strict=True)
        return [TakenMessage(raw, order[int(number)].priority) for number, raw in found]

    def list_taken(self) -> list[TakenMessage]:
        """List this gateway's messages, taken and not handed over yet, most urgent first."""
        priorities = sorted(PRIORITIES.values(), reverse=True)
        own = [("LRANGE", processing_key(self.gateway, priority), 0, -1) for priority in priorities]
        found = zip(priorities, self.broker.calls(own), strict=True)
        return [TakenMessage(raw, priority) for priority, held in found for raw in reversed(held)]

    def accept(self, taken: TakenMessage, fields: Fields, *, file: str, again: bool = False) -> bool:
        """Acknowledge a message after the job was added. False: another gateway has taken the message over.

        ``again``: an end that the hash reports is out of date. ``file``: key of the set of its file's jobs.
        """
        job_id = fields["job_id"]
        named = [processing_key(self.gateway, taken.priority), _OPEN, job_key(job_id), file]
        arguments = (taken.raw, self.gateway, job_id, int(again), _KEPT_S, *_flat(fields))
        return bool(self._run("accept", named, *arguments))

    def refuse(
        self, taken: TakenMessage, letter: Mapping[str, Any], job_id: str | None, fields: Fields
    ) -> bool:
        """Move a message to the dead letters, and write the hash of ``job_id`` where there is one."""
        named = [processing_key(self.gateway, taken.priority), DEAD_LETTER, _OPEN]
        named += [job_key(job_id or "-"), _ttl_key(job_id or "-")]
        arguments = (job_id or "", _KEPT_S, _expires(), *_flat(fields))
        return bool(self._run("refuse", named, taken.raw, _json(letter), *arguments))

    def pass_on(self, taken: TakenMessage, fields: Fields, *, away_s: float) -> bool:
        """Pass a message on to gateways which serve the RAG. False: none did within ``away_s`` seconds.

        The hash then says why the message waits.
        """
        rag_id, job_id = fields["rag_id"], fields["job_id"]
        named = [processing_key(self.gateway, taken.priority), RAGS, waiting_key(rag_id)]
        named += [_OPEN, job_key(job_id)]
        return bool(self._run("pass_on", named, taken.raw, rag_id, _away_ms(away_s), job_id, *_flat(fields)))

    def expire(self, *, away_s: float) -> int:
        """Take the messages of RAGs without a gateway for ``away_s`` seconds. Returns the count."""
        named = [RAGS, processing_key(self.gateway, NORMAL)]
        return int(self._run("expire", named, _away_ms(away_s), _WAITING_PREFIX, _PER_CALL))

    def is_unused(self, job_id: str) -> bool:
        """Check whether Redis knows no job with this id, open or ended."""
        return bool(self._run("unused", [_OPEN, job_key(job_id)], job_id))

    def recheck(self) -> int:
        """Correct hashes overwritten by a producer with an earlier status. Returns the count."""
        total = 0
        for _ in range(_MAX_CALLS):
            right, looked_at = self._run("recheck", [], job_key(""), _KEPT_S, _PER_CALL)
            total += right
            if looked_at < _PER_CALL:
                break
        return total

    # Jobs.

    def adopt(self, job_ids: Sequence[str]) -> int:
        """Become the owner of these jobs, except those owned by another gateway."""
        return sum(self.broker.calls([("HSETNX", _OPEN, job_id, self.gateway) for job_id in job_ids]))

    def list_own_jobs(self) -> list[str]:
        """List the jobs mirrored by this gateway."""
        found = self.broker.call("HGETALL", _OPEN)
        rows = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
        return [job.decode() for job, gateway in rows if gateway.decode() == self.gateway]

    def mirror(self, job_id: str, fields: Fields) -> bool:
        """Write a job's hash. False: another gateway has taken the job over."""
        named = [_OPEN, job_key(job_id)]
        return bool(self._run("mirror", named, self.gateway, job_id, *_flat(fields)))

    def owns(self, job_id: str) -> bool:
        return bool(self._run("own", [_OPEN, job_key(job_id)], self.gateway, job_id))

    def list_open_jobs(self, job_id: str, file: str) -> list[str]:
        """List the other open jobs of the same file."""
        found = [one.decode() for one in self.broker.call("SMEMBERS", file)]
        rest = [one for one in found if one != job_id]
        owners = self.broker.call("HMGET", _OPEN, *rest) if rest else []
        return [one for one, owner in zip(rest, owners, strict=True) if owner is not None]

    def finish(
        self, job_id: str, fields: Fields, *, file: str = "", letter: Mapping[str, Any] | None = None
    ) -> bool:
        """Write the final hash of a job, and a dead letter if the job failed."""
        named = [_OPEN, job_key(job_id), _ttl_key(job_id), DEAD_LETTER, file]
        arguments = (_KEPT_S, _expires(), _json(letter) if letter else "", *_flat(fields))
        return bool(self._run("finish", named, self.gateway, job_id, *arguments))

    # Erasure.

    def hashes(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield job id and the fields for the erasure of every hash. Some may come twice."""
        names, cursor = ("rag_id", "completed_at", "error_code"), 0
        while True:
            cursor, *found = self._run("hashes", [], cursor, job_key(""), _PER_CALL, *names)
            for job_id, values in zip(found[::2], found[1::2], strict=True):
                texts = (_text(value) for value in values)
                yield _text(job_id), dict(zip(names, texts, strict=True))
            if not int(cursor):
                return

    def is_open(self, job_id: str) -> bool:
        return bool(self.broker.call("HEXISTS", _OPEN, job_id))

    def erase(self, job_id: str) -> int:
        """Remove the hash of an ended job. Returns the number of removed hashes."""
        named = [_OPEN, job_key(job_id), _ttl_key(job_id)]
        return int(self._run("erase", named, job_id))

    def forget_files(self, job_ids: Sequence[str]) -> None:
        """Take removed jobs out of the sets of jobs of one file; no hash names the set."""
        cursor: Any = 0
        while job_ids:
            cursor, found = self.broker.call("SCAN", cursor, "MATCH", f"{_FILE_PREFIX}*", "COUNT", _PER_CALL)
            self.broker.calls([("SREM", key, *job_ids) for key in found])
            if not int(cursor):
                return

    def letters(self) -> Iterator[bytes]:
        """Yield all dead letters, oldest first: positions from the end do not move when letters are added."""
        (count,) = lengths(self.broker, [DEAD_LETTER])
        oldest = count if isinstance(count, int) else 0
        for last in range(-1, -oldest - 1, -_PER_CALL):
            yield from reversed(self.broker.call("LRANGE", DEAD_LETTER, last - _PER_CALL + 1, last))

    def erase_letter(self, raw: bytes) -> None:
        self.broker.call("LREM", DEAD_LETTER, -1, raw)

    # Gateways.

    def beat(self, beat: Mapping[str, Any], *, leaving: bool = False) -> None:
        self._run("beat", [GATEWAYS, RAGS], self.gateway, _json(beat), int(leaving))

    def take_over(self) -> tuple[int, int]:
        """Take over from dead gateways. Returns the numbers of messages and jobs."""
        silence = int(SILENT_S * 1000)
        prefix = processing_key("", 0).rpartition(":0")[0].removesuffix(":") + ":"
        priorities = PRIORITIES.values()
        arguments = (self.gateway, self._group, silence, prefix, *priorities)
        messages, jobs = self._run("take_over", [GATEWAYS, _OPEN], *arguments)
        return messages, jobs

    def _run(self, name: str, named: Sequence[str], *arguments: Any) -> Any:
        return _run(self.broker, name, named, *arguments)


def lengths(broker: Broker, named: Sequence[str]) -> list[int | str]:
    """Return the length of each list, or the Redis type of another key."""
    found = _run(broker, "lengths", named)
    return [one if isinstance(one, int) else one.decode() for one in found]


def _run(broker: Broker, name: str, named: Sequence[str], *arguments: Any) -> Any:
    return broker.call("EVAL", _script(name), len(named), *named, *arguments)


@cache
def _script(name: str) -> str:
    folder = files(__package__).joinpath("scripts")
    parts = (folder.joinpath(f"{one}.lua").read_text(encoding="utf-8") for one in ("prelude", name))
    constants = (f"local {name} = {_lua(value)}\n" for name, value in _CONSTANTS.items())
    return "".join([*constants, *parts])


_CONSTANTS: Mapping[str, Any] = {
    "STATUS_FIELDS": STATUS_FIELDS,
    "SUBMITTED": SUBMITTED,
    "QUEUED": QUEUED,
    "PROCESSING": PROCESSING,
    "DONE": DONE,
    "FAILED": FAILED,
    "RECENT": _RECENT,
    "RECENT_FIELDS": _RECENT_FIELDS,
    "RECHECK_MS": _RECHECK_MS,
    "OVERSIZED": MARK.decode().lstrip("\0"),
    "HEAD_BYTES": HEAD_BYTES,
}
"""Values that the scripts share with Python."""


def with_update_time(fields: Fields) -> dict[str, str]:
    """The fields of a hash, with the time at which they are written."""
    return {**fields, "updated_at": clock.format_time(clock.now())}


def _lua(value: Any) -> str:
    if isinstance(value, str):
        return f"'{value}'"
    return str(value) if isinstance(value, int) else f"{{ {', '.join(map(_lua, value))} }}"


def _away_ms(away_s: float) -> int:
    """Return at least the heartbeat limit: a gateway with heartbeats is never away."""
    return int(max(away_s, SILENT_S) * 1000)


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "surrogateescape")


def _flat(fields: Fields) -> list[str]:
    return [text for pair in fields.items() for text in pair]


def _json(value: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(value)


def _expires() -> str:
    return clock.format_time(clock.now() + timedelta(seconds=_KEPT_S))
