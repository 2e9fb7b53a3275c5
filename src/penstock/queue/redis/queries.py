"""Queries: read ids from the narrowest index, then rows, a bounded number at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from heapq import merge
from itertools import chain, islice
from typing import Any

import msgspec

from penstock.failure_reasons import FailureGroups, group_failures
from penstock.job import Held, Job, JobQuery, Position, Scope, Status
from penstock.queue.protocol import POSITION_CAP
from penstock.queue.redis import codec
from penstock.queue.redis.server import Server
from penstock.queue.rules.next_jobs import FIRST_PAGE, NextJob
from penstock.queue.rules.pauses import Pause, PauseState
from penstock.queue.rules.rows import page, searched_texts
from penstock.row_counts import Class

PAGE = 1_000
"""Rows read by one call, which takes the server some milliseconds."""

SMALL_INDEX = 10_000
"""Largest size of an index in another order than that of ids; it is read whole, and not used above."""

MOST_FAILURES = 20_000
"""Failed rows that are grouped by reason."""

_STATUS_INDEXES = {
    Status.PENDING: "live",
    Status.IN_PROGRESS: "live",
    Status.DONE: "all",
    Status.FAILED: "failed",
    Status.CANCELLED: "cancelled",
}
_EQUAL = (
    "item_type op tenant_id collection branch worker_id lock_key limit_key idempotency_key parent_id root_id "
    "waiting_for top_level error_code"
).split()
_COUNTED = ("status", "held", "item_type")
"""Columns of the counters, in their order."""


def find(server: Server, query: JobQuery) -> list[Job]:
    if query.by_priority:
        everything = msgspec.structs.replace(query, by_priority=False, after=None, after_priority=None)
        return page(query, chain.from_iterable(_matching(server, everything)))
    found: list[Job] = []
    for jobs in _matching(server, query, query.limit):
        found += jobs
        if len(found) >= query.limit:
            break
    return found[: query.limit]


def _matching(server: Server, query: JobQuery, limit: int | None = None) -> Iterator[list[Job]]:
    """Yield matching rows by pages of ids, up to ``limit`` of each page: a row costs much more than its id.
    The scripts do not know reasons: those are compared here."""
    filters = _filters(query)
    reason = query.error_reason
    size = PAGE if filters or reason is not None or query.by_priority else min(PAGE, query.limit)
    most = size if limit is None or reason is not None else min(size, limit)
    for ids in _pages(server, query, size):
        jobs = _rows(server, filters, ids, most)
        yield jobs if reason is None else [job for job in jobs if job.error_reason == reason]


def failures(server: Server, query: JobQuery, now: datetime, limit: int) -> FailureGroups:
    """Group the newest failed rows. There is no index of reasons, so a bounded number is read."""
    failed = msgspec.structs.replace(
        query, statuses=frozenset({Status.FAILED}), newest_first=True, after=None, by_priority=False
    )
    rows = chain.from_iterable(_matching(server, failed))
    jobs = [job for job in islice(rows, MOST_FAILURES + 1) if job.error_reason is not None]
    times = ((job.error_reason or "", job.queue_id, job.last_error_at or job.updated_at) for job in jobs)
    return group_failures(times, now, limit)._replace(exact=len(jobs) <= MOST_FAILURES)


def count(
    server: Server, query: JobQuery, by: Sequence[str], cap: int | None = None
) -> dict[tuple[Any, ...], int]:
    if query.error_reason is not None:
        everything = msgspec.structs.replace(query, after=None, newest_first=False, by_priority=False)
        jobs = chain.from_iterable(_matching(server, everything))
        return dict(Counter(tuple(getattr(job, name) for name in by) for job in jobs))
    filters = _filters(query)
    if set(by) <= set(_COUNTED) and filters.keys() <= {"statuses", "held", "item_type"} and not query.prefix:
        return _count_classes(server, filters, by)
    everything = msgspec.structs.replace(query, after=None, newest_first=False)
    counts: Counter[tuple[Any, ...]] = Counter()
    for ids in _pages(server, everything, PAGE):
        answer = server.run("scan", codec.encode((filters, list(by), _texts(ids), 0)))
        for group, number in zip(answer[::2], answer[1::2], strict=True):
            counts[_column_values(by, msgspec.msgpack.decode(group))] += number
        if cap is not None and not by and counts[()] >= cap:
            break
    return dict(counts)


def read_rows(server: Server, ids: Sequence[str]) -> list[Job]:
    """Read the existing rows among these ids."""
    return _rows(server, {}, [queue_id.encode() for queue_id in ids], len(ids)) if ids else []


def upcoming(server: Server, item_type: str, now: int) -> Iterator[list[NextJob]]:
    """Yield due rows, then claimable rows in claim order, a page at a time."""
    first, due, size = 0, True, FIRST_PAGE
    while True:
        read, *rows = server.run("upcoming", codec.encode((item_type, first, size, due)), now)
        texts = [text.decode() for text in rows]
        yield [
            NextJob(texts[at], texts[at + 1] or None, texts[at + 2], texts[at + 3])
            for at in range(0, len(texts), 4)
        ]
        if not due:
            if read < size:
                return
            first, size = first + read, PAGE
        due = False


def expired(server: Server, now: int, limit: int) -> list[Job]:
    late = server.call("ZRANGEBYSCORE", server.key("lease"), "-inf", f"({now}", "LIMIT", 0, limit)
    jobs = _rows(server, {"statuses": {codec.NUMBER_OF[Status.IN_PROGRESS]: True}}, late, limit)
    # A lease may have been renewed in between.
    return [job for job in jobs if 0 < codec.micros(job.lease_until) < now]


def ended_roots(
    server: Server, ended_before: Mapping[Status, datetime], item_type: str | None, limit: int
) -> list[tuple[str, int, int]]:
    """List top-level rows without a live descendant, oldest end first: id, status, required end time."""
    found: list[tuple[float, bytes, int, int]] = []
    for status, before in ended_before.items():
        cut, number, at, mine = codec.micros(before), codec.NUMBER_OF[status], 0, 0
        key = server.key(f"ended:{status}")
        while mine < limit:
            batch = server.call(
                "ZRANGEBYSCORE", key, "-inf", f"({cut}", "WITHSCORES", "LIMIT", at, min(limit, PAGE)
            )
            roots = list(zip(batch[::2], map(float, batch[1::2]), strict=True))
            kept = _prunable(server, [queue_id for queue_id, _ in roots], item_type)
            found += [(score, queue_id, number, cut) for queue_id, score in roots if queue_id in kept]
            mine, at = mine + len(kept), at + len(roots)
            if len(roots) < min(limit, PAGE):
                break
    return [(queue_id.decode(), number, cut) for _, queue_id, number, cut in sorted(found)[:limit]]


def pauses(server: Server) -> list[Pause]:
    known = _pairs(server.call("HGETALL", server.key("pauses")))
    return [
        Pause(Scope(*scope.decode().split("\n")), PauseState(msgspec.msgpack.decode(state)[0]))
        for scope, state in known
    ]


def position(server: Server, queue_id: str) -> Position | None:
    """The position of a pending job, exact up to the bound of the protocol."""
    jobs_ahead, *found = server.run("position", queue_id)
    if jobs_ahead < 0:
        return None
    jobs, is_request, requests, ahead = found
    numbers = (ahead, requests if is_request else jobs, jobs_ahead)
    return Position(*(min(number, POSITION_CAP) for number in numbers))


def tally(server: Server) -> dict[Class, int]:
    counts: dict[Class, int] = {}
    for field, number in _pairs(server.call("HGETALL", server.key("counts"))):
        status, held, item_type = field.decode().split(":", 2)
        if int(number):
            counts[codec.STATUSES[int(status) - 1], codec.HELD[int(held)], item_type] = int(number)
    return counts


def _prunable(server: Server, ids: Sequence[bytes], item_type: str | None) -> set[bytes]:
    prefix = server.prefix.encode()
    request: list[tuple[Any, ...]] = []
    for each in ids:
        request += [("ZCOUNT", prefix + b"tree:" + each, 0, 0), ("HGET", prefix + b"job:" + each, "id")]
    answers = server.calls(request)
    return {
        queue_id
        for queue_id, alive, who in zip(ids, answers[::2], answers[1::2], strict=True)
        if not alive and who and (item_type is None or codec.texts(who[1:])[0] == item_type)
    }


def _filters(query: JobQuery) -> dict[str, Any]:
    named = {name: getattr(query, name) for name in _EQUAL}
    filters = {name: value for name, value in named.items() if value is not None}
    if query.waiting:
        filters["waiting"] = True
    if query.statuses:
        filters["statuses"] = {codec.NUMBER_OF[status]: True for status in query.statuses}
    if query.text is not None:
        filters["text"] = searched_texts(query.text)
    if query.held is not None:
        filters["held"] = codec.HELD_NUMBER[query.held]
    return filters


def _texts(ids: Sequence[bytes]) -> list[str]:
    return [queue_id.decode() for queue_id in ids]


def _rows(server: Server, filters: Mapping[str, Any], ids: Sequence[bytes], limit: int) -> list[Job]:
    if not ids:
        return []
    answer = server.run("scan", codec.encode((filters, "", _texts(ids), limit)))
    made = (
        codec.job(queue_id.decode(), dict(zip(codec.FIELDS, fields, strict=True)))
        for queue_id, fields in zip(answer[::2], answer[1::2], strict=True)
    )
    return [job for job in made if job is not None]


def _count_classes(
    server: Server, filters: Mapping[str, Any], by: Sequence[str]
) -> dict[tuple[Any, ...], int]:
    counts: Counter[tuple[Any, ...]] = Counter()
    answer = server.call("HGETALL", server.key("counts"))
    for field, number in _pairs(answer):
        status, held, item_type = field.decode().split(":", 2)
        values = {"status": int(status), "held": int(held), "item_type": item_type}
        wanted = (
            filters.get("statuses", {}).get(values["status"], not filters.get("statuses"))
            and filters.get("held", values["held"]) == values["held"]
            and filters.get("item_type", item_type) == item_type
        )
        if wanted and int(number):
            counts[_column_values(by, [values[name] for name in by])] += int(number)
    return dict(counts)


def _pairs(answer: Any) -> list[tuple[bytes, bytes]]:
    if isinstance(answer, dict):
        return list(answer.items())
    return list(zip(answer[::2], answer[1::2], strict=True))


def _column_values(by: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
    """Decode column values to the values of a job."""
    return tuple(_value(name, value) for name, value in zip(by, values, strict=True))


def _value(name: str, value: Any) -> Any:
    if name == "status":
        return codec.STATUSES[value - 1]
    if name == "held":
        return codec.HELD[value]
    return None if value == "" else value


# Pages of ids, in order.


def _pages(server: Server, query: JobQuery, size: int) -> Iterator[list[bytes]]:
    few = _small_index(server, query)
    if few is not None:
        ordered = sorted({each for each in few if _in_range(query, each)}, reverse=query.newest_first)
        yield from (ordered[at : at + size] for at in range(0, len(ordered), size))
        return
    homes = sorted({_STATUS_INDEXES[status] for status in query.statuses or {Status.DONE}})
    homes = ["all"] if "all" in homes else homes
    after = query.after
    while True:
        low, high = _bounds(query, after)
        verb, first, last = (
            ("ZREVRANGEBYLEX", high, low) if query.newest_first else ("ZRANGEBYLEX", low, high)
        )
        commands = [(verb, server.key(home), first, last, "LIMIT", 0, size) for home in homes]
        # Atomic: a row that moves from one index to the other in between must not be missed.
        found = server.run("commands", codec.encode(commands))
        page = list(merge(*found, reverse=query.newest_first))[:size]
        if page:
            yield page
        if len(page) < size:
            return
        after = page[-1].decode()


def _bounds(query: JobQuery, after: str | None) -> tuple[str, str]:
    prefix, last = query.prefix or "", (query.prefix or "") + "\U0010ffff"
    low, high = ("[" + prefix, "(" + last) if prefix else ("-", "+")
    if after is not None and query.newest_first and (not prefix or after < last):
        high = "(" + after
    if after is not None and not query.newest_first and after >= prefix:
        low = "(" + after
    return low, high


def _in_range(query: JobQuery, queue_id: bytes) -> bool:
    if query.prefix and not queue_id.startswith(query.prefix.encode()):
        return False
    if query.after is None:
        return True
    after = query.after.encode()
    return queue_id < after if query.newest_first else queue_id > after


def _small_index(server: Server, query: JobQuery) -> list[bytes] | None:
    """Read all candidate ids from one small index; None if no index is small enough."""
    if query.root_id is not None:
        return _read_indexes(server, [f"tree:{query.root_id}"], [query.root_id.encode()])
    if query.parent_id is not None:
        parents = read_rows(server, [query.parent_id])
        return _read_indexes(server, [f"tree:{parents[0].root_id}"]) if parents else []
    if query.held is Held.TIME:
        return _read_indexes(server, ["later"])
    if query.waiting:
        return _read_indexes(server, ["waiting"])
    if query.statuses == {Status.IN_PROGRESS}:
        return _read_indexes(server, ["lease", "waiting"])
    return None


def _read_indexes(server: Server, names: Sequence[str], others: Sequence[bytes] = ()) -> list[bytes] | None:
    keys = [server.key(name) for name in names]
    if sum(server.calls([("ZCARD", key) for key in keys])) > SMALL_INDEX:
        return None
    found = server.run("commands", codec.encode([("ZRANGE", key, 0, -1) for key in keys]))
    return [*others, *(each for ids in found for each in ids)]
