"""``penstock worker``."""

from __future__ import annotations

import functools
import logging

import click

from penstock.cli.arguments import GRACE, PROCESSES
from penstock.cli.output import emit_json
from penstock.cli.session import Session
from penstock.process_start import log_to_stderr, once_reachable
from penstock.vocabulary import how_many

SHOWN = 8


def _lanes(_context: click.Context, _option: click.Parameter, given: str | None) -> list[str]:
    # Help is printed without the catalog's modules.
    from penstock.catalog.rules.phases import Phase

    known = ["jobs", *Phase]
    lanes = known if given is None else [lane.strip() for lane in given.split(",")]
    unknown = [lane for lane in lanes if lane not in known]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(known)}")
    return lanes


def _set_serial(context: click.Context, _option: click.Parameter, given: bool) -> None:
    if given:
        context.ensure_object(Session).overrides["serial"] = True


@click.command()
@click.option(
    "--app",
    metavar="MODULE:NAME",
    help="Application whose functions to run, such as mypkg.tasks:app. Its own settings name the queue.",
)
@PROCESSES
@click.option(
    "--lanes",
    metavar="LANES",
    callback=_lanes,
    help="Lanes to serve, joined by commas: jobs and the names of phases. Default: all.",
)
@click.option(
    "--serial",
    is_flag=True,
    expose_value=False,
    callback=_set_serial,
    help="Run jobs for paths one at a time in each collection, in order.",
)
@click.option("--until-idle", is_flag=True, help="Stop when no job can run now.")
@GRACE
@click.option(
    "--start-method",
    type=click.Choice(["spawn", "fork"]),
    default="spawn",
    show_default=True,
    help="Start processes afresh, or as copies of this one with its modules loaded.",
)
@click.option(
    "--wait-for-store",
    is_flag=True,
    help="Wait until the store can be reached, instead of ending with exit code 7.",
)
@click.pass_obj
def worker(
    session: Session,
    app: str | None,
    processes: int,
    lanes: list[str],
    until_idle: bool,
    grace: float,
    start_method: str,
    wait_for_store: bool,
) -> None:
    """Run jobs from the queue until a stop signal.

    The first SIGTERM or Ctrl-C lets running jobs finish, a second one does not wait. No job is lost: an
    unfinished job is released for another worker. The log goes to standard error.

    \b
    penstock worker --app mypkg.tasks:app --processes 4
    penstock worker --app mypkg.tasks --until-idle
    """
    log_to_stderr(logging.WARNING if session.quiet else logging.INFO, session.settings.log_format)
    make = functools.partial(
        session.assembly.worker,
        app=app,
        processes=processes,
        until_idle=until_idle,
        grace=grace,
        lanes=lanes,
        start_method=start_method,
    )
    # An application opens its queue when it is loaded, so loading is tried again as well.
    made = once_reachable(lambda: make().with_stores()) if wait_for_store else make()
    if made is None:
        return

    def announce() -> None:
        if session.as_json:
            emit_json({"serves": made.serves, "store": made.where, "processes": made.processes, "app": app})
        else:
            session.confirm_done(_announcement(made.serves, made.where, made.processes))

    made.run(announce)


def _announcement(serves: list[str], where: str, processes: int) -> str:
    if not processes:
        return f"Only upkeep for {where}: no job is claimed, because queue_enabled is false."
    named = ", ".join(serves[:SHOWN]) + (", …" if len(serves) > SHOWN else "")
    served = named or "nothing yet (name an application with --app)"
    return f"Serving {served} from {where} with {how_many(processes, 'process', 'processes')}."
