"""Schedules: jobs added by the clock, their timings, and the rules for due runs. Pure.

A schedule holds the next time at which it runs. A worker that finds it due adds the jobs under ids made of
the schedule and the time, then moves the schedule on if it is still the same version. So a job is added once,
however many hosts try, and after a crash between the two steps the second one is repeated.

A timing is an interval, or a cron expression with five fields: minute, hour, day of the month, month, day of
the week. It is read in a time zone, by the rules of Vixie cron:

- If both days are restricted (neither field starts with ``*``), a day that matches one of them counts.
- An expression with a fixed hour and minute names a time of day. A time that the clock skips in spring counts
  as the moment right after the gap; a time that happens twice in autumn counts once, the first time.
- An expression with ``*`` in its hour or minute names a rhythm. It follows the real time: nothing in the gap,
  and all minutes of the repeated hour.
"""

from __future__ import annotations

import enum
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock.errors import InvalidSchedule
from penstock.queue import payloads
from penstock.queue.job import NewJob

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


_LATE = timedelta(minutes=1)
"""A run later than this is a missed one."""
_MOST_CAUGHT_UP = 100
"""Missed runs that ``run-all`` catches up, the oldest first."""
SCHEDULE = "schedule"
"""In a job's metadata: the name of the schedule that added it."""
SCHEDULED_FOR = "scheduled_for"
"""In a job's metadata: the time that the schedule named."""


class Missed(enum.StrEnum):
    """Rule for runs that were missed, because no worker was there."""

    SKIP = "skip"
    RUN_ONCE = "run-once"
    RUN_ALL = "run-all"


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is added by the clock. ``version`` grows with every change."""

    tenant_id: str
    name: str
    schedule_id: str
    timing: str
    zone: str
    job: NewJob
    """The job to add; its id, key and times are replaced."""
    summary: str
    """Short description of the job."""
    missed: Missed = Missed.RUN_ONCE
    start_at: datetime
    """Time from which intervals are counted."""
    next_at: datetime | None
    """Time of the next run; None while paused."""
    paused: bool = False
    created_at: datetime
    last_at: datetime | None = None
    """Time of the last run, as the schedule named it."""
    last_job_id: str | None = None
    runs: int = 0
    skipped: int = 0
    """Missed runs that were not caught up: those of ``skip``, and all but one of ``run-once``."""
    version: int = 1

    def next_after(self, moment: datetime) -> datetime | None:
        timing, zone = parse(self.timing), zone_of(self.zone)
        return next_after(timing, moment, zone, start=self.start_at)

    def times_until(self, now: datetime) -> int:
        """Number of runs that are due."""
        if self.next_at is None or self.next_at > now:
            return 0
        timing, zone = parse(self.timing), zone_of(self.zone)
        return times_until(timing, self.next_at, now, zone, start=self.start_at)

    def upcoming(self, moment: datetime, count: int) -> list[datetime]:
        """The next times, of a paused schedule none."""
        found: list[datetime] = []
        current = self.next_at
        while current is not None and len(found) < count:
            found.append(current)
            current = self.next_after(max(current, moment) if not found[1:] else current)
        return found


class _Due(msgspec.Struct, frozen=True):
    """The jobs of a due schedule, and the schedule after it."""

    jobs: list[NewJob]
    after: Schedule


def due(schedule: Schedule, now: datetime) -> _Due | None:
    """Return the jobs that a schedule adds now; None before its time."""
    first = schedule.next_at
    if first is None or first > now:
        return None
    times = [first]
    if schedule.missed is Missed.SKIP and now - first > _LATE:
        times = []
    elif schedule.missed is Missed.RUN_ALL:
        times = _all_until(schedule, now)
    jobs = [job_at(schedule, moment) for moment in times]
    after = msgspec.structs.replace(
        schedule,
        next_at=schedule.next_after(now),
        last_at=times[-1] if times else schedule.last_at,
        last_job_id=jobs[-1].queue_id if jobs else schedule.last_job_id,
        runs=schedule.runs + len(times),
        skipped=schedule.skipped + max(schedule.times_until(now) - len(times), 0),
        version=schedule.version + 1,
    )
    return _Due(jobs, after)


def skipped(schedule: Schedule, now: datetime) -> Schedule:
    """The schedule moved on to its next time without a run."""
    return msgspec.structs.replace(
        schedule,
        next_at=schedule.next_after(now),
        skipped=schedule.skipped + max(schedule.times_until(now), 1),
        version=schedule.version + 1,
    )


def _all_until(schedule: Schedule, now: datetime) -> list[datetime]:
    times: list[datetime] = []
    current = schedule.next_at
    while current is not None and current <= now and len(times) < _MOST_CAUGHT_UP:
        times.append(current)
        current = schedule.next_after(current)
    return times


def job_at(schedule: Schedule, moment: datetime, *, queue_id: str | None = None) -> NewJob:
    """The job of a schedule for one of its times, or (``queue_id``) for a run by hand."""
    queue_id = queue_id or f"sched-{schedule.schedule_id}-{moment.timestamp():.0f}"
    new, metadata = schedule.job, msgspec.json.decode(schedule.job.metadata)
    metadata |= {SCHEDULE: schedule.name, SCHEDULED_FOR: moment.isoformat().replace("+00:00", "Z")}
    if payloads.ASKED_AT in metadata:
        metadata[payloads.ASKED_AT] = metadata[SCHEDULED_FOR]
    key = new.idempotency_key
    if new.item_type == "function" and not new.dedupe:
        key = payloads.function_key(new.collection, queue_id)
    return msgspec.structs.replace(
        new, queue_id=queue_id, idempotency_key=key, metadata=msgspec.json.encode(metadata).decode()
    )


Key: TypeAlias = tuple[str, str]
"""Tenant and name of a schedule."""


def key_of(schedule: Schedule) -> Key:
    return schedule.tenant_id, schedule.name


encode_schedule = msgspec.json.Encoder().encode


def decode_schedule(body: bytes | str) -> Schedule:
    # A decoder made here would evaluate the annotations in each command.
    return msgspec.json.decode(body, type=Schedule)


class SqlSchedules(ABC):
    """Schedules in the table ``queue_schedule``, for the SQL engines."""

    @abstractmethod
    def _write(self, what: str, work: Callable[[Any], Any]) -> Any: ...

    def _fetch_schedules(self, statement: str, values: dict[str, Any]) -> list[Any]:
        """Run a statement in a separate transaction and return the rows."""
        found: list[Any] = self._write("schedule", lambda rows: rows.fetch(statement, **values))
        return found

    @abstractmethod
    def now(self) -> datetime: ...

    def schedules(self, *, tenant_id: str | None = None) -> list[Schedule]:
        found = self._fetch_schedules("schedules", {"tenant_id": tenant_id})
        # Sorted here: a database may sort by its own locale.
        return sorted((decode_schedule(body) for (body,) in found), key=key_of)

    def due_schedules(self, *, now: datetime | None = None, limit: int = 100) -> list[Schedule]:
        values = {"now": now or self.now(), "limit": limit}
        return [decode_schedule(body) for (body,) in self._fetch_schedules("due_schedules", values)]

    def put_schedule(self, schedule: Schedule, *, replaces: int | None = None) -> bool:
        # In the order of their appearance in the statements: SQLite numbers them so.
        key = {"tenant_id": schedule.tenant_id, "called": schedule.name}
        row = {
            "version": schedule.version,
            "next_at": schedule.next_at,
            "body": encode_schedule(schedule).decode(),
        }
        if replaces is None:
            return bool(self._fetch_schedules("insert_schedule", key | row))
        return bool(self._fetch_schedules("replace_schedule", row | key | {"replaces": replaces}))

    def drop_schedule(self, tenant_id: str, name: str) -> bool:
        values = {"tenant_id": tenant_id, "called": name}
        return bool(self._fetch_schedules("drop_schedule", values))


_ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = {
    name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)
}
_DAYS = {name: number for number, name in enumerate("sun mon tue wed thu fri sat".split())}
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_INTERVAL = r"(?:@?every\s+)((?:\d{1,9}[smhdw]\s*)+)"
_MAX_INTERVAL_S = 366 * 86_400
_FARTHEST_DAYS = 366 * 9
"""A leap day may be eight years away, around a year such as 2100."""
_OVERLAP = timedelta(hours=3)
"""Longer than any repeated part of a day."""


class _Interval(msgspec.Struct, frozen=True):
    """A fixed number of seconds, counted from the start of the schedule."""

    seconds: int


class _Cron(msgspec.Struct, frozen=True):
    """The values allowed in each field. ``either_day``: one matching day field is enough."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    fixed: bool
    """Both hour and minute are given: a time of day, not a rhythm."""

    def has_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either_day else of_month and of_week


_Timing: TypeAlias = _Cron | _Interval


def parse(text: str) -> _Timing:
    """Parse a cron expression, a name such as ``@daily``, or an interval such as ``every 15m``."""
    if not isinstance(text, str):
        raise InvalidSchedule(f"timing: expected text, got {type(text).__name__}")
    plain = " ".join(text.split())
    if found := re.fullmatch(_INTERVAL, plain, re.IGNORECASE):
        return _interval(text, found[1])
    plain = _ALIASES.get(plain.lower(), plain)
    if plain.startswith("@") or plain.lower().startswith("every"):
        raise InvalidSchedule(
            f"timing {text[:80]!a}: unknown; known are {', '.join(_ALIASES)} "
            "and intervals such as 'every 15m'"
        )
    parts = plain.split()
    if len(parts) != len(_FIELDS):
        raise InvalidSchedule(
            f"timing {text[:80]!a}: expected 5 fields (minute hour day month weekday), got {len(parts)}"
        )
    minutes, hours, days, months, weekdays = (
        _values(text, part, *field) for part, field in zip(parts, _FIELDS, strict=True)
    )
    cron = _Cron(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        months=months,
        weekdays=frozenset(day % 7 for day in weekdays),
        either_day=not parts[2].startswith("*") and not parts[4].startswith("*"),
        fixed=not parts[0].startswith("*") and not parts[1].startswith("*"),
    )
    if not cron.either_day and not any(min(days) <= _LONGEST_MONTH[month - 1] for month in months):
        raise InvalidSchedule(f"timing {text[:80]!a}: there is no such day, it would never run")
    return cron


def _interval(text: str, parts: str) -> _Interval:
    seconds = sum(
        int(number) * _UNITS[unit.lower()]
        for number, unit in re.findall(r"(\d+)([smhdw])", parts, re.IGNORECASE)
    )
    if not 1 <= seconds <= _MAX_INTERVAL_S:
        raise InvalidSchedule(f"timing {text[:80]!a}: expected an interval of 1 second to 366 days")
    return _Interval(seconds)


def _values(text: str, part: str, name: str, low: int, high: int, names: dict[str, int]) -> frozenset[int]:
    values: set[int] = set()
    for item in part.split(","):
        body, slash, step = item.partition("/")
        if slash and (not step.isdecimal() or not 1 <= int(step) <= high):
            raise _wrong(text, name, item, f"a step is a number from 1 to {high}")
        first, dash, last = body.partition("-")
        if body == "*":
            begin, end = low, high if name != "day of the week" else 6
        else:
            begin = _value(text, name, item, first, (low, high), names)
            end = _value(text, name, item, last, (low, high), names) if dash else begin
            if dash and last.lower() == "sun":
                end = 7
            elif slash and not dash:
                end = high
        if begin > end:
            raise _wrong(text, name, item, "a range goes from the smaller to the larger value")
        values.update(range(begin, end + 1, int(step or 1)))
    return frozenset(values)


def _value(text: str, name: str, item: str, given: str, span: tuple[int, int], names: dict[str, int]) -> int:
    low, high = span
    if given.lower() in names:
        return names[given.lower()]
    if given.isdecimal() and given.isascii() and len(given) <= 2 and low <= int(given) <= high:
        return int(given)
    allowed = f"{low} to {high}" + (f" or {', '.join(names)}" if names else "")
    raise _wrong(text, name, item, f"expected {allowed}")


def _wrong(text: str, name: str, item: str, why: str) -> InvalidSchedule:
    return InvalidSchedule(f"timing {text[:80]!a}: {name} {item[:40]!a}: {why}")


def zone_of(name: str) -> ZoneInfo:
    """The time zone of this name, such as ``Europe/Berlin``; raises ``InvalidSchedule``."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # most commands need no zone

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise InvalidSchedule(
            f"time zone {str(name)[:80]!a}: unknown",
            remedy="Use a name such as UTC, Europe/Berlin or America/New_York; pip install tzdata adds them.",
        ) from None


def next_after(timing: _Timing, moment: datetime, zone: ZoneInfo, *, start: datetime) -> datetime | None:
    """The first run after a moment, in UTC; intervals are counted from ``start``.

    None if there is none in nine years.
    """
    if isinstance(timing, _Interval):
        passed = max((moment - start) // timedelta(seconds=timing.seconds), -1)
        return start + (passed + 1) * timedelta(seconds=timing.seconds)
    local = moment.astimezone(zone).replace(tzinfo=None)
    day = local.date()
    for number in range(_FARTHEST_DAYS):
        try:
            current = day + timedelta(days=number)
        except OverflowError:
            return None
        if timing.has_day(current):
            found = _first_of_day(timing, current, moment, local - _OVERLAP, zone)
            if found is not None:
                return found
    return None


def times_until(timing: _Timing, first: datetime, last: datetime, zone: ZoneInfo, *, start: datetime) -> int:
    """Number of runs from ``first``, which is one, to ``last``."""
    if isinstance(timing, _Interval):
        return (last - first) // timedelta(seconds=timing.seconds) + 1
    following = next_after(timing, first, zone, start=start)
    if following is None or following > last:
        return 1
    begin, end = (moment.astimezone(zone).replace(tzinfo=None) for moment in (first, last))
    days = (begin.date() + timedelta(days=number) for number in range((end.date() - begin.date()).days + 1))
    return sum(_times_of_day(timing, day, (first, last), (begin, end), zone) for day in days)


def _times_of_day(
    cron: _Cron, day: date, span: tuple[datetime, datetime], local: tuple[datetime, datetime], zone: ZoneInfo
) -> int:
    """Number of runs within a span on one day; ``local`` is the span in the zone."""
    if not cron.has_day(day):
        return 0
    midnight, next_midnight = (datetime.combine(day + timedelta(days=number), time()) for number in (0, 1))
    offsets = {moment.replace(tzinfo=zone).utcoffset() for moment in (midnight, next_midnight)}
    if len(offsets) == 1 and local[0] < midnight - _OVERLAP and next_midnight + _OVERLAP < local[1]:
        return len(cron.hours) * len(cron.minutes)
    named = (
        datetime.combine(day, time(hour, minute))
        for hour in cron.hours
        if datetime.combine(day, time(hour, 59)) >= local[0] - _OVERLAP
        and datetime.combine(day, time(hour)) <= local[1] + _OVERLAP
        for minute in cron.minutes
    )
    instants = (instant for one in named for instant in _instants(one, zone, fixed=cron.fixed))
    return sum(span[0] <= instant <= span[1] for instant in set(instants))


def _first_of_day(
    cron: _Cron, day: date, after: datetime, earliest: datetime, zone: ZoneInfo
) -> datetime | None:
    best: datetime | None = None
    latest = datetime.combine(day, time.max)
    for hour in cron.hours:
        if datetime.combine(day, time(hour, 59)) < earliest:
            continue
        for minute in cron.minutes:
            named = datetime.combine(day, time(hour, minute))
            if named > latest:
                return best
            for instant in _instants(named, zone, fixed=cron.fixed):
                if instant > after and (best is None or instant < best):
                    best, latest = instant, named + _OVERLAP
    return best


def _instants(named: datetime, zone: ZoneInfo, *, fixed: bool) -> Iterator[datetime]:
    """The instants, in UTC, of a local time of day."""
    first, second = (named.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    instant = first.astimezone(UTC)
    if first.utcoffset() == second.utcoffset():
        yield instant
    elif instant.astimezone(zone).replace(tzinfo=None) != named:
        if fixed:
            yield _end_of_gap(second.astimezone(UTC), instant, zone)
    else:
        yield instant
        if not fixed:
            yield second.astimezone(UTC)


def _end_of_gap(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The first instant with the new offset, between two instants around a gap."""
    old = before.astimezone(zone).utcoffset()
    low, high = 0, int((after - before).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        if (before + timedelta(seconds=middle)).astimezone(zone).utcoffset() == old:
            low = middle
        else:
            high = middle
    return before + timedelta(seconds=high)
