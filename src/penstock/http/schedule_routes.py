"""Routes of schedules: list, add, show, change, pause, resume, run now, remove."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field, model_validator
from starlette.responses import Response

from penstock.http.index_routes import ACCEPTED as QUEUED_JOB
from penstock.http.index_routes import AllowExternal, accepted
from penstock.http.problems import described, respond
from penstock.http.request_bodies import MAX_OFFSET, MAX_PAGE, Name, RequestBody, Text, Whole
from penstock.http.request_context import Reader, Sender, Writer, reads, writes
from penstock.http.upkeep_routes import TenantQuery
from penstock.service.requests import ScheduleOptions
from penstock.service.schedules import MOST_KEPT, MOST_SHOWN, SHOWN, ScheduleRecord, Schedules

router = APIRouter(prefix="/schedules", tags=["schedules"])

_ScheduleName = Annotated[str, Path(description="Name of a schedule.", max_length=512)]
_Timing = Annotated[Text, Field(min_length=1, max_length=500)]
_ZoneName = Annotated[Text, Field(min_length=1, max_length=100)]
_MissedRule = Literal["skip", "run-once", "run-all"]
_EXAMPLE = {
    "name": "index-notes",
    "tenant_id": "default",
    "timing": "0 3 * * *",
    "zone": "Europe/Berlin",
    "does": "index /srv/notes",
    "missed": "run-once",
    "paused": False,
    "next_at": "2026-11-18T02:00:00Z",
    "next": ["2026-11-18T02:00:00Z"],
    "next_in_zone": ["2026-11-18T03:00:00+01:00"],
    "last_at": None,
    "last_job_id": None,
    "last_status": None,
    "last_error": None,
    "runs": 0,
    "skipped": 0,
    "created_at": "2026-11-17T12:00:00Z",
    "payload": {"folder_path": "/srv/notes"},
}


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules by tenant and name. ``next``: the offset of the next page, None at the end."""

    schedules: list[ScheduleRecord]
    next: int | None


class RemovedSchedule(msgspec.Struct, frozen=True):
    """The name of the schedule that was removed."""

    removed: str


class SchedulesQuery(TenantQuery):
    """A part of the list of schedules."""

    limit: int = Field(100, ge=1, le=MAX_PAGE)
    offset: int = Field(0, ge=0, le=MAX_OFFSET, description="`next` of the page before.")


class NextQuery(TenantQuery):
    """The number of next runs."""

    count: int = Field(SHOWN, ge=1, le=MOST_SHOWN, description="Number of next runs.")


_FIELDS = {
    "index": ("path", "collection", "project", "branch"),
    "call": ("function", "payload", "key", "collection"),
    "backup": ("directory", "keep"),
}
"""Fields of some actions only; the first is required."""


class ScheduleBody(RequestBody):
    """A job by the clock: `index` a `path`, `call` a `function`, or `backup` into a `directory`."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={
            "examples": [
                {"timing": "0 3 * * *", "zone": "Europe/Berlin", "action": "index", "path": "docs"},
                {"timing": "every 15m", "action": "call", "function": "refresh", "payload": {"full": False}},
                {"timing": "0 2 * * *", "action": "backup", "directory": "backups", "keep": 7},
            ]
        },
    )

    timing: _Timing = Field(description="Cron expression, a name such as @daily, or `every 15m`.")
    action: Literal["index", "call", "backup"] = Field(description="A backup needs an admin key.")
    path: Text | None = Field(
        None, min_length=1, max_length=4096, description="File or folder below a root of the server."
    )
    function: Name | None = Field(None, description="Name of a function of the application.")
    payload: dict[str, Any] | None = Field(None, description="Argument of the function.")
    directory: Text | None = Field(
        None, min_length=1, max_length=4096, description="Directory for backups, below a root of the server."
    )
    keep: Whole | None = Field(
        None, ge=1, le=MOST_KEPT, description="Backups that stay in the directory; by default all."
    )
    key: Name | None = Field(None, description="While a job with this key lives, no call is added.")
    project: bool | None = Field(None, description="Index a project, or not; by default in a git work tree.")
    branch: Name | None = Field(None, description="Branch of the documents; by default the checked-out one.")
    name: Name | None = Field(None, description="By default `index-FOLDER`, the function, or `backup`.")
    zone: _ZoneName | None = Field(None, description="Time zone; by default the server's setting.")
    missed: _MissedRule = Field("run-once", description="Rule for runs while no worker was there.")
    replace: bool = Field(False, description="Change the schedule of this name, if there is one.")
    collection: Name | None = Field(None, description="Collection of the jobs.")
    priority: Whole | None = Field(None, ge=0, le=10, description="Priority of the jobs.")
    tenant_id: Name | None = Field(None, description="Tenant; by default the key's, or the server's.")

    @model_validator(mode="after")
    def _one_target(self) -> ScheduleBody:
        wanted = _FIELDS[self.action]
        if getattr(self, wanted[0]) is None:
            raise ValueError(f"{wanted[0]}: required for the action {self.action}")
        for field in {name for names in _FIELDS.values() for name in names} - set(wanted):
            if getattr(self, field) is not None:
                raise ValueError(f"{field}: not for the action {self.action}")
        return self


class TimingBody(RequestBody):
    """New values of a schedule; what is left out stays."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={"examples": [{"timing": "30 4 * * *", "zone": "Europe/Berlin"}]},
    )

    timing: _Timing | None = Field(None, description="Cron expression, a name, or an interval.")
    zone: _ZoneName | None = None
    missed: _MissedRule | None = None


_SHOWN_ONE = described(ScheduleRecord, refused=(404,), example=_EXAMPLE)


@router.get("", operation_id="schedules_list", responses=described(SchedulePage), summary="List schedules")
@reads
def schedules(sender: Reader, query: Annotated[SchedulesQuery, Query()]) -> Response:
    """List schedules with their next run and the result of the last one."""
    tenants = sender.principal.tenants_for(query.tenant_id)
    found = [one for tenant in tenants for one in sender.shared.schedules.stored(tenant)]
    last = query.offset + query.limit
    page = [sender.shared.schedules.record(one) for one in found[query.offset : last]]
    following = last if last < len(found) else None
    return respond(SchedulePage(schedules=page, next=following))


@router.post(
    "",
    operation_id="schedules_add",
    status_code=201,
    responses=described(ScheduleRecord, 201, refused=(404, 409), example=_EXAMPLE),
    summary="Add a schedule",
)
@writes
def add(sender: Writer, body: ScheduleBody, allow_external: AllowExternal = False) -> Response:
    """Add a schedule that indexes a path, calls a function, or backs up all stores.

    Every worker of the store runs it.
    """
    shared = sender.shared
    # The place of a path is decided as for a request to index it now.
    tenant = body.tenant_id if body.path is not None else sender.tenant(body.tenant_id)
    options = ScheduleOptions(
        name=body.name, zone=body.zone, missed=body.missed, replace=body.replace, tenant_id=tenant
    )
    each: dict[str, Any] = {
        name: value
        for name in ("collection", "priority", "key", "project", "branch")
        if (value := getattr(body, name)) is not None
    }
    if body.directory is not None:
        _require_backups(sender)
        directory = sender.policy.allowed_directory(body.directory, allow_external=allow_external)
        made = shared.schedules.add_backup(
            body.timing, directory, keep=body.keep, priority=body.priority, **options
        )
    elif body.path is not None:
        path = sender.policy.allowed(body.path, allow_external=allow_external)
        schedules = Schedules(shared.functions, lambda: sender.documents)
        made = schedules.add_index(body.timing, path, index=each, **options)  # type: ignore[arg-type]
    else:
        assert body.function is not None
        payload = body.payload or {}
        made = shared.schedules.add_call(
            body.timing,
            body.function,
            payload,
            call=each,  # type: ignore[arg-type]
            **options,
        )
    shared.audit.record(sender.principal.name, "add schedule", name=made.name, tenant_id=made.tenant_id)
    return respond(made, 201)


@router.get("/{name}", operation_id="schedules_get", responses=_SHOWN_ONE, summary="Show a schedule")
@reads
def schedule(sender: Reader, name: _ScheduleName, query: Annotated[NextQuery, Query()]) -> Response:
    """Show a schedule with its next runs, in UTC and in its own zone."""
    tenant = _tenant(sender, name, query)
    return respond(sender.shared.schedules.show(name, tenant_id=tenant, count=query.count))


@router.patch("/{name}", operation_id="schedules_change", responses=_SHOWN_ONE, summary="Change a schedule")
@writes
def change(
    sender: Writer, name: _ScheduleName, body: TimingBody, query: Annotated[TenantQuery, Query()]
) -> Response:
    """Change timing, zone or the rule for missed runs. Runs so far, and a pause, stay."""
    tenant = _changeable(sender, name, query)
    made = sender.shared.schedules.change(name, tenant_id=tenant, **body.model_dump())
    _audit(sender, "change", name, tenant)
    return respond(made)


@router.delete(
    "/{name}",
    operation_id="schedules_remove",
    responses=described(RemovedSchedule, refused=(404,)),
    summary="Remove a schedule",
)
@writes
def remove(sender: Writer, name: _ScheduleName, query: Annotated[TenantQuery, Query()]) -> Response:
    """Remove a schedule. Jobs that it added stay."""
    tenant = _changeable(sender, name, query)
    sender.shared.schedules.remove(name, tenant_id=tenant)
    _audit(sender, "remove", name, tenant)
    return respond(RemovedSchedule(name))


@router.post(
    "/{name}/pause", operation_id="schedules_pause", responses=_SHOWN_ONE, summary="Pause a schedule"
)
@writes
def pause(sender: Writer, name: _ScheduleName, query: Annotated[TenantQuery, Query()]) -> Response:
    """Stop running a schedule until it is resumed."""
    tenant = _changeable(sender, name, query)
    made = sender.shared.schedules.pause(name, tenant_id=tenant)
    _audit(sender, "pause", name, tenant)
    return respond(made)


@router.post(
    "/{name}/resume", operation_id="schedules_resume", responses=_SHOWN_ONE, summary="Resume a schedule"
)
@writes
def resume(sender: Writer, name: _ScheduleName, query: Annotated[TenantQuery, Query()]) -> Response:
    """Run a paused schedule again, from its next time on."""
    tenant = _changeable(sender, name, query)
    made = sender.shared.schedules.resume(name, tenant_id=tenant)
    _audit(sender, "resume", name, tenant)
    return respond(made)


@router.post(
    "/{name}/run",
    operation_id="schedules_run",
    status_code=202,
    responses=QUEUED_JOB,
    summary="Run a schedule now",
)
@writes
def run(sender: Writer, name: _ScheduleName, query: Annotated[TenantQuery, Query()]) -> Response:
    """Add the job of a schedule now, also if it is paused. Its next run stays."""
    tenant = _changeable(sender, name, query)
    receipt = sender.shared.schedules.run_now(name, tenant_id=tenant)
    _audit(sender, "run", name, tenant)
    return accepted(sender, receipt)


def _changeable(sender: Sender, name: str, query: TenantQuery) -> str:
    """The tenant of a schedule that the sender may change."""
    tenant = _tenant(sender, name, query)
    if sender.shared.schedules.is_backup(name, tenant_id=tenant):
        _require_backups(sender)
    return tenant


def _tenant(sender: Sender, name: str, query: TenantQuery) -> str:
    """The tenant of a schedule: as named, else the one that has it among those of the key."""
    if query.tenant_id is not None:
        return sender.tenant(query.tenant_id)
    return sender.shared.schedules.find(name, sender.principal.tenants).tenant_id


def _require_backups(sender: Sender) -> None:
    """Refuse a sender who may not back up: a backup has the texts of all tenants."""
    sender.principal.require("admin")
    sender.principal.require_unbound()


def _audit(sender: Sender, act: str, name: str, tenant_id: str) -> None:
    sender.shared.audit.record(sender.principal.name, f"{act} schedule", name=name, tenant_id=tenant_id)
