"""Child jobs for the files inside another file.

A container that is read sends its members; see ``container_members``. One that is unchanged, and is not read,
may still have members to read: they failed and are to be tried again, their jobs were lost, or another way of
making documents was asked for.
"""

from __future__ import annotations

import msgspec

from penstock import clock, items
from penstock.catalog.pagination import known_below
from penstock.catalog.protocol import Catalog
from penstock.catalog.rules.path_scope import at_and_above
from penstock.catalog.views import KnownSource, Source
from penstock.handlers.child_jobs import file_job
from penstock.handlers.container_paths import may_hold_members
from penstock.handlers.context import MAX_CHILDREN, Context
from penstock.handlers.file_comparison import FileComparison
from penstock.handlers.file_request import FileRequest
from penstock.handlers.reindex import OUTDATED
from penstock.job import NewJob
from penstock.payloads import FilePayload
from penstock.pipeline.extract import file_types
from penstock.pipeline.pipeline import Pipeline


def member_job(
    context: Context, request: FileRequest, path: str, size: int, *, archives: bool | None = None
) -> NewJob:
    """A child job for one file inside a container. ``archives``: by default as for the container."""
    payload = FilePayload(
        file_path=path,
        size_bytes=size,
        chunk_size=context.payload.get("chunk_size"),
        chunk_overlap=context.payload.get("chunk_overlap"),
        graph=request.graph,
        gate=request.gate.value,
        archives=request.archives if archives is None else archives,
        ocr=request.ocr,
    )
    metadata = context.metadata | {items.ASKED_AT: context.asked_at.isoformat()}
    if request.retry_failed:
        metadata[items.RETRY_FAILED] = True
    if request.delivered is not None:
        read_from = request.read_from + path[len(request.path) :]
        delivered = msgspec.structs.replace(request.delivered, read_from=read_from, source_type=None)
        metadata[items.ARRIVAL] = msgspec.to_builtins(delivered)
    encoded = msgspec.json.encode(metadata).decode()
    priority = items.child_priority(context.claim.priority)
    return file_job(context, clock.new_id(), "ingest", payload, priority=priority, metadata=encoded)


def send_outdated(
    catalog: Catalog, pipeline: Pipeline, context: Context, request: FileRequest, known: Source, mtime_ns: int
) -> bool:
    """Send jobs for outdated members of an unchanged container; False: none is outdated.

    ``mtime_ns``: the time of the container, which its members have too.
    """
    # A reindex sends the members itself.
    if context.metadata.get(OUTDATED) or not may_hold_members(request.path):
        return False
    # The content of the container is known to be the same, and with it that of its members.
    asked = context.metadata | {"checksum": False, items.RETRY_FAILED: request.retry_failed}
    graph = context.payload.get("graph")
    comparison = FileComparison(pipeline, request.sizes, asked, graph=graph, ocr=request.ocr)
    found = _outdated(catalog, comparison, known, mtime_ns)
    for start in range(0, len(found), MAX_CHILDREN):
        some = found[start : start + MAX_CHILDREN]
        context.expand(
            [
                # An archive is known only because it was to be opened.
                member_job(context, request, one.path, one.size, archives=_opens(request, one.path))
                for one in some
            ]
        )
    return bool(found)


def _outdated(
    catalog: Catalog, comparison: FileComparison, known: Source, mtime_ns: int
) -> list[KnownSource]:
    """Outdated members. A member inside another outdated one is left to the job of that one."""
    found: dict[str, KnownSource] = {}
    for member in known_below(catalog, known.place, known.path, after=known.path):
        live = member.published_id is not None or member.building_id is not None
        left = found.keys().isdisjoint(at_and_above(member.path))
        if live and left and comparison.member_outdated(member, mtime_ns):
            found[member.path] = member
    return list(found.values())


def _opens(request: FileRequest, path: str) -> bool:
    return request.archives or file_types.is_archive_name(path)
