"""Services for commands: the same methods on the stores of this machine and on a server.

``LocalServices`` has the methods of ``Client`` that commands use, so that a command does not see which of the
two it has, and prints the same.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from penstock.errors import InvalidSetting, PenstockError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from penstock.assembly import Assembly
    from penstock.catalog.graph import GraphCounts, Neighbourhood
    from penstock.catalog.values import PageState, Source
    from penstock.client.graph_calls import Way
    from penstock.client.sync_client import Client
    from penstock.config import Settings
    from penstock.queue.job import Job, Scope
    from penstock.service.documents import Overview
    from penstock.service.graph import EntityReport
    from penstock.service.hits import Hit, SearchResult
    from penstock.service.job_views import DocumentView, JobListing, JobOutcome, JobView
    from penstock.service.notes import NoteView
    from penstock.service.pages import ShownPage
    from penstock.service.passages import PromptContext
    from penstock.service.projects import ProjectFolder
    from penstock.service.requests import CancelAnswer, HistoryEntry, RetryAnswer, Stats
    from penstock.service.why import Reason

    Services: TypeAlias = "LocalServices | Client"

RETRY_FOR_S = 10.0
"""Time for which a command sends a request again. A full queue is reported at once, as it is without a
server: it asks for a longer wait."""
_PROBED_WITHIN_S = 2.0


class LocalServices:
    """The services of an assembly under the names that a client has for them."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly

    # Jobs.

    def job(self, id_or_prefix: str) -> Job:
        return self._assembly.jobs.job(id_or_prefix)

    def jobs(self, **filters: Any) -> list[Job]:
        return self._assembly.jobs.jobs(**filters)

    def view(self, id_or_prefix: str) -> JobView:
        from penstock.service.job_views import job_view

        return job_view(self._assembly.jobs, self.job(id_or_prefix))

    def listing(self, **filters: Any) -> JobListing:
        from penstock.service.job_views import listing

        return listing(self._assembly.jobs, self.jobs(**filters))

    def outcome(self, id_or_prefix: str) -> JobOutcome:
        from penstock.service.job_views import job_outcome

        return job_outcome(self._assembly.documents, self.job(id_or_prefix))

    def cancel(self, id_or_prefix: str) -> CancelAnswer:
        return self._assembly.jobs.cancel(id_or_prefix)

    def retry(self, id_or_prefix: str) -> Job:
        return self._assembly.documents.retry(id_or_prefix)

    def stats(self) -> Stats:
        return self._assembly.jobs.stats()

    def retry_failed(self, **filters: Any) -> RetryAnswer:
        return self._assembly.jobs.retry_failed(**filters)

    def purge(self, *, status: Sequence[str], older_than: timedelta) -> int:
        return self._assembly.jobs.purge(status=status, older_than=older_than)

    def pause(self, *, tenant_id: str | None, collection: str | None) -> Scope:
        return self._assembly.jobs.pause(tenant_id=tenant_id, collection=collection)

    def resume(self, *, tenant_id: str | None, collection: str | None) -> int:
        return self._assembly.jobs.resume(tenant_id=tenant_id, collection=collection)

    # Documents.

    def documents(self, *, after: str, limit: int, **filters: Any) -> list[Source]:
        return self._assembly.documents.sources(after=after, limit=limit, **filters)

    def document(self, path_or_id: str, **where: Any) -> DocumentView:
        from penstock.service.job_views import document_view

        documents = self._assembly.documents
        return document_view(documents, documents.source(path_or_id, **where))

    def page(self, path_or_id: str, number: int, **where: Any) -> ShownPage:
        return self._assembly.documents.page(path_or_id, number, **where)

    def overview(self, tenant_id: str | None) -> Overview:
        return self._assembly.documents.overview(tenant_id)

    def projects(self) -> Sequence[ProjectFolder]:
        return self._assembly.documents.projects.roots()

    def history(self, path_or_id: str, **where: Any) -> list[HistoryEntry]:
        return self._assembly.documents.history(path_or_id, **where)

    def pages(self, source_id: str, *, limit: int) -> list[PageState]:
        from penstock.service.job_views import page_states

        return page_states(self._assembly.documents, source_id, limit)

    def notes(self, **filters: Any) -> list[NoteView]:
        return self._assembly.documents.notes.page(**filters)

    def read_note(self, note_id: str, *, tenant_id: str | None) -> NoteView:
        return self._assembly.documents.notes.read(note_id, tenant_id=tenant_id)

    def why(self, path: str, **where: Any) -> Reason:
        return self._assembly.documents.why(path, **where)

    def ask(self, query: str, **options: Any) -> SearchResult:
        return self._assembly.search.ask(query, **options)

    def context(self, query: str, **options: Any) -> PromptContext:
        return self._assembly.search.context(query, **options)

    def similar(self, path_or_id: str, line: int | None, **options: Any) -> list[Hit]:
        return self._assembly.similar.similar(path_or_id, line, **options)

    def graph_entity(self, name: str, **options: Any) -> list[EntityReport]:
        return self._assembly.graph.entity(name, **options)

    def graph_neighbours(self, name: str, **options: Any) -> Neighbourhood:
        return self._assembly.graph.neighbours(name, **options)

    def graph_path(self, source: str, target: str, *, tenant_id: str | None) -> Way | None:
        return self._assembly.graph.path(source, target, tenant_id=tenant_id)

    def graph_counts(self, tenant_id: str | None) -> GraphCounts:
        return self._assembly.graph.counts(tenant_id)


def make_client(settings: Settings, url: str) -> Client:
    """A client of a server, with the key of the settings."""
    from penstock.client.sync_client import Client

    return Client(url, _key(settings), retry_for=RETRY_FOR_S)


def _key(settings: Settings) -> str | None:
    """The key, or the content of the key file, which only its owner may read."""
    if settings.api_key is not None or settings.api_key_file is None:
        return settings.api_key
    place = Path(settings.api_key_file)
    try:
        if place.stat().st_mode & 0o077:
            raise InvalidSetting(
                f"others may read the key file {place}", remedy=f"Protect it: chmod 600 {place}"
            )
        return place.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        cause = error.strerror if isinstance(error, OSError) else "not a key"
        raise InvalidSetting(
            f"the key file {place} cannot be read ({cause})", remedy="Correct PENSTOCK_API_KEY_FILE."
        ) from None


def discovered(settings: Settings) -> Client | None:
    """A client of the server that runs for the same state with the same settings, if it accepts this user.

    The server has the same stores, so what it does not answer can be read from them.
    """
    from penstock.service.runtime_file import RuntimeFile, settings_digest

    server = RuntimeFile(settings.state_dir).find()
    if server is None or server.settings != settings_digest(settings):
        return None
    from penstock.client.sync_client import Client

    try:
        with Client(server.url, _key(settings), query_timeout=_PROBED_WITHIN_S, retry_for=0.0) as probe:
            usable = probe.ready().ready
    except PenstockError:
        return None
    return make_client(settings, server.url) if usable else None


def is_this_host(url: str) -> bool:
    """Tell whether paths mean the same for a server: its address is one of this machine only."""
    # Imported here: most commands use no server.
    import ipaddress

    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def server_path(url: str, path: str) -> str:
    """A path as a server has to get it: absolute on this machine, as given for another one."""
    # Imported here: the help of a command loads this module.
    from penstock.queue.payloads import is_off_disk

    here = is_this_host(url) and not is_off_disk(path)
    return os.path.abspath(path) if here else path  # noqa: PTH100 - links stay
