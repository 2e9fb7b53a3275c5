"""Bodies and filters of requests for notes, and for the upkeep of queue and catalog."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from penstock.http.job_queries import ItemType
from penstock.http.request_bodies import MAX_PAGE, Name, Project, QueryFields, RequestBody, Text


class NoteBody(RequestBody):
    """A new text of a note."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"content": "The gate runs well."}]})

    content: Text = Field(min_length=1, description="Text of the note.")
    tag: Name | None = Field(None, description="New tag; without one the tags stay.")
    drop_tags: bool = Field(False, description="Remove the tags of the note.")
    tenant_id: Name | None = Field(None, description="Tenant; by default the key's, or the server's.")


class RenameBody(RequestBody):
    """A move of a file or folder."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"old_path": "a.md", "new_path": "b.md"}]})

    old_path: Text = Field(min_length=1, max_length=4096, description="Path before the move.")
    new_path: Text = Field(min_length=1, max_length=4096, description="Path after the move.")
    tenant_id: Name | None = None
    collection: Name | None = None
    project: Project = None


class RemovalBody(RequestBody):
    """A document or folder to remove from the index."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"path_or_id": "notes/old.md"}]})

    path_or_id: Text = Field(min_length=1, max_length=4096, description="Id, or a path with a slash.")
    tenant_id: Name | None = None
    collection: Name | None = None
    branch: Name | None = None
    project: Project = None


class PurgeBody(RequestBody):
    """Ended jobs to remove."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"status": ["done"], "older_than_s": 86400}]})

    status: list[Literal["done", "failed", "cancelled"]] = Field(min_length=1, max_length=3)
    older_than_s: float = Field(0.0, ge=0, le=3e9, description="Seconds since the end of a job.")


class RetryBody(RequestBody):
    """Failed jobs to retry."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"collection": "handbook"}]})

    tenant_id: Name | None = None
    collection: Name | None = None
    item_type: ItemType | None = None


class TenantQuery(QueryFields):
    """A tenant, by default the key's."""

    tenant_id: Name | None = None


class NotesQuery(TenantQuery):
    """Filters and paging of a list of notes."""

    limit: int = Field(50, ge=1, le=MAX_PAGE)
    cursor: Text = Field("", max_length=255, description="`next` of the page before.")
    collection: Name | None = None
    tag: Name | None = Field(None, description="Only notes with this tag or a tag below it.")


class HistoryOfQuery(TenantQuery):
    """A document, by its id or a path with a slash."""

    document: Text = Field(min_length=1, max_length=4096, description="Id, or a path with a slash.")
    collection: Name | None = None
    branch: Name | None = None
    project: Project = None
