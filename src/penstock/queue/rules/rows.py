"""Rows of an engine inside one transaction, as the rules use them, and the rules of a claim and a pause.

``addition``, ``settlement`` and ``held_jobs`` decide over ``Rows``, so each rule is written once. An engine
supplies the rows, the transaction, and a fast path for plain ends (``finish``), where one statement replaces
three.

A pause starts as ``PAUSED``. A resume turns it into ``GATHERING``: rows of its scope that can still be
claimed are held back as well, in batches, so that none of them runs before an older one that a claim has held
back. Then it is ``RELEASING``: the rows go back in the order of priority, created_at and queue_id, with new
turns, so that the tenant neither loses its order nor passes the others. Rows added meanwhile are held back
when they are added. A stop at any point loses nothing: the state and the place reached are in the store. A
pause of everything holds back no row: a claim then reads and takes no rows.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Generic, Protocol, TypeAlias, TypeVar

import msgspec

from penstock.errors import InvalidText
from penstock.queue import transitions
from penstock.queue.job import (
    RETURNED,
    SUSPECT,
    Changes,
    Claim,
    ClaimRequest,
    Held,
    Job,
    JobQuery,
    NewJob,
    Scope,
    Settlement,
    Status,
)
from penstock.queue.limits import Limit

ROUNDS = 4
"""Times that one transaction of a claim reads candidates. The choice depends on the number of rows seen at
once, so every engine reads as many: the limit at first, then ``HELD_BACK_AT_ONCE``."""

HELD_BACK_AT_ONCE = 1_000
"""Rows read in a round after one that held rows back."""

DUE_AT_ONCE = 1_000
"""Due rows that one claim promotes, or its limit if that is more; the next claims promote the rest."""


class Candidate(msgspec.Struct, frozen=True):
    """A row for which the engine has not read the whole job; ``row`` is the engine's handle."""

    row: int | str
    turn: int
    lock_key: str | None
    lock_held: bool
    tenant_id: str
    collection: str


C = TypeVar("C", Candidate, Job)


class Chosen(msgspec.Struct, Generic[C], frozen=True):
    """Rows to take, and rows to hold back with the reason."""

    take: list[C]
    hold: list[tuple[C, Held]]
    closed: bool
    """No more rows may join this claim: the claim is full, or the next row is a crash suspect."""


Choice: TypeAlias = Chosen[Candidate]


def choose(
    candidates: Sequence[C], room: int, *, first: bool, locked: Collection[str], paused: Collection[Scope]
) -> Chosen[C]:
    """Choose rows. ``first``: nothing was taken yet. ``locked``: keys held by others or by this claim."""
    if not paused and _all_free(candidates, locked) and len(candidates) <= room:
        return Chosen(list(candidates), [], len(candidates) == room)
    take: list[C] = []
    hold: list[tuple[C, Held]] = []
    mine: set[str] = set()
    for candidate in candidates:
        if len(take) == room:
            return Chosen(take, hold, True)
        key = candidate.lock_key
        if paused and any(scope.covers(candidate.tenant_id, candidate.collection) for scope in paused):
            hold.append((candidate, Held.PAUSE))
            continue
        if key is not None and not candidate.lock_held and (key in mine or key in locked):
            hold.append((candidate, Held.LOCK))
            continue
        if candidate.turn == SUSPECT:
            # A crash suspect is claimed alone: it may take its process down.
            if first and not take:
                return Chosen([candidate], hold, True)
            return Chosen(take, hold, True)
        take.append(candidate)
        if key is not None:
            mine.add(key)
    return Chosen(take, hold, len(take) == room)


def _all_free(candidates: Sequence[Candidate] | Sequence[Job], locked: Collection[str]) -> bool:
    """Check whether nothing but a pause keeps rows from one claim: usual, and cheaper than row by row."""
    keys = [candidate.lock_key for candidate in candidates if candidate.lock_key is not None]
    return (
        len(set(keys)) == len(keys)
        and not [key for key in keys if key in locked]
        and SUSPECT not in [candidate.turn for candidate in candidates]
    )


EVERYTHING = Scope()

ABOVE_ALL = 11
"""A priority above that of every row."""

MOVED_AT_ONCE = 1_000
"""Rows read by one transaction of a resume."""

RESUME_STEPS = 3
"""Batches that one call of ``resume`` moves itself; claims and upkeep move the others."""


class PauseState(enum.StrEnum):
    """Phase of a pause, from ``pause`` to the end of ``resume``."""

    PAUSED = "paused"
    GATHERING = "gathering"
    RELEASING = "releasing"


class ClaimPosition(msgspec.Struct, frozen=True, array_like=True):
    """A position in the claim order, with or without a row."""

    priority: int
    turn: int
    created_at: datetime
    queue_id: str

    @property
    def key(self) -> tuple[int, int, datetime, str]:
        return (-self.priority, self.turn, self.created_at, self.queue_id)


class Pause(msgspec.Struct, frozen=True, omit_defaults=True):
    """A paused scope, and (``at``) the position of the resume."""

    scope: Scope
    phase: PauseState = PauseState.PAUSED
    at: ClaimPosition | None = None

    @property
    def order(self) -> tuple[str, str]:
        return (self.scope.tenant_id, self.scope.collection)

    def covers(self, tenant_id: str, collection: str) -> bool:
        return self.scope != EVERYTHING and self.scope.covers(tenant_id, collection)

    def passed(self, place: ClaimPosition) -> bool:
        """Check whether the release has passed this position."""
        return self.phase is PauseState.RELEASING and self.at is not None and place.key <= self.at.key


class RowPosition(msgspec.Struct, frozen=True):
    """Columns of a claimable row which a resume reads before the lock."""

    queue_id: str
    tenant_id: str
    collection: str
    priority: int
    turn: int
    created_at: datetime


def place_of(row: Job | RowPosition) -> ClaimPosition:
    return ClaimPosition(row.priority, row.turn, row.created_at, row.queue_id)


def everything_paused(pauses: Iterable[Pause]) -> bool:
    """Check whether everything is paused."""
    return any(pause.scope == EVERYTHING for pause in pauses)


def held_scopes(pauses: Iterable[Pause]) -> frozenset[Scope]:
    """Return the scopes of rows held back by a claim."""
    return frozenset(
        pause.scope
        for pause in pauses
        if pause.phase is not PauseState.RELEASING and pause.scope != EVERYTHING
    )


def paused_scopes(pauses: Iterable[Pause]) -> frozenset[Scope]:
    return frozenset(pause.scope for pause in pauses if pause.phase is PauseState.PAUSED)


def active_resume(pauses: Iterable[Pause]) -> Pause | None:
    """Return the resume to advance, if any: one at a time."""
    return min(
        (pause for pause in pauses if pause.phase is not PauseState.PAUSED),
        key=lambda pause: pause.order,
        default=None,
    )


def is_kept(job: Job, pauses: Iterable[Pause]) -> bool:
    """Check whether a pause holds the row back, or has a resume before this position."""
    place = place_of(job)
    return any(pause.covers(job.tenant_id, job.collection) and not pause.passed(place) for pause in pauses)


def freed(job: Job) -> Changes:
    """Return the changes which make a held row claimable, after the other rows of the tenant."""
    changes: Changes = {"held": None}
    if job.turn >= 0:
        changes["turn"] = None
    return changes


class ChildCount(msgspec.Struct, frozen=True):
    """Children of one run of a parent."""

    total: int
    open: int
    failed: int


class Finished(msgspec.Struct, frozen=True):
    """Result of ``finish``."""

    over: Sequence[bool]
    """One for each claim. False: take the general path."""
    freed: Collection[str] = ()
    """Locks that became free, for which rows may be parked."""
    parents: Sequence[tuple[str, int | None, str | None]] = ()
    """Parent, run and the child's result, once for each ended child."""


class Rows(Protocol):
    """Methods of rows for the rules."""

    def get(self, queue_id: str) -> Job | None:
        """Read and lock a row: no other transaction changes the row before this one ends."""

    def peek(self, queue_id: str) -> Job | None:
        """Read a row without a lock."""

    def lock_rows(self, ids: Collection[str]) -> None:
        """Lock rows at once and in one order, on engines with row locks. ``get`` follows."""

    def live(self, tenant_id: str, branch: str, key: str) -> Job | None:
        """Return the live top-level row with this key, if any."""

    def refuse_taken(self, new: Sequence[NewJob], parent: Job | None = None) -> None:
        """Raise ``DuplicateId`` before the first write, on engines without undo of ``try_insert``.

        Existing children of the parent's run are no duplicates: an expansion may be sent twice.
        """

    def try_insert(self, job: Job) -> bool:
        """Insert a row. False, and nothing written, if the key is live or known to the parent's run.

        Raises ``DuplicateId`` when the id is taken.
        """

    def insert(self, job: Job) -> None:
        """Insert a whole row in any status. The rules have checked id, key and lock."""

    def change(self, job: Job, changes: Changes) -> Job: ...

    def finish(self, settlements: Sequence[Settlement], now: datetime) -> Finished:
        """End plain claims as done: without follow-up or children. The caller counts their parents."""

    def backlog(self, *, functions: bool, tenant_id: str | None, cap: int) -> int:
        """Count pending top-level rows of functions, or of all other types, up to ``cap``."""

    def keyed_backlog(self, key: str, cap: int) -> int:
        """Count pending top-level rows with a backlog key, up to ``cap``."""

    def head_turn(self, priority: int) -> int | None:
        """Return the smallest turn >= 0 of the claimable rows."""

    def last_turn(self, tenant_id: str, priority: int) -> int | None:
        """Return the largest turn of a tenant's pending rows of this priority, held rows included."""

    def lock_holder(self, lock_key: str) -> str | None:
        """Return the id of the lock's holder."""

    def first_parked(self, lock_keys: Collection[str]) -> Sequence[Job]:
        """List the first row parked for each free lock.

        Not while an earlier row of the lock is claimable and has a turn below zero: both would have the
        same turn, and their ids might decide. An engine with concurrent writers also omits the row while an
        earlier row of its tenant and priority is claimable.
        """

    def parked_rows(self, scope: Scope, limit: int) -> Sequence[Job | None]:
        """Parked rows of a scope, by lock, then in claim order; None for a row locked by others."""

    def children(self, parent: Job, statuses: Collection[Status], limit: int) -> list[Job]:
        """List children of the current run in id order; running ones only without a cancel request."""

    def has_child(self, parent: Job, key: str) -> bool:
        """Check whether the current run of a parent has a child with this key."""

    def child_count(self, parent: Job) -> ChildCount: ...

    def dependents(self, queue_id: str, after: str, limit: int) -> Sequence[Job]:
        """List and lock rows that are held for this one, with larger ids than ``after``, in id order."""

    def statuses(self, ids: Sequence[str]) -> Mapping[str, Status]:
        """Read the statuses of the existing rows among these."""

    def awaited_rows(self, after: str, limit: int) -> Sequence[str]:
        """List rows, existing or not, for which others are held, with larger ids than ``after``."""

    limit_keys: set[str]
    """Keys of limits for which rows gave up a slot, or began to wait, in this transaction."""

    limited_locks: set[str]
    """Locks whose next row now waits for its limit instead of taking the lock, in this transaction."""

    def limit(self, key: str) -> Limit | None:
        """Read and lock the limit of a key."""

    def all_limits(self) -> Sequence[Limit]: ...

    def set_limit(self, limit: Limit) -> None: ...

    def drop_limit(self, key: str) -> bool:
        """Remove the limit of a key; False for a key without one."""

    def slots(self, key: str, most: int, most_unclaimed: int, until: datetime) -> tuple[int, int]:
        """Count rows of a key with a slot up to ``most``, and the unclaimed ones up to ``most_unclaimed``.

        Only unclaimed rows with a start up to ``until``: others are from before the clock was set back.
        """

    def limited_rows(self, key: str, number: int) -> Sequence[Job]:
        """List and lock the first rows held for a limit, in claim order; not rows locked by others."""

    def unclaimed_rows(self, key: str, number: int) -> Sequence[Job]:
        """List and lock pending rows of a key with a slot, in any order; not rows locked by others."""

    def limited_keys(self, after: str, number: int) -> Sequence[str]:
        """List keys after ``after`` for which rows are held, in order."""

    def due_results(self, now: datetime, limit: int) -> list[str]:
        """List ended rows whose results have to be removed at this time."""

    def drop_due_results(self, ids: Sequence[str], now: datetime) -> None:
        """Delete the due times of these rows' results, up to this time."""

    def seen_pauses(self) -> Sequence[Pause]:
        """List all pauses without a lock: another transaction may change them meanwhile."""

    def pauses(self, *, to_change: bool = False) -> Sequence[Pause]:
        """List all pauses. No other transaction changes them before this one ends."""

    def may_move(self) -> bool:
        """Check whether this transaction may advance a resume; False while another does."""

    def set_pause(self, pause: Pause) -> None:
        """Write the state of a new or existing pause."""

    def drop_pause(self, scope: Scope) -> None: ...

    def paused_rows(self, limit: int, after: ClaimPosition | None) -> list[Job]:
        """List rows held by a pause after this position, in claim order."""

    def claimable_rows(self, limit: int, after: ClaimPosition | None) -> Sequence[RowPosition | Job]:
        """List claimable rows after this position, in claim order, without locks."""

    def idle_locks(self, limit: int) -> Sequence[str]:
        """List free keys with parked rows and without a claimable row."""

    def doubtful_parents(self, limit: int) -> Sequence[Job]:
        """List waiting parents with a cancel request, without open children, or with wrong counts."""

    def ended_trees(
        self, ended_before: Mapping[Status, datetime], item_type: str | None, limit: int
    ) -> Sequence[Job]:
        """List top-level rows (of one item type, or all) ended before the time of their status.

        Oldest end first, without a live descendant.
        """

    def tree(self, root_id: str, limit: int) -> list[str]:
        """List the ids of a tree, descendants first and the root last."""

    def delete(self, ids: Sequence[str]) -> None: ...


def storable(values: Iterable[object]) -> bool:
    """Check whether a row can hold these values. A database refuses even a search for other text."""
    try:
        return not any(b"\0" in value.encode() for value in values if isinstance(value, str))
    except UnicodeEncodeError:
        return False


def page(query: JobQuery, jobs: Iterable[Job]) -> list[Job]:
    """Order matching jobs, and take those after the position of the query, up to its limit."""
    ordered = sorted(jobs, key=lambda job: job.queue_id, reverse=query.newest_first)
    after = query.after
    if query.by_priority:
        ordered.sort(key=lambda job: -job.priority)
    if after is None:
        return ordered[: query.limit]

    def comes_later(job: Job) -> bool:
        if query.by_priority and job.priority != query.after_priority:
            return job.priority < (query.after_priority or 0)
        return bool(job.queue_id < after if query.newest_first else job.queue_id > after)

    return [job for job in ordered if comes_later(job)][: query.limit]


def searched_texts(text: str) -> tuple[str, str]:
    """A searched text in the form of names and messages, and in the form of payloads; ASCII in lower case."""
    return _small(text), _small(msgspec.json.encode(text).decode()[1:-1])


def contains(job: Job, text: str) -> bool:
    """Check whether the id, the payload or the message of a job has the text."""
    plain, quoted = searched_texts(text)
    found = plain in _small(job.queue_id) or plain in _small(job.error_message or "")
    return found or quoted in _small(job.payload_json)


def _small(text: str) -> str:
    """Lower case of ASCII letters only: the same in every engine."""
    return text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")


def refuse_unstorable(new: Sequence[NewJob] | Sequence[Job]) -> None:
    """Refuse text which at least one engine cannot store."""
    whole = bool(new) and isinstance(new[0], Job)
    for item in new:
        names = (item.queue_id, item.tenant_id, item.collection, item.branch, item.idempotency_key)
        text = "".join((*names, item.submitted_by, item.lock_key or "", item.metadata, item.payload_json))
        if item.limit_key is not None or item.backlog_key is not None:
            text += f"{item.limit_key or ''}{item.backlog_key or ''}"
        if whole and isinstance(item, Job):
            text += "".join(filter(None, (item.error_code, item.error_message, item.result_json)))
        if "\0" in text:
            raise InvalidText(f"job {item.queue_id!r} holds a NUL character")
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InvalidText(f"job {item.queue_id!r} holds a lone surrogate") from None


def wake(rows: Rows, lock_keys: Collection[str], now: datetime) -> int:
    """Make the first row parked for each free lock claimable. Returns the count."""
    parked = rows.first_parked(lock_keys)
    for job in parked:
        turn = SUSPECT if job.turn == SUSPECT else RETURNED
        after = rows.change(job, {"held": None, "turn": turn, "updated_at": now})
        if after.held is Held.LIMIT and after.lock_key is not None:
            rows.limited_locks.add(after.lock_key)
    return len(parked)


FIRST_PAGE = 200
LARGEST_PAGE = 100_000


def pages() -> Iterator[tuple[int, int]]:
    """Yield start and size of growing pages.

    A queue with few locks is read with few queries, one with many locks is answered by the first.
    """
    start, size = 0, FIRST_PAGE
    while True:
        yield start, size
        start, size = start + size, min(8 * size, LARGEST_PAGE)


class NextJob(msgspec.Struct, frozen=True):
    """A row considered by a claim. Rows waiting for a held lock are left out."""

    queue_id: str
    lock_key: str | None
    tenant_id: str
    collection: str


def first_of_each_lock(
    pages: Iterable[Sequence[NextJob | Job]], limit: int, pauses: Collection[Pause]
) -> list[str]:
    """List ids in claim order: the first of each lock key, and no paused rows."""
    if everything_paused(pauses):
        return []
    paused = held_scopes(pauses)
    found: dict[str, None] = {}
    locks: set[str] = set()
    for page in pages:
        for row in page:
            if row.lock_key in locks or any(scope.covers(row.tenant_id, row.collection) for scope in paused):
                continue
            if row.lock_key is not None:
                locks.add(row.lock_key)
            found[row.queue_id] = None
            if len(found) == limit:
                return list(found)
    return list(found)


def start(rows: Rows, queue_id: str, request: ClaimRequest, now: datetime) -> Claim | None:
    """Claim one pending job at any position.

    None when the job is not pending, or a pause, a limit or a lock prevents the start.
    """
    # Before any row is locked: a resume locks pauses first, too.
    pauses = rows.pauses()
    job = rows.get(queue_id)
    if job is None or job.status is not Status.PENDING or job.held in (Held.PAUSE, Held.AFTER):
        return None
    if job.limit_key is not None and (job.held is not None or job.limit_at is None):
        return None
    if everything_paused(pauses) or any(
        scope.covers(job.tenant_id, job.collection) for scope in held_scopes(pauses)
    ):
        return None
    if job.lock_key is not None and not job.lock_held and rows.lock_holder(job.lock_key):
        return None
    return claim_of(rows.change(job, transitions.started(job, request, now)))


def claim_of(job: Job) -> Claim:
    return msgspec.convert(job, Claim, from_attributes=True)
