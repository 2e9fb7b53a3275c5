"""Calls about libraries, pure like ``calls``, and ``ClientLibraries`` for programs with threads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Unpack

import msgspec

from penstock.client.calls import ApiCall, _id, _same, _submission, _target, file_name, opened, sent_file
from penstock.client.schedule_calls import Performer
from penstock.errors import InvalidRequest
from penstock.service.requests import (
    ClientLibraryOptions,
    LibraryOptions,
    Where,
    refuse_unknown,
    texts,
)

if TYPE_CHECKING:
    from penstock.service.libraries import IndexedLibrary
    from penstock.service.requests import Receipt
    from penstock.service.uploads import UploadRecord


def add(requirement: str, source: str | None, replace: bool, options: Mapping[str, Any]) -> ApiCall[Receipt]:
    """Queue a version of a library."""
    refuse_unknown("libraries.add", options, ClientLibraryOptions)
    given = dict(options)
    target = _target("/library", {"allow_external": given.pop("allow_external", None) or None})
    return _submission(target, {"requirement": requirement, "source": source, "replace": replace, **given})


def upload(
    requirement: str, file: BinaryIO, name: str, replace: bool, options: Mapping[str, Any]
) -> ApiCall[UploadRecord]:
    """Send an archive of a library, and queue it."""
    from penstock.service.uploads import UploadRecord

    given = dict(options)
    refused = [option for option in ("hosts", "max_pages") if given.pop(option, None)]
    if refused:
        raise InvalidRequest(f"{refused[0]}: for web pages only, not for a file")
    given["patterns"] = texts("include", given.pop("include", None) or ())
    query = {"requirement": requirement, "name": name, "replace": replace or None} | given
    return sent_file(_target("/library", query), file, UploadRecord)


def versions(requirement: str | None, where: Mapping[str, Any]) -> ApiCall[list[IndexedLibrary]]:
    """List indexed versions."""
    refuse_unknown("libraries.versions", where, Where)
    from penstock.service.libraries import IndexedLibrary

    target = _target("/library", {"requirement": requirement, **where})
    kind: Any = dict[str, Any]
    return ApiCall(
        "GET", target, kind, lambda value: msgspec.convert(value["libraries"], list[IndexedLibrary])
    )


def remove(name: str, version: str, where: Mapping[str, Any]) -> ApiCall[Receipt]:
    """Queue the removal of one version."""
    refuse_unknown("libraries.remove", where, Where)
    from penstock.service.requests import Receipt

    target = _target(f"/library/{_id(name)}/{_id(version)}", where)
    return ApiCall("DELETE", target, Receipt, _same, repeatable=False, patience="index")


class ClientLibraries:
    """The libraries of a server. Paths and URLs are bound by its policy."""

    def __init__(self, client: Performer) -> None:
        self._client = client

    def add(
        self,
        requirement: str,
        *,
        source: str | None = None,
        replace: bool = False,
        **options: Unpack[ClientLibraryOptions],
    ) -> Receipt:
        """Queue the documentation of ``NAME`` or ``NAME==VERSION``, from a path of the server or a URL."""
        return self._client._call(add(requirement, source, replace, options))

    def upload(
        self,
        requirement: str,
        file: str | os.PathLike[str] | BinaryIO,
        *,
        name: str | None = None,
        replace: bool = False,
        **options: Unpack[LibraryOptions],
    ) -> UploadRecord:
        """Send an archive or wheel of this machine, and index it as ``NAME`` or ``NAME==VERSION``."""
        refuse_unknown("libraries.upload", options, LibraryOptions)
        with opened(file) as source:
            return self._client._call(
                upload(requirement, source, name or file_name(source), replace, options)
            )

    def versions(self, requirement: str | None = None, **where: Unpack[Where]) -> list[IndexedLibrary]:
        """List the indexed versions of all libraries, or of one, by name and version."""
        return self._client._call(versions(requirement, where))

    def remove(self, name: str, version: str, **where: Unpack[Where]) -> Receipt:
        """Queue the removal of one version. Folders and archives stay."""
        return self._client._call(remove(name, version, where))
