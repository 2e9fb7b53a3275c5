"""Tools and resources of the MCP server as plain methods: each calls a service and returns a text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from penstock.errors import InvalidRequest, UnknownDocument
from penstock.mcp import texts
from penstock.service import paths
from penstock.service.access import LOCAL, KeyScope, PathPolicy, Principal
from penstock.service.documents import DocumentRecords, Documents
from penstock.service.job_views import JobDetail, JobRecords, SubmitRecord
from penstock.service.jobs import Jobs
from penstock.service.projects import Placement, SearchScope, WantedPlace

if TYPE_CHECKING:
    from penstock.assembly import Assembly
    from penstock.catalog.values import Source

MOST_HITS, MOST_DOCUMENTS, MOST_TOKENS = 50, 200, 50_000


class Toolbox:
    """The tools for one agent: ``principal`` bounds its tenants and scope, ``policy`` its paths.

    Without a policy, paths are those of the person who started the server. Safe to use from several threads.
    """

    def __init__(
        self, assembly: Assembly, *, policy: PathPolicy | None = None, principal: Principal = LOCAL
    ) -> None:
        self._assembly = assembly
        self._policy = policy
        self._principal = principal
        # Jobs get the priorities of agents, also inside an HTTP server.
        self._work = Jobs(assembly.queue, assembly.settings, door="mcp")
        self._index = Documents(assembly.catalog, self._work, assembly.settings, principal)
        self._jobs = JobRecords(self._work)
        self._documents = DocumentRecords(self._index)

    # Search.

    def search(
        self,
        query: str,
        limit: int = 8,
        collection: str | None = None,
        path: str | None = None,
        mode: Literal["hybrid", "keyword", "vector"] = "hybrid",
        library: str | None = None,
        project: str | None = None,
        every: bool = False,
    ) -> str:
        """Hits of a query, with places and snippets."""
        self._require("read")
        found = self._assembly.search.ask(
            query,
            limit=_within("limit", limit, MOST_HITS),
            mode=mode,
            collection=collection,
            path=path,
            library=library,
            within=self._scope(project, library, every=every),
        )
        return texts.search_text(found)

    def context(
        self, query: str, max_tokens: int = 2_000, project: str | None = None, every: bool = False
    ) -> str:
        """Passages of a query within a budget of tokens, with numbers to cite."""
        self._require("read")
        budget = _within("max_tokens", max_tokens, MOST_TOKENS)
        found = self._assembly.search.context(
            query, max_tokens=budget, within=self._scope(project, every=every)
        )
        return texts.context_text(found)

    def graph_neighbours(self, name: str, hops: int = 1) -> str:
        """Entities and relations around a name."""
        self._require("read")
        found = self._assembly.graph.neighbours(
            name, hops=_within("hops", hops, 4), tenant_id=self._place().tenant_id
        )
        return texts.neighbourhood_text(found)

    # Work.

    def add_note(
        self, text: str, tags: list[str] | None = None, collection: str | None = None
    ) -> SubmitRecord:
        """Queue a note."""
        self._require("write")
        receipt = self._index.note(text, tag=tags, collection=collection, tenant_id=self._tenant())
        return self._jobs.receipt(receipt)

    def index_path(
        self,
        path: str,
        include_code: bool | None = None,
        collection: str | None = None,
        project: bool | None = None,
    ) -> SubmitRecord:
        """Queue a file or folder."""
        self._require("write")
        receipt = self._index.index(
            self._resolve(path),
            include_code=include_code,
            collection=collection,
            project=project,
        )
        return self._jobs.receipt(receipt)

    def job(self, job_id: str) -> JobDetail:
        """One job of this agent's tenants."""
        self._require("read")
        return self._jobs.detail(self._jobs.own(job_id, self._principal.tenants))

    def cancel_job(self, job_id: str) -> str:
        """Cancel a job, or ask its worker to stop."""
        self._require("write")
        self._jobs.own(job_id, self._principal.tenants)
        answer = self._work.cancel(job_id)
        return f"{answer.status}: {answer.message}"

    def retry_job(self, job_id: str) -> str:
        """Queue a failed or cancelled job again."""
        self._require("write")
        self._jobs.own(job_id, self._principal.tenants)
        self._index.retry(job_id)
        return texts.job_text(self.job(job_id))

    # Documents.

    def list_documents(self, path: str | None = None, limit: int = 50, project: str | None = None) -> str:
        """Documents, one a line; ``path`` is a glob or a folder."""
        self._require("read")
        most = _within("limit", limit, MOST_DOCUMENTS)
        filters = self._scope(project).without_notes().filters[0]
        found = self._documents.page(
            path=path, limit=most, tenant_id=filters["tenant_id"], branch=filters.get("branch")
        )
        return texts.documents_text(found)

    def read_document(self, path_or_id: str, page: int = 1) -> str:
        """The text of one page of a document."""
        self._require("read")
        found = self._source(path_or_id)
        return texts.page_text(self._index.page(found.source_id, page, tenant_id=found.place.tenant_id))

    def why(self, path: str, project: str | None = None, every: bool = False) -> str:
        """The reason why search does, or does not, find a path."""
        self._require("read")
        return texts.reason_text(self._index.why(self._named(path), project=project, all=every))

    # Resources.

    def job_resource(self, job_id: str) -> str:
        """A job as JSON."""
        return _as_json(self.job(job_id))

    def document_resource(self, source_id: str) -> str:
        """A document with its versions and pages as JSON."""
        self._require("read")
        own = self._documents.own(source_id, self._principal.tenants)
        return _as_json(self._documents.detail(own))

    def chunk_resource(self, address: str) -> str:
        """The text of a chunk, by the ids of its document and its own."""
        self._require("read")
        source_id, _, chunk_id = address.rpartition(".")
        own = self._documents.own(source_id, self._principal.tenants)
        with self._assembly.catalog.snapshot() as snapshot:
            found = snapshot.locate(own.source_id, [chunk_id])
            views = snapshot.hydrate(list(found.values()))
        if not views or views[0] is None:
            raise UnknownDocument(f"no chunk {chunk_id[:80]!a} in search", remedy="Search again.")
        return views[0].text

    def _resolve(self, path: str) -> str:
        """From a path as the agent wrote it to the path that may be used; raises ``PathOutside``."""
        if self._policy is not None:
            return self._policy.allowed(path, allow_external=True)
        return paths.off_disk(path) or os.path.abspath(path)  # noqa: PTH100 - links stay

    def _named(self, path: str) -> str:
        """The path of a document. Documents of web pages and libraries need no permission to fetch."""
        paths.refuse_unusable(path)
        if self._policy is not None and self._principal.confined:
            return self._policy.document(path, self._index.knows)
        return paths.off_disk(path) or self._resolve(path)

    def _source(self, path_or_id: str) -> Source:
        """The document with an id, or at a path."""
        try:
            return self._documents.own(path_or_id.removeprefix("document://"), self._principal.tenants)
        except UnknownDocument:
            return self._index.source(self._named(path_or_id))

    @property
    def _is_person(self) -> bool:
        """The agent works for the person who started the server, in the folder of the server."""
        return self._principal is LOCAL

    def _place(self) -> Placement:
        """Tenant and branch of documents in the folder of the server, for a person; see decision 0073."""
        if not self._is_person:
            return Placement(self._tenant())
        return self._index.projects.for_reading(os.curdir, WantedPlace())

    def _scope(
        self, project: str | None = None, library: str | None = None, *, every: bool = False
    ) -> SearchScope:
        """The scope of a search: as asked for, else the project of the folder of the server.

        Libraries belong to the person, not to a project.
        """
        projects = self._index.projects
        if project is not None or every or library is not None or not self._is_person:
            return projects.search_scope(project=project, every=every)
        return projects.scope_at(self._place())

    def _tenant(self) -> str:
        return self._principal.tenant(None, self._assembly.settings.tenant_id)

    def _require(self, scope: KeyScope) -> None:
        self._principal.require(scope)


def _within(name: str, given: int, most: int) -> int:
    if not 1 <= given <= most:
        raise InvalidRequest(f"{name}: expected 1 to {most:,}, got {given}")
    return given


def _as_json(record: Any) -> str:
    return msgspec.json.encode(record).decode()
