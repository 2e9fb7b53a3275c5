"""The contract's keys on a Redis server. Every step that must not be torn is one script or one MULTI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Protocol

import msgspec

from penstock import clock
from penstock.redis_contract import keys
from penstock.redis_contract.fields import STATUS_FIELDS
from penstock.redis_contract.message import MAX_BYTES

SILENT_S = 5.0
"""A gateway that said nothing for so long is dead; what it took and mirrored goes to another. Should it live
after all, it finds that out at its next write: every one asks whether the message or job is still its own."""

AT_ONCE = 500
"""Messages or hashes that one script looks at, so that none keeps the server busy for long."""

MOST_ROUNDS = 20
"""Calls of such a script in a row."""

Fields = Mapping[str, str]


class Broker(Protocol):
    """A Redis server that answers, or raises one of our errors."""

    label: str

    def call(self, *command: Any) -> Any: ...

    def calls(self, commands: Sequence[Sequence[Any]], *, together: bool = False) -> list[Any]: ...

    def close(self) -> None: ...


class TakenMessage(NamedTuple):
    """A message that is this gateway's to hand over."""

    raw: bytes
    priority: int


class Lists:
    """As one gateway sees them. ``house``: the gateways in front of one queue."""

    def __init__(self, broker: Broker, *, gateway: str, house: str, rag_ids: Sequence[str]) -> None:
        self.broker = broker
        self.gateway = gateway
        self._house = house
        self._served = keys.served(rag_ids)
        self._turn = 0
        self.misplaced: dict[str, str] = {}
        """Keys of lists that hold something else, with its Redis type; as of the last ``waiting``."""

    # Messages.

    def waiting(self) -> bool:
        """Whether there is anything to take."""
        named = [one.key for one in self._served]
        found = dict(zip(named, lengths(self.broker, named), strict=True))
        self.misplaced = {key: kind for key, kind in found.items() if isinstance(kind, str)}
        return any(isinstance(length, int) and length for length in found.values())

    def take(self, most: int) -> list[TakenMessage]:
        """Up to ``most`` messages, moved to this gateway's own lists; none before its (next) beat."""
        order = keys.in_turn(self._served, self._turn)
        self._turn += 1
        pairs = [key for one in order for key in (one.key, keys.processing_key(self.gateway, one.priority))]
        at = clock.format_time(clock.now())
        named = [keys.GATEWAYS, keys.DEAD_LETTER, *pairs]
        answer = self._run("take", named, most, MAX_BYTES, at, self.gateway)
        found = zip(answer[::2], answer[1::2], strict=True)
        return [TakenMessage(raw, order[int(number)].priority) for number, raw in found]

    def left(self) -> list[TakenMessage]:
        """What is in this gateway's own lists: taken over, or not handed over yet. Most urgent first."""
        priorities = sorted(keys.PRIORITIES.values(), reverse=True)
        own = [("LRANGE", keys.processing_key(self.gateway, priority), 0, -1) for priority in priorities]
        found = zip(priorities, self.broker.calls(own), strict=True)
        return [TakenMessage(raw, priority) for priority, held in found for raw in reversed(held)]

    def accept(self, taken: TakenMessage, fields: Fields, *, file: str, again: bool = False) -> bool:
        """The job is queued (``again``: whatever its hash says of an end). ``file``: key of the jobs that
        are about its file. False: another gateway has taken the message over.
        """
        job_id = fields["job_id"]
        named = [keys.processing_key(self.gateway, taken.priority), keys.OPEN, keys.job_key(job_id), file]
        about = (taken.raw, self.gateway, job_id, int(again), keys.KEPT_S, *_flat(fields))
        return bool(self._run("accept", named, *about))

    def refuse(
        self, taken: TakenMessage, letter: Mapping[str, Any], job_id: str | None, fields: Fields
    ) -> bool:
        """The message goes to the dead letters; with an id of its own its hash says so, too."""
        named = [keys.processing_key(self.gateway, taken.priority), keys.DEAD_LETTER, keys.OPEN]
        named += [keys.job_key(job_id or "-"), keys.ttl_key(job_id or "-")]
        about = (job_id or "", keys.KEPT_S, _expires(), *_flat(fields))
        return bool(self._run("refuse", named, taken.raw, _json(letter), *about))

    def pass_on(self, taken: TakenMessage, fields: Fields, *, away_s: float) -> bool:
        """Leave a message to gateways that serve its RAG, if one did within ``away_s`` seconds, and let its
        hash say what it waits for. False: none did."""
        rag_id, job_id = fields["rag_id"], fields["job_id"]
        named = [keys.processing_key(self.gateway, taken.priority), keys.RAGS, keys.waiting_key(rag_id)]
        named += [keys.OPEN, keys.job_key(job_id)]
        return bool(self._run("pass_on", named, taken.raw, rag_id, _away_ms(away_s), job_id, *_flat(fields)))

    def expire(self, *, away_s: float) -> int:
        """Take messages whose RAG no gateway served for longer than ``away_s``, to be refused; how many."""
        named = [keys.RAGS, keys.processing_key(self.gateway, keys.NORMAL)]
        return int(self._run("expire", named, _away_ms(away_s), keys.WAITING_PREFIX, AT_ONCE))

    def is_unused(self, job_id: str) -> bool:
        """Whether no job has this id, open or ended, as far as Redis knows."""
        return bool(self._run("unused", [keys.OPEN, keys.job_key(job_id)], job_id))

    def recheck(self) -> int:
        """Put hashes right that a producer wrote over with an earlier status; how many."""
        total = 0
        for _ in range(MOST_ROUNDS):
            right, looked_at = self._run("recheck", [], keys.job_key(""), keys.KEPT_S, AT_ONCE)
            total += right
            if looked_at < AT_ONCE:
                break
        return total

    # Jobs.

    def adopt(self, job_ids: Sequence[str]) -> int:
        """Mirror these jobs from now on, unless another gateway does."""
        return sum(self.broker.calls([("HSETNX", keys.OPEN, job_id, self.gateway) for job_id in job_ids]))

    def mine(self) -> list[str]:
        """The jobs that this gateway mirrors."""
        found = self.broker.call("HGETALL", keys.OPEN)
        rows = found.items() if isinstance(found, dict) else zip(found[::2], found[1::2], strict=True)
        return [job.decode() for job, gateway in rows if gateway.decode() == self.gateway]

    def mirror(self, job_id: str, fields: Fields) -> bool:
        """False: the job is another gateway's by now."""
        named = [keys.OPEN, keys.job_key(job_id)]
        return bool(self._run("mirror", named, self.gateway, job_id, *_flat(fields)))

    def owns(self, job_id: str) -> bool:
        return bool(self._run("own", [keys.OPEN, keys.job_key(job_id)], self.gateway, job_id))

    def others(self, job_id: str, file: str) -> list[str]:
        """Jobs about the same file that have not ended."""
        found = [one.decode() for one in self.broker.call("SMEMBERS", file)]
        rest = [one for one in found if one != job_id]
        owners = self.broker.call("HMGET", keys.OPEN, *rest) if rest else []
        return [one for one, owner in zip(rest, owners, strict=True) if owner is not None]

    def finish(
        self, job_id: str, fields: Fields, *, file: str = "", letter: Mapping[str, Any] | None = None
    ) -> bool:
        """The last word on a job that has ended."""
        named = [keys.OPEN, keys.job_key(job_id), keys.ttl_key(job_id), keys.DEAD_LETTER, file]
        about = (keys.KEPT_S, _expires(), _json(letter) if letter else "", *_flat(fields))
        return bool(self._run("finish", named, self.gateway, job_id, *about))

    # Erasure.

    def hashes(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Every hash of a job: its id and what the erasure asks for. Some may come twice."""
        names, cursor = ("rag_id", "completed_at", "error_code"), 0
        while True:
            cursor, *found = self._run("hashes", [], cursor, keys.job_key(""), AT_ONCE, *names)
            for job_id, values in zip(found[::2], found[1::2], strict=True):
                told = (_text(value) for value in values)
                yield _text(job_id), dict(zip(names, told, strict=True))
            if not int(cursor):
                return

    def is_open(self, job_id: str) -> bool:
        return bool(self.broker.call("HEXISTS", keys.OPEN, job_id))

    def erase(self, job_id: str) -> int:
        """Remove the hash of a job that is not open; how many were removed."""
        named = [keys.OPEN, keys.job_key(job_id), keys.ttl_key(job_id)]
        return int(self._run("erase", named, job_id))

    def forget_files(self, job_ids: Sequence[str]) -> None:
        """Take jobs that were removed out of the sets of jobs about one file; no hash names the set."""
        cursor: Any = 0
        while job_ids:
            cursor, found = self.broker.call(
                "SCAN", cursor, "MATCH", f"{keys.FILE_PREFIX}*", "COUNT", AT_ONCE
            )
            self.broker.calls([("SREM", key, *job_ids) for key in found])
            if not int(cursor):
                return

    def letters(self) -> Iterator[bytes]:
        """Every dead letter, oldest first: counted from the end, where new ones move none."""
        (count,) = lengths(self.broker, [keys.DEAD_LETTER])
        oldest = count if isinstance(count, int) else 0
        for last in range(-1, -oldest - 1, -AT_ONCE):
            yield from reversed(self.broker.call("LRANGE", keys.DEAD_LETTER, last - AT_ONCE + 1, last))

    def erase_letter(self, raw: bytes) -> None:
        self.broker.call("LREM", keys.DEAD_LETTER, -1, raw)

    # Gateways.

    def beat(self, said: Mapping[str, Any], *, leaving: bool = False) -> None:
        self._run("beat", [keys.GATEWAYS, keys.RAGS], self.gateway, _json(said), int(leaving))

    def take_over(self) -> tuple[int, int]:
        """How many messages and jobs of silent gateways are this one's now."""
        silence = int(SILENT_S * 1000)
        prefix = keys.processing_key("", 0).rpartition(":0")[0].removesuffix(":") + ":"
        priorities = keys.PRIORITIES.values()
        asked = (self.gateway, self._house, silence, prefix, *priorities)
        messages, jobs = self._run("take_over", [keys.GATEWAYS, keys.OPEN], *asked)
        return messages, jobs

    def _run(self, name: str, named: Sequence[str], *arguments: Any) -> Any:
        return _run(self.broker, name, named, *arguments)


def lengths(broker: Broker, named: Sequence[str]) -> list[int | str]:
    """The length of each list, or the Redis type of what stands in its place."""
    found = _run(broker, "lengths", named)
    return [one if isinstance(one, int) else one.decode() for one in found]


def _run(broker: Broker, name: str, named: Sequence[str], *arguments: Any) -> Any:
    return broker.call("EVAL", _script(name), len(named), *named, *arguments)


@cache
def _script(name: str) -> str:
    folder = files(__package__).joinpath("scripts")
    parts = (folder.joinpath(f"{one}.lua").read_text(encoding="utf-8") for one in ("prelude", name))
    named = ", ".join(f"'{field}'" for field in STATUS_FIELDS)
    return f"local STATUS_FIELDS = {{ {named} }}\n" + "".join(parts)


def _away_ms(away_s: float) -> int:
    """A gateway that beats is there, however short the time is."""
    return int(max(away_s, SILENT_S) * 1000)


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "surrogateescape")


def _flat(fields: Fields) -> list[str]:
    return [text for pair in fields.items() for text in pair]


def _json(value: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(value)


def _expires() -> str:
    return clock.format_time(clock.now() + timedelta(seconds=keys.KEPT_S))
