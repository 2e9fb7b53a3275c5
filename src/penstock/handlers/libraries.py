"""Jobs of item type ``library``, and of folders given as web pages.

The documents of a library are below ``library://NAME/VERSION``. Versions stay beside each other; an update
removes the others once the new one is indexed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec

from penstock import retry
from penstock.catalog.pagination import known_below
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import Removal
from penstock.errors import PenstockError
from penstock.handlers.context import Context
from penstock.handlers.crawls import Crawl, CrawlScope
from penstock.handlers.fetched_files import FetchedFiles
from penstock.handlers.library_files import FoundOrSkipped, LibraryFiles
from penstock.handlers.model_check import ModelCheck
from penstock.handlers.origin_files import OriginFile, OriginFiles
from penstock.handlers.registry import Later, NotHandledHere, Wait
from penstock.handlers.reindex import OUTDATED, Reindex
from penstock.handlers.removal import remove_all
from penstock.handlers.tenant_jobs import OpenQueue
from penstock.payloads import FolderPayload, LibraryPayload, library_path
from penstock.pipeline.extract import file_types
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.walk.ignore import Unreadable, WalkRules
from penstock.pipeline.web import urls

AGAIN = timedelta(seconds=1)
SENT = "sent"
"""Cursor of an update whose files are all sent: what is left is to remove the other versions."""
BEING_INDEXED = "the new version is being indexed; the others are removed after it"


class LibraryJobs:
    """Handlers of libraries and of crawls."""

    def __init__(
        self,
        catalog: Catalog,
        pipeline: Pipeline,
        fetched: FetchedFiles,
        state_dirs: tuple[str, ...],
        open_queue: OpenQueue | None,
    ) -> None:
        self._catalog = catalog
        self._pipeline = pipeline
        self._fetched = fetched
        self._state_dirs = state_dirs
        self._open_queue = open_queue
        self._model = ModelCheck(catalog, pipeline.embedder)

    def crawl(self, context: Context) -> Any:
        """Index a web page, and the linked pages."""
        self._model.check()
        payload = msgspec.convert(context.payload, FolderPayload)
        start = urls.canonical(payload.folder_path)
        scope = CrawlScope(payload, start)
        files = OriginFiles(self._catalog, self._pipeline, context, payload, start)
        return files.ended(Crawl(context, self._fetched, files, scope).run())

    def ingest(self, context: Context) -> Any:
        """Index a version of a library, beside the others."""
        self._model.check()
        payload = msgspec.convert(context.payload, LibraryPayload)
        if context.metadata.get(OUTDATED):
            return Reindex(self._catalog, self._pipeline, context, payload.root).run()
        files, result = self._index(context, payload)
        return files.ended(result)

    def update(self, context: Context) -> Any:
        """Index a version of a library, then remove the others."""
        self._model.check()
        payload = msgspec.convert(context.payload, LibraryPayload)
        cursor = context.cursor
        if not isinstance(cursor, dict) or SENT not in cursor:
            _, result = self._index(context, payload)
            cursor = {SENT: {name: result[name] for name in result if name != "types"}}
            context.expand([], cursor)
        if self._open_children(context):
            return Later(BEING_INDEXED, AGAIN)
        result = cursor[SENT] | self._remove_others(context, payload)
        return Wait(result_json=msgspec.json.encode(result).decode())

    def delete(self, context: Context) -> dict[str, Any]:
        """Remove a version of a library."""
        payload = msgspec.convert(context.payload, LibraryPayload)
        return {"outcome": "removed", "removed": self._remove(context, payload.root)}

    def _index(self, context: Context, payload: LibraryPayload) -> tuple[OriginFiles, dict[str, Any]]:
        try:
            return self._index_files(context, payload)
        except PenstockError as error:
            if payload.source_name is not None and retry.classify(error).kind == "permanent":
                self._drop_archive(context, payload)
            raise

    def _drop_archive(self, context: Context, payload: LibraryPayload) -> None:
        """Remove an unreadable archive of a library without documents: nothing else would remove the file."""
        if not any(True for _ in known_below(self._catalog, context.place, payload.root)):
            self._fetched.remove(context.place, payload.root, asked_at=context.asked_at)

    def _index_files(self, context: Context, payload: LibraryPayload) -> tuple[OriginFiles, dict[str, Any]]:
        files = OriginFiles(self._catalog, self._pipeline, context, payload, payload.root)
        if payload.source_url is not None and not _names_archive(payload.source_url):
            scope = CrawlScope(payload, urls.canonical(payload.source_url), payload.root)
            return files, Crawl(context, self._fetched, files, scope).run()
        seen: set[str] = set()
        unreadable = False
        for found in self._found(context, payload):
            if isinstance(found, OriginFile):
                seen.add(found.path)
                files.add(found)
            elif isinstance(found, Unreadable):
                unreadable = True
            else:
                files.skip(f"{payload.root}/{found.path}", found.rule, found.detail)
        if seen and not unreadable and payload.operation == "index":
            for known in known_below(self._catalog, context.place, payload.root):
                if known.path not in seen and known.published_id is not None:
                    files.remove(known.path)
        return files, files.finish()

    def _found(self, context: Context, payload: LibraryPayload) -> Iterator[FoundOrSkipped]:
        rules = WalkRules(
            include=payload.patterns,
            exclude=payload.ignore_patterns,
            include_code=payload.include_code,
            max_bytes=self._pipeline.limits.file_bytes,
            max_depth=payload.recursive_depth if payload.recursive else 1,
            use_gitignore=False,
            state_dirs=self._state_dirs,
        )
        source = payload.source_url or payload.source_name or payload.source_path or "installed"
        found = LibraryFiles(self._pipeline, rules, payload.root, source, pictures=bool(payload.ocr))
        if payload.source_path is not None:
            if payload.source_name is not None:
                self._fetched.take(context.place, payload.root, payload.source_path)
            return found.found_at(payload.source_path)
        if payload.source_url is None:
            return found.installed(payload.library_name, payload.library_version)
        archive = self._fetched.fetch(
            context.place,
            lambda _: payload.root,
            urls.canonical(payload.source_url),
            lambda url: self._fetched.wait_turn(urls.host_of(url), 0.0, context.checkpoint),
        )
        return found.found_at(os.path.realpath(archive.body))

    def _open_children(self, context: Context) -> bool:
        if self._open_queue is None:
            raise NotHandledHere("an update of a library needs the queue")
        with self._open_queue() as queue:
            job = queue.get(context.job_id)
        return job is not None and job.children_open > 0

    def _remove_others(self, context: Context, payload: LibraryPayload) -> dict[str, Any]:
        """Remove the other versions, unless nothing of the new one could be indexed."""
        name = library_path(payload.library_name)
        versions: dict[str, bool] = {}
        for known in known_below(self._catalog, context.place, name):
            version = "/".join(known.path[len(name) + 1 :].split("/")[:1])
            versions[version] = versions.get(version, False) or known.published_id is not None
        if not versions.pop(payload.library_version, False):
            return {"note": "no file of the new version was indexed; the others stay"}
        removed = sum(self._remove(context, f"{name}/{version}") for version in versions)
        return {"removed": removed, "replaced": sorted(version for version, live in versions.items() if live)}

    def _remove(self, context: Context, root: str) -> int:
        claim = context.claim
        removal = Removal(
            tenant_id=claim.tenant_id,
            collection=claim.collection,
            branch=claim.branch,
            path=root,
            asked_at=context.asked_at,
        )
        removed = remove_all(self._catalog, removal)
        # A downloaded or uploaded archive has no document of its own.
        self._fetched.remove(context.place, root, asked_at=context.asked_at)
        return removed


def _names_archive(url: str) -> bool:
    return file_types.is_archive_name(url.partition("#")[0].partition("?")[0])
