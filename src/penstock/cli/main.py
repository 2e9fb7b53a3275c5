"""The ``penstock`` command. Heavy packages are imported by what needs them, never for ``--help``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NoReturn

import click

from penstock.cli import (
    change_commands,
    config_commands,
    document_commands,
    gateway,
    index,
    ingest,
    job_commands,
    queue_commands,
    queue_manage,
    rebuild,
    search,
    worker,
)
from penstock.cli.exit_codes import INTERRUPTED
from penstock.cli.global_options import add_global_options
from penstock.cli.session import Contract, Gateway, Session, Worker
from penstock.cli.streams import mend_standard_streams, told
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.service.documents import Documents
    from penstock.service.jobs import Jobs
    from penstock.service.rebuild import Rebuilder
    from penstock.service.search import Search
    from penstock.service.verification import Verifier


class Root(click.Group):
    """Turns what went wrong into one line and an exit code, wherever below it was raised."""

    def make_context(self, *arguments: Any, **more: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **more)
        except OSError as error:  # while it wrote its help
            code = told(error, as_json=False)
            if code is None:
                raise
            raise SystemExit(code) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (PenstockError, OSError, ImportError) as error:
            session = ctx.find_object(Session)
            code = told(error, as_json=session is not None and session.as_json)
            if code is None:
                raise
            ctx.exit(code)
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--state", metavar="DIR", help="Directory with the state, instead of PENSTOCK_STATE.")
@click.option("--url", metavar="URL", help="Store of the queue, instead of PENSTOCK_URL.")
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON, for programs.")
@click.version_option(package_name="penstock", message="penstock %(version)s")
@click.pass_context
def cli(context: click.Context, state: str | None, url: str | None, as_json: bool) -> None:
    """A durable queue for everything that should become searchable.

    Without --url and --state the queue is an SQLite file in the state directory; `penstock config show` says
    where. These options may also stand after the command. Exit codes: 0 done, 1 refused, 2 usage,
    3 configuration, 4 not found, 5 conflict, 6 queue full, 7 store.
    """

    def load(**overrides: Any) -> Settings:
        from penstock import config

        return config.load(**overrides)

    session = Session(load, _House())
    session.overrides.update(url=url, state_dir=state)
    session.as_json = as_json
    context.obj = session
    context.call_on_close(session.close)


class _House:
    """What only the composition root may know: how stores are opened and workers made."""

    def jobs(self, settings: Settings) -> Jobs:
        from penstock.queue.factory import open_queue
        from penstock.service.jobs import Jobs

        return Jobs(open_queue(settings), settings, door="cli")

    def documents(self, settings: Settings, jobs: Jobs) -> Documents:
        from penstock.catalog.factory import open_catalog
        from penstock.catalog_host import refuse_second_host
        from penstock.service.documents import Documents

        refuse_second_host(settings, jobs.queue)
        return Documents(open_catalog(settings), jobs, settings)

    def search(self, settings: Settings, documents: Documents) -> Search:
        from penstock.pipeline.embed import open_space
        from penstock.pipeline.vectors.cache import VectorCache
        from penstock.pipeline.vectors.cache_directory import open_cache_directory
        from penstock.service.search import Search

        return Search(documents.catalog, settings, open_space, VectorCache(open_cache_directory(settings)))

    def verifier(self, documents: Documents, jobs: Jobs) -> Verifier:
        from penstock.service.verification import Verifier

        return Verifier(documents.catalog, jobs)

    def rebuilder(self, settings: Settings, documents: Documents, jobs: Jobs) -> Rebuilder:
        from penstock.pipeline.embed import open_embedder
        from penstock.pipeline.pipeline import Pipeline
        from penstock.service.rebuild import Rebuilder

        return Rebuilder(documents.catalog, jobs, Pipeline(open_embedder(settings.embedder)))

    def worker(self, settings: Settings, **options: Any) -> Worker:
        from penstock.worker import launch

        # Work done inside another command has the terminal for itself: only what stops it is told.
        launch.log_to_stderr(logging.ERROR if options.get("until_job") else logging.INFO)
        return launch.Worker(settings, **options)

    def worker_once_reachable(self, settings: Settings, **options: Any) -> Worker | None:
        from penstock.store_wait import once_reachable
        from penstock.worker import launch

        launch.log_to_stderr(logging.INFO)

        def reached() -> Worker:
            # An application opens its queue when it is loaded, so that is tried again as well.
            made = launch.Worker(settings, **options)
            made.check_stores()
            return made

        return once_reachable(reached)

    def worker_alive(self, settings: Settings, jobs: Jobs) -> bool:
        from penstock.worker import launch

        return launch.worker_alive(settings, jobs.queue)

    def wait(self, jobs: Jobs, job_id: str) -> None:
        from penstock.queue.wait import wait_for

        wait_for(jobs.queue, lambda: jobs.job(job_id).ended, None)

    def contract(self, settings: Settings) -> Contract:
        from penstock.redis_contract import assembly

        return assembly.open_contract(settings)

    def gateway(self, settings: Settings, jobs: Jobs, documents: Documents) -> Gateway:
        from penstock.redis_contract import assembly
        from penstock.worker import launch

        launch.log_to_stderr(logging.INFO)
        return assembly.make_gateway(settings, jobs, documents)


for command in (
    index.index,
    search.search,
    job_commands.jobs,
    job_commands.status,
    document_commands.why,
    document_commands.documents,
    document_commands.note,
    change_commands.rename,
    change_commands.delete,
    change_commands.delete_tenant,
    change_commands.verify,
    rebuild.rebuild,
    queue_manage.cancel,
    queue_manage.retry,
    queue_commands.queue,
    worker.worker,
    gateway.gateway,
    ingest.ingest,
    config_commands.config,
):
    cli.add_command(command)
    add_global_options(command)


def main() -> NoReturn:
    mend_standard_streams()
    cli(prog_name="penstock")
    raise AssertionError("click leaves by SystemExit")


if __name__ == "__main__":
    main()
