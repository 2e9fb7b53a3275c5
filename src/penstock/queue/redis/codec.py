"""Encoding of rows: Python values to the layouts of scripts/keys.lua, and back."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from penstock.errors import QueueFull
from penstock.queue.job import (
    Claim,
    ClaimRequest,
    Held,
    Job,
    JobEvent,
    NewJob,
    QueueLimits,
    Settlement,
    Status,
    failure_reason,
)
from penstock.queue.rules.rows import refuse_unstorable, storable
from penstock.queue.transitions import NOTE_LIMIT, FollowUp

STATUSES = tuple(Status)
"""A status is stored as its position here, counted from 1."""
HELD = (None, *Held)
NUMBER_OF = {status: number for number, status in enumerate(STATUSES, 1)}
HELD_NUMBER = {held: number for number, held in enumerate(HELD)}

_LONG_FIELDS = tuple("body meta next prog res hist err after awaited limit go bkey ttl".split())
FIELDS = ("id", "row", "kin", *_LONG_FIELDS)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_HEAD = struct.Struct(">2Bi4d")
_TAIL = struct.Struct(">4Bd5i6d")
_KIN = struct.Struct(">I")
_ZERO = ord("0")
# The values that a Claim has: claim number, lease; priority, run, retries, losses and so on.
_CLAIMED_HEAD = struct.Struct(">2xid24x")
_CLAIMED_TAIL = struct.Struct(">2xBx8x4x3i4x8x3d16x")

encode = msgspec.msgpack.Encoder().encode
_encode_json = msgspec.json.Encoder().encode


def micros(moment: datetime | None) -> int:
    """Return microseconds since 1970, 0 for None."""
    return 0 if moment is None else (moment - EPOCH) // _MICROSECOND


def moment(number: float) -> datetime | None:
    return EPOCH + timedelta(microseconds=number) if number else None


def duration(length: timedelta) -> int:
    return length // _MICROSECOND


def texts(raw: bytes) -> list[str]:
    """Split NUL-terminated texts."""
    return raw.decode().split("\0")


def new_job(new: NewJob) -> tuple[object, ...]:
    run_at = micros(new.run_at)
    settings = (new.op, new.priority, new.max_retries, new.timeout_s, run_at)
    row = (new.queue_id, _fixed_columns(new), *settings, new.payload_json, new.metadata)
    if new.plain:
        return row
    after = (new.after, new.run_after_failure) if new.after else False
    return (*row, after, new.limit_key or False, new.backlog_key or False, new.result_ttl_s or False)


def addition(new: Sequence[NewJob], limits: QueueLimits) -> tuple[object, ...]:
    """Encode jobs for additions.lua, with the limits and tenants to count them for."""
    most = (limits.functions, limits.indexing, limits.per_tenant)
    limited = () if limits.per_tenant is None else (each for each in new if each.item_type != "function")
    tenants = sorted({each.tenant_id for each in limited})
    encoded = [-1 if each is None else each for each in most]
    return encoded, tenants, list(map(new_job, new)), _keyed_limits(limits)


def plain_addition(new: NewJob, limits: QueueLimits) -> tuple[object, ...] | None:
    """Encode one job for add_plain.lua, with the limits that count for it; None: only add.lua can add it."""
    if new.run_at or not new.plain or new.metadata != "{}":
        return None
    if new.item_type == "function":
        most, of_tenant = limits.functions, None
    else:
        most, of_tenant = limits.indexing, limits.per_tenant
    return new_job(new), -1 if most is None else most, -1 if of_tenant is None else of_tenant


def _fixed_columns(new: NewJob | Job) -> str:
    names = (
        new.item_type,
        new.lock_key or "",
        new.tenant_id,
        new.branch,
        new.idempotency_key,
        new.collection,
        new.submitted_by,
        "",
    )
    # As text: the MessagePack library of the server has no bytes.
    return ("\1" if new.dedupe else "\0") + "\0".join(names)


def whole_row(job: Job) -> tuple[object, ...]:
    """Encode all columns of a row for restore.lua."""
    long = {
        "body": job.payload_json,
        "meta": None if job.metadata == "{}" else job.metadata,
        "prog": job.progress_json,
        "res": job.result_json,
        "err": job.error_message,
        "after": job.after_json,
        "awaited": "1" if job.awaited else None,
        "limit": job.limit_key,
        "go": None if job.limit_at is None else str(micros(job.limit_at)),
        "bkey": job.backlog_key,
        "ttl": None if job.result_ttl_s is None else str(job.result_ttl_s),
    }
    fields = [part for name, value in long.items() if value is not None for part in (name, value)]
    kin = False if job.parent_id is None else (job.parent_run, job.parent_id, job.root_id)
    following = _packed_followup(job.followup_json)
    history = [
        (micros(event.at), event.what, event.note or "", event.worker_id or "") for event in job.history
    ]
    more = int(len(fields) > 2 or bool(kin or following or history))
    return job.queue_id, _fixed_columns(job), _state(job, more), kin, fields, following, history or False


def _state(job: Job, more: int) -> list[object]:
    """The values of ``STATE`` in keys.lua, in the same order."""
    times = (job.lease_until, job.updated_at, job.started_at, job.finished_at)
    flags = (HELD_NUMBER[job.held], int(job.cancel_requested), job.priority, more)
    return [
        *(NUMBER_OF[job.status], int(job.lock_held), job.claim_number, *map(micros, times)),
        *(job.worker_id or "", job.error_code or "", *flags, job.turn, job.children_open, job.run),
        *(job.retry_count, job.lost_count, job.children_failed, job.total_chunks, job.max_retries),
        *(job.timeout_s, micros(job.created_at), micros(job.run_at), micros(job.last_error_at)),
        *(job.op, job.waiting_for or ""),
    ]


def _packed_followup(text: str | None) -> list[object] | bool:
    if text is None:
        return False
    following = msgspec.json.decode(text, type=FollowUp)
    return [*msgspec.structs.astuple(following)[:-1], micros(following.run_at)]


def _is_plain_end(each: Settlement) -> bool:
    return each.status is Status.DONE and not each.children and each.error_code is None


def _long_settlement(each: Settlement) -> tuple[object, ...]:
    message = each.error_message
    optional = (
        each.error_code,
        message,
        message[:NOTE_LIMIT] if message else None,
        each.result_json,
        each.progress_json,
    )
    return (
        each.queue_id,
        each.claim_number,
        NUMBER_OF[each.status],
        each.what,
        each.retry_count,
        each.lost_count,
        duration(each.delay),
        each.waiting_for or False,
        each.keep_lease,
        *(False if value is None else value for value in optional),
        [new_job(child) for child in each.children],
    )


def claims(answer: Sequence[Any]) -> list[Claim]:
    """Decode the claims returned by claims.lua: id, fixed columns, row, body and optional fields of each."""
    at, end = 5, len(answer)
    moments: dict[float, Any] = {}
    made = []
    unpack_head, unpack_tail, head_size, tail_size = (
        _CLAIMED_HEAD.unpack_from,
        _CLAIMED_TAIL.unpack_from,
        _HEAD.size,
        _TAIL.size,
    )
    # Inlined: every function call in this loop is paid once per job.
    while at < end:
        queue_id, who, state, body, more = answer[at : at + 5]
        at += 5
        claim_number, lease = unpack_head(state)
        tail = state.index(b"\0", state.index(b"\0", head_size) + 1) + 1
        priority, run, retries, lost, max_retries, timeout_s, created = unpack_tail(state, tail)
        op_at = tail + tail_size
        item_type, lock_key, tenant_id, branch, _, collection, submitted_by, _ = who[1:].decode().split("\0")
        queue_id = queue_id.decode()
        if more is None:
            parent_id, root_id, metadata, progress = None, queue_id, "{}", None
        else:
            parent_id, root_id, metadata, progress = _optional_fields(queue_id, *answer[at : at + 3])
            at += 3
        if created not in moments:
            moments[created] = moment(created)
        if lease not in moments:
            moments[lease] = moment(lease)
        made.append(
            Claim(
                queue_id,
                claim_number,
                item_type,
                state[op_at : state.index(b"\0", op_at)].decode(),
                tenant_id,
                collection,
                branch,
                priority,
                run,
                retries,
                int(max_retries),
                lost,
                int(timeout_s),
                submitted_by,
                lock_key or None,
                parent_id,
                root_id,
                progress,
                metadata,
                body.decode(),
                moments[created],
                moments[lease],
            )
        )
    return made


def _optional_fields(
    queue_id: str, kin: bytes | None, metadata: bytes | None, progress: bytes | None
) -> tuple[str | None, str, str, str | None]:
    """Decode parent, root, metadata and progress of a job with optional fields."""
    parent_id, root_id = (None, queue_id) if kin is None else texts(kin[_KIN.size :])[:2]
    return parent_id, root_id, _text(metadata) or "{}", _text(progress)


def job(queue_id: str, fields: Mapping[str, bytes | None]) -> Job | None:
    """Decode a row's hash; None for a missing row."""
    who, state, kin = fields["id"], fields["row"], fields["kin"]
    if who is None or state is None:
        return None
    head = _HEAD.unpack_from(state)
    worker_id, error_code = texts(state[_HEAD.size : (at := _tail_start(state))])[:2]
    tail = _TAIL.unpack_from(state, at)
    op, waiting_for, _ = texts(state[at + _TAIL.size :])
    item_type, lock_key, tenant_id, branch, key, collection, submitted_by, _ = texts(who[1:])
    parent_run = None if kin is None else _KIN.unpack_from(kin)[0]
    parent_id, root_id, metadata, progress = _optional_fields(queue_id, kin, fields["meta"], fields["prog"])
    return Job(
        queue_id=queue_id,
        item_type=item_type,
        op=op,
        tenant_id=tenant_id,
        collection=collection,
        branch=branch,
        priority=tail[2],
        status=STATUSES[head[0] - 1],
        created_at=EPOCH + timedelta(microseconds=tail[13]),
        updated_at=EPOCH + timedelta(microseconds=head[4]),
        idempotency_key=key,
        dedupe=who[0] == 1,
        retry_count=tail[7],
        max_retries=int(tail[11]),
        timeout_s=int(tail[12]),
        submitted_by=submitted_by,
        run=tail[6],
        claim_number=head[2],
        turn=int(tail[4]),
        held=HELD[tail[0]],
        run_at=moment(tail[14]),
        lock_key=lock_key or None,
        lock_held=head[1] == 1,
        lease_until=moment(head[3]),
        worker_id=worker_id or None,
        started_at=moment(head[5]),
        finished_at=moment(head[6]),
        parent_id=parent_id,
        parent_run=parent_run,
        root_id=root_id,
        waiting_for=waiting_for or None,
        cancel_requested=tail[1] == 1,
        lost_count=tail[8],
        children_open=tail[5],
        children_failed=tail[9],
        total_chunks=int(tail[10]),
        error_code=error_code or None,
        error_reason=_reason(head[0], error_code, fields["err"]),
        last_error_at=moment(tail[15]),
        metadata=metadata,
        progress_json=progress,
        **_long_columns(fields),
    )


def _long_columns(fields: Mapping[str, bytes | None]) -> dict[str, Any]:
    return {
        "awaited": fields["awaited"] is not None,
        "limit_key": _text(fields["limit"]),
        "limit_at": moment(int(fields["go"] or 0)),
        "backlog_key": _text(fields["bkey"]),
        "result_ttl_s": int(ttl) if (ttl := fields["ttl"]) is not None else None,
        "error_message": _text(fields["err"]),
        "after_json": _text(fields["after"]),
        "payload_json": _text(fields["body"]) or "",
        "followup_json": _followup(fields["next"]),
        "result_json": _text(fields["res"]),
        "history_json": _history(fields["hist"]),
    }


def _reason(status: int, error_code: str, message: bytes | None) -> str | None:
    """The reason of a failed job, computed: the scripts store no index of reasons."""
    failed = STATUSES[status - 1] is Status.FAILED
    return failure_reason(error_code or None, _text(message)) if failed else None


def _tail_start(state: bytes) -> int:
    """Return the offset of the second group of numbers, after two texts."""
    return state.index(b"\0", state.index(b"\0", _HEAD.size) + 1) + 1


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()


def _followup(raw: bytes | None) -> str | None:
    if raw is None:
        return None
    values = msgspec.msgpack.decode(raw)
    names = FollowUp.__struct_fields__
    following = FollowUp(**dict(zip(names, [*values[:-1], moment(values[-1])], strict=True)))
    return _encode_json(following).decode()


def _history(raw: bytes | None) -> str | None:
    if raw is None:
        return None
    events = [
        JobEvent(EPOCH + timedelta(microseconds=int(at)), what, note or None, worker_id or None)
        for at, what, note, worker_id in msgspec.msgpack.decode(raw)
    ]
    return _encode_json(events).decode()


def claim_request(request: ClaimRequest) -> tuple[object, ...]:
    leases = {item_type: duration(lease) for item_type, lease in request.lease_by_type.items()}
    return request.worker_id, request.limit, duration(request.lease), request.oldest, leases


def _keyed_limits(limits: QueueLimits) -> list[object]:
    return [part for key in sorted(limits.by_key) for part in (key, limits.by_key[key])]


def queue_full(pending: int, key: bytes | None = None) -> QueueFull:
    """The error of add.lua; ``key``: of a function with a separate limit."""
    return QueueFull(pending, function=_text(key))


def statuses(digits: bytes) -> list[Status | None]:
    return [status(digit - _ZERO) for digit in digits]


def status(number: int) -> Status | None:
    return STATUSES[number - 1] if number else None


def settlements(given: Sequence[Settlement]) -> tuple[object, ...]:
    """Encode settlements as columns: ids, claim numbers, results, and by position all but plain ends."""
    long = {}
    for at, each in enumerate(given, 1):
        if not _is_plain_end(each):
            refuse_unstorable(each.children)
            long[at] = _long_settlement(each)
    results = [False if each.result_json is None else each.result_json for each in given]
    return [each.queue_id for each in given], [each.claim_number for each in given], results, long


def storable_ids(ids: Sequence[str]) -> list[str]:
    """Replace unstorable ids by the empty id, which no job has."""
    return [queue_id if storable([queue_id]) else "" for queue_id in ids]
