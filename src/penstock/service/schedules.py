"""Use cases about schedules: add, list, pause, run now, remove."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from penstock import clock
from penstock.errors import InvalidName, InvalidRequest, InvalidSchedule, ScheduleExists, ScheduleNotFound
from penstock.handlers.functions import BACKUP_TIMEOUT_S, MOST_KEPT, backup_request
from penstock.queue import schedules
from penstock.queue.job import NewJob
from penstock.queue.payloads import is_off_disk
from penstock.queue.schedules import Missed, Schedule, job_at
from penstock.queue.transitions import BACKUP
from penstock.service.functions import CallOptions
from penstock.service.job_views import masked_payload
from penstock.service.jobs import Jobs
from penstock.service.requests import (
    IndexOptions,
    JobWord,
    Receipt,
    ScheduleOptions,
    Submission,
    refuse_unknown,
)

if TYPE_CHECKING:
    from penstock.service.documents import Documents

SHOWN = 5
MOST_SHOWN = 100
_MOST_SCHEDULES = 10_000
__all__ = ["MOST_KEPT", "MOST_SHOWN", "SHOWN", "ScheduleRecord", "Schedules"]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ScheduleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule for programs. ``next``: the next times in UTC, ``next_in_zone`` the same in its own zone.

    ``last_status`` and ``last_error``: of the last job; None before the first run, or after a purge.
    """

    name: str
    tenant_id: str
    timing: str
    zone: str
    does: str
    missed: Missed
    paused: bool
    next_at: datetime | None
    next: list[datetime]
    next_in_zone: list[str]
    last_at: datetime | None
    last_job_id: str | None
    last_status: JobWord | None
    last_error: str | None
    runs: int
    skipped: int
    created_at: datetime
    payload: dict[str, Any]


_COPIED = "name tenant_id timing zone paused next_at last_at last_job_id runs skipped created_at".split()


class Schedules:
    """The schedules of one queue.

    app.schedules.add_call("0 3 * * *", "report", {"week": True}, zone="Europe/Berlin")
    app.schedules.add_index("every 15m", "~/notes")
    app.schedules.add_backup("0 2 * * *", "/var/backups/penstock", keep=7)
    """

    def __init__(self, jobs: Jobs, documents: Callable[[], Documents]) -> None:
        self._jobs = jobs
        self._queue = jobs.queue
        self._documents = documents

    def add_call(
        self,
        timing: str,
        function: str,
        payload: Any = None,
        *,
        entity: tuple[str, str] | None = None,
        call: CallOptions | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleRecord:
        """Call a function by the clock. ``call``: options of each call, such as ``{"priority": 8}``."""
        refuse_unknown("schedules.add_call", options, ScheduleOptions)
        given: dict[str, Any] = {"name": function, "payload": payload, "entity": entity, **(call or {})}
        given["tenant_id"] = options.get("tenant_id") or given.get("tenant_id")
        if given.keys() & {"run_at", "delay", "job_id"}:
            raise InvalidSchedule(
                "call: the schedule gives each job its time and id", remedy="Leave them out."
            )
        submission = self._jobs.call_submission(given)
        return self._add(timing, submission, f"call {function}", function, options)

    def add_index(
        self,
        timing: str,
        path: str | PathLike[str],
        *,
        index: IndexOptions | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleRecord:
        """Index a file or folder by the clock. ``index``: options as for ``app.index``.

        In a project, each run is for the branch that is checked out then. The schedule has the tenant of its
        jobs, so two projects may have schedules of one name.
        """
        refuse_unknown("schedules.add_index", options, ScheduleOptions)
        given: IndexOptions = {**(index or {})}
        given["tenant_id"] = options.get("tenant_id") or given.get("tenant_id")
        target = str(path) if is_off_disk(str(path)) else str(Path(path).expanduser().absolute())
        documents = self._documents()
        submission = documents.submission(target, **given)
        documents.projects.record(documents.placement(target, **given))
        default = f"index-{Path(target).name or 'root'}"
        return self._add(timing, submission, f"index {target}", default, options)

    def add_backup(
        self,
        timing: str,
        directory: str | PathLike[str],
        *,
        keep: int | None = None,
        priority: int | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleRecord:
        """Back up all stores into a directory by the clock. ``keep``: the newest backups that stay there.

        The directory is one of the worker that runs the job. While a backup into it is live, none is added.
        """
        refuse_unknown("schedules.add_backup", options, ScheduleOptions)
        if self._jobs.settings.store.engine == "memory":
            raise InvalidRequest("memory:// ends with this process", remedy="Choose another URL.")
        target = backup_request(str(Path(directory).expanduser().absolute()), keep)
        body = {"function_name": BACKUP, "payload": msgspec.to_builtins(target)}
        submission: Submission = {
            "item_type": "function",
            "op": "run",
            "payload": body,
            "tenant_id": options.get("tenant_id"),
            "priority": priority,
            "key": "backup " + hashlib.sha256(target.directory.encode()).hexdigest()[:32],
            "timeout_s": BACKUP_TIMEOUT_S,
        }
        kept = "" if keep is None else f", keep {keep:,}"
        summary = f"backup {target.directory}{kept}"
        return self._add(timing, submission, summary, "backup", options, own=True)

    def _add(
        self,
        timing: str,
        submission: Submission,
        summary: str,
        default_name: str,
        options: ScheduleOptions,
        *,
        own: bool = False,
    ) -> ScheduleRecord:
        (job,) = self._jobs._new([submission], joins=False, own=own)
        new = self._schedule(timing, job, summary, options.get("name") or _plain(default_name), options)
        if not self._queue.put_schedule(new):
            stored = self._find(new.tenant_id, new.name)
            if not options.get("replace"):
                raise ScheduleExists(f"a schedule named {new.name!r} exists already: {stored.summary}")
            if _is_backup(stored) != _is_backup(new):
                raise ScheduleExists(
                    f"the schedule {new.name!r} exists and does something else: {stored.summary}",
                    remedy="Give another name, or remove that schedule first.",
                )
            new = self._replace(stored, new)
        elif len(self._queue.schedules()) > _MOST_SCHEDULES:
            self._queue.drop_schedule(new.tenant_id, new.name)
            raise InvalidSchedule(f"there are {_MOST_SCHEDULES:,} schedules already", remedy="Remove some.")
        return self.record(new)

    def _schedule(
        self, timing: str, job: NewJob, summary: str, name: str, options: ScheduleOptions
    ) -> Schedule:
        zone = options.get("zone") or self._jobs.settings.time_zone
        place, parsed = schedules.zone_of(zone), schedules.parse(timing)
        # Stores keep whole milliseconds, and times of a schedule whole seconds.
        created_at = self._queue.now()
        now = created_at.replace(microsecond=0)
        return Schedule(
            tenant_id=job.tenant_id,
            name=_checked_name(name),
            schedule_id=clock.new_id().removeprefix("job_"),
            timing=" ".join(timing.split()),
            zone=zone,
            job=job,
            summary=summary,
            missed=_missed(options.get("missed")),
            start_at=now,
            next_at=schedules.next_after(parsed, now, place, start=now),
            created_at=created_at,
        )

    def _replace(self, stored: Schedule, new: Schedule) -> Schedule:
        """Store new values under a name, and keep its runs. With the same timing the next time stays."""
        while True:
            same = (stored.timing, stored.zone) == (new.timing, new.zone)
            merged = msgspec.structs.replace(
                stored,
                timing=new.timing,
                zone=new.zone,
                job=new.job,
                summary=new.summary,
                missed=new.missed,
                start_at=stored.start_at if same else new.start_at,
                next_at=stored.next_at if same or stored.paused else new.next_at,
                version=stored.version + 1,
            )
            if self._queue.put_schedule(merged, replaces=stored.version):
                return merged
            stored = self._find(stored.tenant_id, stored.name)

    # Reads.

    def list(self, tenant_id: str | None = None) -> list[ScheduleRecord]:
        """List the schedules of a tenant, or all, by name."""
        return [self.record(one) for one in self.stored(tenant_id)]

    def stored(self, tenant_id: str | None = None) -> Sequence[Schedule]:
        """Read the schedules of a tenant, or all, by tenant and name, without their last jobs."""
        return self._queue.schedules(tenant_id=tenant_id)

    def show(self, name: str, *, tenant_id: str | None = None, count: int = SHOWN) -> ScheduleRecord:
        """Show one schedule with its next times."""
        if isinstance(count, bool) or not 1 <= count <= MOST_SHOWN:
            raise InvalidRequest(f"count: expected 1 to {MOST_SHOWN}, got {count}")
        return self.record(self._find(tenant_id, name), count)

    def record(self, schedule: Schedule, count: int = 1) -> ScheduleRecord:
        times = schedule.upcoming(self._queue.now(), count)
        zone = schedules.zone_of(schedule.zone)
        last = self._queue.get(schedule.last_job_id) if schedule.last_job_id else None
        return ScheduleRecord(
            **{name: getattr(schedule, name) for name in _COPIED},
            last_status=self._jobs.word(last.status) if last else None,
            last_error=last.error_message if last else None,
            does=schedule.summary,
            missed=schedule.missed,
            next=times,
            next_in_zone=[time.astimezone(zone).isoformat() for time in times],
            payload=masked_payload(msgspec.json.decode(schedule.job.payload_json)),
        )

    def is_backup(self, name: str, *, tenant_id: str | None = None) -> bool:
        """Tell whether a schedule makes backups, which are about all tenants."""
        return _is_backup(self._find(tenant_id, name))

    # Changes.

    def change(
        self,
        name: str,
        *,
        timing: str | None = None,
        zone: str | None = None,
        missed: str | None = None,
        tenant_id: str | None = None,
    ) -> ScheduleRecord:
        """Change the timing of a schedule. What is not given stays, and so does its job."""
        checked = None if missed is None else _missed(missed)
        now = self._queue.now().replace(microsecond=0)

        def changes(stored: Schedule) -> dict[str, Any]:
            wanted: dict[str, Any] = {} if checked is None else {"missed": checked}
            new = (" ".join(timing.split()) if timing else stored.timing, zone or stored.zone)
            if new != (stored.timing, stored.zone):
                place, parsed = schedules.zone_of(new[1]), schedules.parse(new[0])
                next_at = None if stored.paused else schedules.next_after(parsed, now, place, start=now)
                wanted |= {"timing": new[0], "zone": new[1], "start_at": now, "next_at": next_at}
            return wanted

        return self._change(name, tenant_id, changes)

    def pause(self, name: str, *, tenant_id: str | None = None) -> ScheduleRecord:
        """Stop running a schedule until it is resumed."""
        return self._change(name, tenant_id, lambda _: {"paused": True, "next_at": None})

    def resume(self, name: str, *, tenant_id: str | None = None) -> ScheduleRecord:
        """Run a paused schedule again, from its next time on; runs of the pause are not caught up."""

        def changes(stored: Schedule) -> dict[str, Any]:
            if not stored.paused:
                return {}
            return {"paused": False, "next_at": stored.next_after(self._queue.now())}

        return self._change(name, tenant_id, changes)

    def remove(self, name: str, *, tenant_id: str | None = None) -> None:
        """Remove a schedule. Jobs that it added stay."""
        stored = self._find(tenant_id, name)
        self._queue.drop_schedule(stored.tenant_id, stored.name)

    def run_now(self, name: str, *, tenant_id: str | None = None) -> Receipt:
        """Add the job of a schedule now, also if it is paused. Its next time stays.

        Raises ``QueueFull`` like any other request; runs by the clock are added in any case.
        """
        stored, now = self._find(tenant_id, name), self._queue.now()
        new = job_at(stored, now, queue_id=clock.new_id())
        (added,) = self._jobs.add_all([new], self._jobs._limits())
        self._change(
            name,
            tenant_id,
            lambda one: {"last_at": now, "last_job_id": added.queue_id, "runs": one.runs + 1},
        )
        return self._jobs._receipt(added, None)

    def _change(
        self, name: str, tenant_id: str | None, changes: Callable[[Schedule], Mapping[str, Any]]
    ) -> ScheduleRecord:
        while True:
            stored = self._find(tenant_id, name)
            wanted = changes(stored)
            changed = msgspec.structs.replace(stored, **wanted, version=stored.version + 1)
            if not wanted or self._queue.put_schedule(changed, replaces=stored.version):
                return self.record(changed)

    def _find(self, tenant_id: str | None, name: str) -> Schedule:
        return self.find(name, () if tenant_id is None else (tenant_id,))

    def find(self, name: str, tenants: Sequence[str] = ()) -> Schedule:
        """Find a schedule of one of the tenants (none: of any). That of the settings goes before others."""
        named = [
            one
            for one in self._queue.schedules(tenant_id=tenants[0] if len(tenants) == 1 else None)
            if one.name == name and (not tenants or one.tenant_id in tenants)
        ]
        default = [one for one in named if one.tenant_id == self._jobs.settings.tenant_id]
        found = default or named
        if not found:
            raise ScheduleNotFound(f"no schedule has the name {str(name)[:80]!a}")
        if len(found) > 1:
            raise InvalidRequest(
                f"{len(found)} tenants have a schedule of the name {name!r}", remedy="Name the tenant."
            )
        return found[0]


def _is_backup(schedule: Schedule) -> bool:
    return bool(msgspec.json.decode(schedule.job.payload_json).get("function_name") == BACKUP)


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidName(
            f"name of a schedule: expected 1 to 100 letters, digits, . _ or -, got {str(name)[:80]!a}",
            remedy="Give another name, such as nightly-report.",
        )
    return name


def _plain(text: str) -> str:
    """A name out of the name of a folder or function, which may have other characters."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:100].strip("-") or "schedule"


def _missed(given: str | None) -> Missed:
    try:
        return Missed.RUN_ONCE if given is None else Missed(given)
    except ValueError:
        raise InvalidSchedule(
            f"missed: expected {', '.join(Missed)}, got {str(given)[:80]!r}",
            remedy="Use run-once to catch up with one run.",
        ) from None
