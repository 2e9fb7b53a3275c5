"""Calls about libraries, pure like ``calls``, and ``ClientLibraries`` for programs with threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from penstock.client.calls import ApiCall, _id, _same, _submission, _target
from penstock.client.schedule_calls import Performer

if TYPE_CHECKING:
    from penstock.service.documents import Where
    from penstock.service.libraries import IndexedLibrary, LibraryOptions
    from penstock.service.responses import Receipt

    class ClientLibraryOptions(LibraryOptions, total=False):
        """Options of ``ClientLibraries.add``: those of the library, and ``allow_external``."""

        allow_external: bool


def add(requirement: str, source: str | None, replace: bool, options: Mapping[str, Any]) -> ApiCall[Receipt]:
    """Queue a version of a library."""
    given = dict(options)
    target = _target("/library", {"allow_external": given.pop("allow_external", None) or None})
    return _submission(target, {"requirement": requirement, "source": source, "replace": replace, **given})


def versions(requirement: str | None, where: Mapping[str, Any]) -> ApiCall[list[IndexedLibrary]]:
    """List indexed versions."""
    from penstock.service.libraries import IndexedLibrary

    target = _target("/library", {"requirement": requirement, **where})
    kind: Any = dict[str, Any]
    return ApiCall(
        "GET", target, kind, lambda value: msgspec.convert(value["libraries"], list[IndexedLibrary])
    )


def remove(name: str, version: str, where: Mapping[str, Any]) -> ApiCall[Receipt]:
    """Queue the removal of one version."""
    from penstock.service.responses import Receipt

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

    def versions(self, requirement: str | None = None, **where: Unpack[Where]) -> list[IndexedLibrary]:
        """List the indexed versions of all libraries, or of one, by name and version."""
        return self._client._call(versions(requirement, where))

    def remove(self, name: str, version: str, **where: Unpack[Where]) -> Receipt:
        """Queue the removal of one version. Folders and archives stay."""
        return self._client._call(remove(name, version, where))
