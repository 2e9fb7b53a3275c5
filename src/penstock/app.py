"""``Penstock``: the face of the library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, Unpack

from penstock import config
from penstock.assembly import Assembly
from penstock.config import Settings
from penstock.errors import InvalidSetting
from penstock.queue.engine import wait_for
from penstock.queue.job import Job
from penstock.service.functions import FunctionJobs
from penstock.service.requests import Receipt

if TYPE_CHECKING:
    from penstock.service.collections import Collections
    from penstock.service.documents import Documents
    from penstock.service.hits import Hit, SearchResult
    from penstock.service.limits import LimitRecord, Limits
    from penstock.service.passages import PromptContext
    from penstock.service.requests import (
        ContextOptions,
        IndexOptions,
        SearchRequest,
        SimilarOptions,
        WhyOptions,
    )
    from penstock.service.schedules import Schedules
    from penstock.service.upkeep import Verifier
    from penstock.service.why import Reason


class Penstock(FunctionJobs):
    """An open queue with its jobs, functions and documents. All threads of a process may share one.

        with Penstock("sqlite:///queue.db") as app:
            receipt = app.submit(item_type="content", op="ingest", payload={"content": "The mill runs."})
            print(app.job(receipt.job_id).status)

    Without a URL the settings name the queue: by default SQLite in the state directory. ``queue`` is the
    protocol itself, for workers.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        state_dir: str | PathLike[str] | None = None,
        settings: Settings | None = None,
    ) -> None:
        if settings is not None and (url is not None or state_dir is not None):
            raise InvalidSetting("settings already name the queue; leave out url and state_dir")
        settings = settings or config.load(url=url, state_dir=state_dir)
        self._assembly = Assembly(settings, jobs=lambda _: self)
        super().__init__(self._assembly.queue, settings)

    def wait(self, id_or_prefix: str, *, run: int | None = None, timeout: float | None = None) -> Job:
        """Wait until the given run of a job has ended, or without ``run`` the whole job, and return the job.

            receipt = app.submit(item_type="file", op="ingest", payload={"file_path": "/srv/a.pdf"})
            job = app.wait(receipt.job_id, run=receipt.run, timeout=60)

        The returned status may belong to a later run. Raises ``TimeoutError`` after ``timeout`` seconds.
        """
        job = self.job(id_or_prefix)

        def reached() -> bool:
            nonlocal job
            job = self.job(job.queue_id)
            return job.ended or (run is not None and job.run > run)

        if not wait_for(self.queue, reached, timeout):
            raise TimeoutError(f"job {job.queue_id} was still {job.status} after {timeout:g} seconds")
        return job

    def run_worker(
        self,
        *,
        processes: int = 1,
        until_idle: bool = False,
        grace: float = 30.0,
        app: str | None = None,
        start_method: Literal["spawn", "fork"] = "spawn",
    ) -> None:
        """Run a worker with child processes until a stop signal or (``until_idle``) until no job can run.

            if __name__ == "__main__":
                app.run_worker(processes=4)

        Child processes load the application again by its name: it has to be a global of a module. Use ``app``
        (``mypkg.tasks:app``) where the name cannot be found. ``grace`` is the time in seconds for running
        jobs to finish after the first SIGTERM or SIGINT; then they are released, no retry spent.
        ``start_method`` "fork" starts processes faster and shares loaded modules, where the application can
        be forked.
        """
        from penstock import application

        application.refuse_while_loading()
        worker = self._assembly.worker(
            app=app if app is not None else application.name_of(self),
            processes=processes,
            until_idle=until_idle,
            grace=grace,
            start_method=start_method,
        )
        worker.run()

    @contextmanager
    def worker_thread(self) -> Iterator[None]:
        """Run a worker in a thread of this process, for tests and small scripts.

            with app.worker_thread():
                receipt = app.call("double", {"n": 21})
                app.wait(receipt.job_id, timeout=10)

        Nothing is killed: timeouts are not enforced, and a cancel counts at the next checkpoint.
        """
        from penstock.worker.in_process import ThreadWorker
        from penstock.worker.launch import leases, write_backup

        self.functions.write_backup = partial(write_backup, self._assembly)

        worker = ThreadWorker(
            self.queue,
            self.handlers(),
            lease=timedelta(seconds=self.settings.lease_s),
            lease_by_type=leases(self.settings),
            open_documents=lambda handlers: self._assembly.open_document_tools(
                handlers, lambda: nullcontext(self.queue)
            ),
        )
        worker.start()
        try:
            yield
        finally:
            worker.stop()

    @property
    def schedules(self) -> Schedules:
        """Jobs by the clock: calls of functions, and re-indexing; see ``Schedules``.

        app.schedules.add_call("0 3 * * *", "report", zone="Europe/Berlin", replace=True)
        """
        from penstock.service.schedules import Schedules

        return Schedules(self, lambda: self.documents)

    @property
    def limits(self) -> Limits:
        """Limits by key: how many jobs run at once, and start in a period; see ``Limits``."""
        from penstock.service.limits import Limits

        return Limits(self.queue)

    def limit(self, key: str, *, concurrent: int | None = None, rate: str | None = None) -> LimitRecord:
        """Set the limit of a key, on all hosts; the same limit again changes nothing.

            app.limit("embeddings", rate="60/min", concurrent=4)

            @app.function(limit="embeddings")
            def embed(payload): ...

        A rate is spread evenly: 60/min is one start a second. Retries count, too.
        """
        return self.limits.set(key, concurrent=concurrent, rate=rate)

    # Documents.

    @property
    def collections(self) -> Collections:
        """Collections of documents: list, show, clear; see ``Collections``."""
        from penstock.service.collections import Collections

        return Collections(self.documents.catalog, self)

    @property
    def documents(self) -> Documents:
        """Everything known of sources and their generations; opened at the first use."""
        return self._assembly.documents

    @property
    def verifier(self) -> Verifier:
        """Comparison of the index with itself and with the disk; see ``Verifier``."""
        return self._assembly.verifier

    def index(self, path: str | PathLike[str], **options: Unpack[IndexOptions]) -> Receipt:
        """Index a file, or everything below a folder; see ``Documents.index``.

        receipt = app.index("docs", collection="handbook")
        """
        return self.documents.index(path, **options)

    def search(self, query: str, **options: Unpack[SearchRequest]) -> list[Hit]:
        """Find the best chunks for a query, best first; see ``Search.search`` for the options.

            for hit in app.search("how does the mill take in water", limit=5):
                print(hit.path, hit.snippet)

        Searched is the tenant of the settings, a ``tenant_id``, a ``project``, or with ``all`` every tenant.
        """
        return self._assembly.search.search(query, **options)

    def ask(self, query: str, **options: Unpack[SearchRequest]) -> SearchResult:
        """Find the same hits as ``search``, with notes about missing ones, and what was searched.

        found = app.ask("how does the mill take in water", project="ours/mill")
        print(len(found.hits), found.covered.parts)
        """
        return self._assembly.search.ask(query, **options)

    def why(self, path: str | PathLike[str], **where: Unpack[WhyOptions]) -> Reason:
        """Explain why search does, or does not, find a path; see ``Documents.why``.

        print(app.why("docs/mill.md").cause)
        """
        return self.documents.why(path, **where)

    def context(self, query: str, **options: Unpack[ContextOptions]) -> PromptContext:
        """Pack the best passages for a query into a budget of tokens; see ``Search.context``.

        print(app.context("how does the mill take in water", max_tokens=1_000).text)
        """
        return self._assembly.search.context(query, **options)

    def similar(
        self, path: str | PathLike[str], line: int | None = None, **options: Unpack[SimilarOptions]
    ) -> list[Hit]:
        """Find chunks of other documents like a document, or like its chunk at a line; see ``Similar``.

        for hit in app.similar("docs/mill.md", 12, limit=5):
            print(hit.path, hit.similarity)
        """
        return self._assembly.similar.similar(path, line, **options)

    def close(self) -> None:
        """Close the stores."""
        self._assembly.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
