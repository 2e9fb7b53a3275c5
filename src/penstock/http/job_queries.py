"""Filters of jobs in queries and bodies, and ranges of time and pages."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from penstock.http.request_bodies import MAX_OFFSET, MAX_PAGE, Name, QueryFields, RequestBody, Whole
from penstock.queue.job import Held
from penstock.queue.payloads import ITEM_TYPES
from penstock.service.jobs import JobFilter

StatusName = Annotated[
    Name, Field(json_schema_extra={"enum": ["pending", "running", "done", "failed", "cancelled"]})
]
HeldName = Annotated[Name, Field(json_schema_extra={"enum": [str(reason) for reason in Held]})]
ItemType = Annotated[Name, Field(json_schema_extra={"enum": list(ITEM_TYPES)})]


class JobFilters(BaseModel):
    """Filters of jobs; all given ones must match."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    status: list[StatusName] = Field(
        [], max_length=10, description="Only jobs in one of these states; other interfaces' words count, too."
    )
    tenant_id: Name | None = None
    collection: Name | None = None
    item_type: ItemType | None = None
    error: Name | None = Field(None, description="Only jobs whose last error has this code.")
    reason: Name | None = Field(None, description="Only failed jobs with this reason, children too.")
    held: HeldName | None = Field(None, description="Only jobs held for this reason.")
    parent_id: Name | None = Field(None, description="Only children of this job.")
    q: Name | None = Field(None, description="Only jobs with this text in id, payload or error message.")
    children: bool = Field(False, description="Include the jobs that other jobs expanded into.")

    def given(self) -> JobFilter:
        """The filters of the service, without the tenant."""
        below = self.children or self.parent_id is not None or self.reason is not None
        return {
            "status": self.status or None,
            "collection": self.collection,
            "item_type": self.item_type,
            "error": self.error,
            "reason": self.reason,
            "held": self.held,
            "parent_id": self.parent_id,
            "q": self.q,
            "top_level": None if below else True,
        }


class JobsQuery(JobFilters):
    """Filters, order and paging of a list of jobs."""

    sort: Literal["newest", "oldest", "priority"] = Field(
        "newest", description="Order: by submission, or by priority and then the oldest first."
    )
    limit: int = Field(50, ge=1, le=MAX_PAGE)
    offset: int = Field(0, ge=0, le=MAX_OFFSET, description="Jobs to leave out; a cursor is faster.")
    cursor: Name | None = Field(None, description="`next` of the page before.")


class FailuresQuery(JobFilters):
    """Filters of failed jobs, grouped by reason."""

    group: Literal["reason"] = "reason"


class FilterBody(JobFilters):
    """Filters of jobs in a body; `status` may be one word."""

    @field_validator("status", mode="before")
    @classmethod
    def _several(cls, given: Any) -> Any:
        return [given] if isinstance(given, str) else given


class BulkBody(RequestBody):
    """Jobs to retry or cancel: all that match, if they are as many as expected."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={
            "examples": [{"filter": {"status": ["failed"], "error": "ERR_WORKER_LOST"}, "expect": 12}]
        },
    )

    filter: FilterBody
    expect: Whole | None = Field(None, ge=0, description="Number of matching jobs; required without dry_run.")
    dry_run: bool = Field(False, description="Only count.")

    @model_validator(mode="after")
    def _expected(self) -> BulkBody:
        if self.expect is None and not self.dry_run:
            raise ValueError("expect: required, unless dry_run is true")
        return self


class RangeQuery(QueryFields):
    """Pages whose chunks are shown."""

    first: int = Field(1, ge=1, le=10_000_000, description="First page.")
    last: int | None = Field(
        None, ge=1, le=10_000_000, description="Last page; by default 199 after the first."
    )


_DURATION = re.compile(r"([0-9]{1,6})([smh]?)")


class HistoryQuery(QueryFields):
    """Window and step of a history."""

    window: str = Field("1h", pattern=r"^[0-9]{1,6}[smh]?$", description="Up to 24h, such as 90m.")
    step: str = Field("60s", pattern=r"^[0-9]{1,6}[smh]?$", description="Whole minutes, such as 5m.")
    tenant_id: Name | None = None


def parse_duration(text: str) -> timedelta:
    """A duration such as 90, 90s, 5m or 2h."""
    match = _DURATION.fullmatch(text)
    assert match is not None
    return timedelta(seconds=int(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]])
