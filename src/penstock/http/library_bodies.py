"""Bodies of requests to add a library: as JSON, or with an upload."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from penstock.http.request_bodies import MAX_PATTERNS, Name, PlaceBody, Text, Whole

Requirement = Annotated[Text, Field(min_length=1, max_length=500)]


class LibraryFields(PlaceBody):
    """Options of a request to add a library."""

    replace: bool = Field(False, description="Remove the other versions once this one is indexed.")
    patterns: list[Name] = Field([], max_length=MAX_PATTERNS, description="Index only matching files.")
    exclude: list[Name] = Field([], max_length=MAX_PATTERNS, description="Leave out matching files.")
    include_code: bool | None = Field(None, description="Index source code; by default it is.")
    depth: Whole | None = Field(
        None, ge=0, le=10_000, description="Maximum folder depth; of a URL, the links followed from it."
    )
    graph: bool | None = Field(None, description="Extract entities and relations, or remove them.")
    ocr: bool | None = Field(None, description="Recognize text in pictures, too.")
    force: bool = Field(False, description="Index unchanged files again.")
    retry_failed: bool = Field(False, description="Read unchanged files again that failed before.")
    priority: Whole | None = Field(None, ge=0, le=10, description="0 (bulk) to 10 (a person is waiting).")


class LibraryBody(LibraryFields):
    """A version of a library, and where its documentation is."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={"examples": [{"requirement": "mill==1.2", "source": "mill-1.2.tar.gz"}]},
    )

    requirement: Requirement = Field(
        description="NAME or NAME==VERSION; without a version, the one that the source states."
    )
    source: Text | None = Field(
        None,
        min_length=1,
        max_length=4096,
        description="Folder, archive or wheel below a root of the server, or a URL. Without it, the "
        "installed distribution is read, which needs `allow_external`.",
    )
    hosts: list[Name] = Field([], max_length=100, description="Further hosts that links may lead to.")
    max_pages: Whole | None = Field(None, ge=1, le=100_000, description="Maximum number of web pages.")


class LibraryUploadFields(LibraryFields):
    """Options of an uploaded library, as texts: in the query, or as parts of a multipart body."""

    model_config = ConfigDict(extra="forbid", strict=False, frozen=True)

    requirement: Requirement | None = Field(
        None, description="NAME or NAME==VERSION; without a version, the one in the name of the file."
    )
    name: Name | None = Field(None, description="Name of the file; by default that of the part `file`.")
