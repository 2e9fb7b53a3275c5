"""Schedules, libraries and limits of a server for programs with asyncio."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, Unpack

from penstock.client import collection_calls, library_calls, limit_calls
from penstock.client import schedule_calls as calls
from penstock.client.async_transport import AsyncTransport
from penstock.client.calls import file_name, opened
from penstock.service.requests import (
    ClientLibraryOptions,
    LibraryOptions,
    ScheduleOptions,
    TimingChanges,
    Where,
    refuse_unknown,
)

if TYPE_CHECKING:
    from penstock.service.collections import CollectionRecord
    from penstock.service.libraries import IndexedLibrary
    from penstock.service.limits import LimitRecord
    from penstock.service.requests import Receipt
    from penstock.service.schedules import ScheduleRecord
    from penstock.service.uploads import UploadRecord


class AsyncSchedules:
    """The schedules of a server, with the methods of ``app.schedules``."""

    def __init__(self, client: AsyncTransport) -> None:
        self._client = client

    async def add_index(
        self,
        timing: str,
        path: str | os.PathLike[str],
        *,
        index: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleRecord:
        """Index a path of the server by the clock.

        ``index``: ``collection``, ``priority``, ``project``, ``branch`` and ``allow_external``.
        """
        return await self._client._call(calls.add_index(timing, path, index, options))

    async def add_call(
        self,
        timing: str,
        function: str,
        payload: Mapping[str, Any] | None = None,
        *,
        call: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleRecord:
        """Call a function by the clock. ``call``: ``collection``, ``priority`` and ``key`` of each call."""
        return await self._client._call(calls.add_call(timing, function, payload, call, options))

    async def add_backup(
        self,
        timing: str,
        directory: str | os.PathLike[str],
        *,
        keep: int | None = None,
        priority: int | None = None,
        allow_external: bool = False,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleRecord:
        """Back up the stores into a directory of the server by the clock. Needs an admin key."""
        given = {"keep": keep, "priority": priority, "allow_external": allow_external or None}
        return await self._client._call(calls.add_backup(timing, directory, given, options))

    async def list(self, tenant_id: str | None = None) -> list[ScheduleRecord]:
        """List the schedules of a tenant, or all that the key may see, by name."""
        found, offset = await self._client._call(calls.page(tenant_id, 0))
        while offset is not None:
            more, offset = await self._client._call(calls.page(tenant_id, offset))
            found += more
        return found

    async def show(self, name: str, *, tenant_id: str | None = None, count: int = 5) -> ScheduleRecord:
        """Show one schedule with its next times."""
        return await self._client._call(calls.show(name, tenant_id, count))

    async def change(
        self, name: str, *, tenant_id: str | None = None, **fields: Unpack[TimingChanges]
    ) -> ScheduleRecord:
        """Change ``timing``, ``zone`` or ``missed`` of a schedule."""
        return await self._client._call(calls.change(name, tenant_id, fields))

    async def pause(self, name: str, *, tenant_id: str | None = None) -> ScheduleRecord:
        """Stop running a schedule until it is resumed."""
        return await self._client._call(calls.pause(name, tenant_id))

    async def resume(self, name: str, *, tenant_id: str | None = None) -> ScheduleRecord:
        """Run a paused schedule again, from its next time on."""
        return await self._client._call(calls.resume(name, tenant_id))

    async def run_now(self, name: str, *, tenant_id: str | None = None) -> Receipt:
        """Add the job of a schedule now. Its next time stays."""
        return await self._client._call(calls.run_now(name, tenant_id))

    async def remove(self, name: str, *, tenant_id: str | None = None) -> None:
        """Remove a schedule. Jobs that it added stay."""
        await self._client._call(calls.remove(name, tenant_id))


class AsyncLibraries:
    """The libraries of a server. Paths and URLs are bound by its policy."""

    def __init__(self, client: AsyncTransport) -> None:
        self._client = client

    async def add(
        self,
        requirement: str,
        *,
        source: str | None = None,
        replace: bool = False,
        **options: Unpack[ClientLibraryOptions],
    ) -> Receipt:
        """Queue the documentation of ``NAME`` or ``NAME==VERSION``, from a path of the server or a URL."""
        return await self._client._call(library_calls.add(requirement, source, replace, options))

    async def upload(
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
            return await self._client._call(
                library_calls.upload(requirement, source, name or file_name(source), replace, options)
            )

    async def versions(self, requirement: str | None = None, **where: Unpack[Where]) -> list[IndexedLibrary]:
        """List the indexed versions of all libraries, or of one, by name and version."""
        return await self._client._call(library_calls.versions(requirement, where))

    async def remove(self, name: str, version: str, **where: Unpack[Where]) -> Receipt:
        """Queue the removal of one version. Folders and archives stay."""
        return await self._client._call(library_calls.remove(name, version, where))


class AsyncLimits:
    """The limits of a server, with the methods of ``app.limits``, for asyncio."""

    def __init__(self, client: AsyncTransport) -> None:
        self._client = client

    async def set(self, key: str, *, concurrent: int | None = None, rate: str | None = None) -> LimitRecord:
        """Set the limit of a key."""
        return await self._client._call(limit_calls.put(key, concurrent, rate))

    async def list(self) -> list[LimitRecord]:
        """List the limits by key."""
        return await self._client._call(limit_calls.every())

    async def show(self, key: str) -> LimitRecord:
        """Show the limit of a key, with the number of its jobs that have a slot or wait."""
        return await self._client._call(limit_calls.show(key))

    async def remove(self, key: str) -> None:
        """Remove a limit. Jobs that wait for it can start."""
        await self._client._call(limit_calls.remove(key))


class AsyncCollections:
    """The collections of a server, with the methods of ``app.collections``, for asyncio."""

    def __init__(self, client: AsyncTransport) -> None:
        self._client = client

    async def list(self, tenant_id: str | None = None) -> list[CollectionRecord]:
        """List the collections with documents, by tenant and name."""
        return await self._client._call(collection_calls.every(tenant_id))

    async def show(self, collection: str, *, tenant_id: str | None = None) -> CollectionRecord:
        """Show a collection, with the number of its open jobs."""
        return await self._client._call(collection_calls.show(collection, tenant_id))

    async def clear(self, collection: str, *, tenant_id: str | None = None) -> Receipt:
        """Queue the removal of all documents of a collection, in every branch."""
        return await self._client._call(collection_calls.clear(collection, tenant_id))
