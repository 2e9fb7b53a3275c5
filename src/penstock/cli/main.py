"""The ``penstock`` command. Heavy packages are imported by what needs them, never for ``--help``."""

from __future__ import annotations

from typing import Any, NoReturn

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
from penstock.cli.session import Session
from penstock.cli.streams import mend_standard_streams, told
from penstock.errors import PenstockError


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
    session = Session()
    session.overrides.update(url=url, state_dir=state)
    session.as_json = as_json
    context.obj = session
    context.call_on_close(session.close)


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
