"""One invocation of ``penstock``: global options, groups of commands, and the assembly made of them."""

from __future__ import annotations

import copy
import functools
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.output import emit
from penstock.cli.services import LocalServices, discovered, is_this_host, make_client, server_path
from penstock.errors import LocalOnly, UntrustedState
from penstock.process_start import log_to_stderr

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.assembly import Assembly
    from penstock.cli.services import Services
    from penstock.client.sync_client import Client
    from penstock.config import Settings
    from penstock.service.projects import Placement, WantedPlace


TASKS: Mapping[str, Mapping[str, str]] = {
    "Index and search": {
        "index": "index",
        "search": "search",
        "context": "search",
        "similar": "search",
        "note": "notes",
        "documents": "documents",
        "collection": "documents",
        "project": "projects",
        "library": "libraries",
        "graph": "graph",
        "why": "documents",
        "rename": "documents",
        "delete": "documents",
    },
    "Jobs": {
        "status": "jobs",
        "jobs": "jobs",
        "cancel": "jobs",
        "retry": "jobs",
        "queue": "jobs",
        "schedule": "schedules",
        "limit": "limits",
    },
    "Workers and services": {
        "worker": "server",
        "watch": "watch",
        "serve": "server",
        "stop": "server",
        "mcp": "server",
        "keys": "server",
        "redis": "redis",
    },
    "Maintenance": {
        "verify": "documents",
        "rebuild": "stores",
        "backup": "stores",
        "restore": "stores",
        "import": "stores",
        "delete-tenant": "documents",
        "models": "server",
        "config": "server",
        "doctor": "server",
        "completion": "main",
    },
}
"""Headings of ``penstock --help``, each with its commands and the module of each, where the function has the
name of the command. Every visible command stands once."""

FORMER: Mapping[str, str] = {
    "queue list": "jobs --children",
    "queue show ID": "jobs ID",
    "queue cancel ID": "cancel ID",
    "queue retry ID": "retry ID",
    "queue status": "redis status",
    "gateway URL": "redis gateway URL",
    "ingest submit": "redis submit",
    "ingest status --job ID": "redis job ID",
    "start": "serve",
    "keys add NAME": "keys create NAME",
}
"""Former spellings and the words of the Redis contract, each with its present spelling."""

OTHER_WORDS: Sequence[tuple[str, str, str]] = (
    ("query find q", "search looks through the index", "penstock search WORDS"),
    ("grep", "search in quotes looks for the words in this order", "penstock search '\"these words\"'"),
    ("ask chat", "context gives the passages for a model to answer from", "penstock context QUESTION"),
    (
        "add load update upload put sync crawl scan",
        "index reads a file or folder, or what has changed in it",
        "penstock index PATH",
    ),
    ("ls list docs files", "documents lists what is indexed", "penstock documents list"),
    ("cat show get open read", "documents shows a text", "penstock documents show PATH"),
    (
        "rm remove del forget unindex",
        "delete takes a document out of the index; the file stays",
        "penstock delete PATH",
    ),
    ("mv move", "rename records a move", "penstock rename OLD NEW"),
    ("notes remember", "note keeps a text", "penstock note add TEXT"),
    ("job ps tasks task", "jobs lists jobs, and shows one", "penstock jobs"),
    ("enqueue submit push call", "queue add adds a job of any type", "penstock queue add"),
    ("stats info queues health", "status shows queue and index in short", "penstock status"),
    ("kill abort", "cancel ends a job", "penstock cancel ID"),
    ("rerun", "retry runs a failed job again", "penstock retry ID"),
    ("server run up api web dashboard", "serve starts server and dashboard", "penstock serve"),
    ("down shutdown", "stop ends the server", "penstock stop"),
    ("workers work consume", "worker runs jobs", "penstock worker"),
    ("settings set env", "config shows settings", "penstock config show"),
    ("init setup", "nothing has to be set up", "penstock index PATH"),
    ("key token login", "keys makes keys of the server", "penstock keys create NAME"),
    ("reindex refresh", "index --force reads all again", "penstock index --force PATH"),
    ("check fsck audit", "verify compares index and disk", "penstock verify"),
    ("dump export", "backup writes queue and index to a file", "penstock backup FILE"),
    ("explain", "why explains the state of a path", "penstock why PATH"),
    ("logs log tail", "jobs shows errors; a worker logs to its terminal", "penstock jobs"),
    ("migrate migrations", "tables are updated at the first use", "penstock doctor"),
    ("entities", "graph shows entities", "penstock graph stats"),
    ("help", "the help lists all commands", "penstock --help"),
    ("version", "an option prints the version", "penstock --version"),
    ("gc", "workers remove what is old; queue purge removes ended jobs", "penstock queue purge"),
    ("purge", "queue purge removes ended jobs", "penstock queue purge"),
    ("clear drop reset", "collection clear removes its documents", "penstock collection clear NAME"),
    (
        "history versions",
        "documents history tells what happened to a path",
        "penstock documents history PATH",
    ),
)
"""Words of other tools for a command, what does it here, and how."""

_HYPHEN, _KEPT_TOGETHER = "-", "\N{NON-BREAKING HYPHEN}"


class HelpFormatter(click.HelpFormatter):
    """Wraps at spaces only: ``--chunk-size`` is never broken after a hyphen."""

    def write_text(self, text: str) -> None:
        super().write_text(text.replace(_HYPHEN, _KEPT_TOGETHER))

    def write_dl(self, rows: Iterable[tuple[str, str]], *arguments: Any, **more: Any) -> None:
        kept = [(name, text.replace(_HYPHEN, _KEPT_TOGETHER)) for name, text in rows]
        super().write_dl(kept, *arguments, **more)

    def getvalue(self) -> str:
        return super().getvalue().replace(_KEPT_TOGETHER, _HYPHEN)


class _CommandContext(click.Context):
    """The context of every command."""

    formatter_class = HelpFormatter

    def invoke(self, callback: Any, /, *given: Any, **named: Any) -> Any:
        """Call the function of a command, unless it works on this machine only and a server was named."""
        if self.obj is not None and callback is self.command.callback:
            self.obj.refuse_server(self.command_path.partition(" ")[2])
        return super().invoke(callback, *given, **named)


class CommandGroup(click.Group):
    """A group whose help lists commands in the order they were added, each with its first sentence."""

    context_class = _CommandContext
    tasks: Mapping[str, Iterable[str]] | None = None
    """Headings with their commands; by default one heading for all."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, names in (self.tasks or {"Commands": self.list_commands(ctx)}).items():
            found = ((name, self.get_command(ctx, name)) for name in names)
            rows = [
                (name, first_sentence(command)) for name, command in found if command and not command.hidden
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def add_former(self, command: click.Command, name: str | None = None) -> None:
        """Add a command under a former spelling: it works, but help and completion leave it out."""
        former = copy.copy(command)
        former.hidden = True
        self.add_command(former, name)


class TaskGroup(CommandGroup):
    """The root group, whose help lists the commands by task."""

    tasks = TASKS

    def list_commands(self, ctx: click.Context) -> list[str]:
        listed = [name for names in TASKS.values() for name in names]
        return listed + [name for name in super().list_commands(ctx) if name not in listed]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if self.get_command(ctx, word) is None:
            for words, what, command in OTHER_WORDS:
                if word in words.split():
                    ctx.fail(f"No such command {word!r}: {what}: {command}")
        return super().resolve_command(ctx, args)


class RenamedOption(click.Option):
    """An option whose former names still work, but are not shown in the help."""

    def __init__(self, names: list[str], *, former: tuple[str, ...], **more: Any) -> None:
        super().__init__([*names, *former], **more)
        self.former = former

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        names, self.opts = self.opts, [name for name in self.opts if name not in self.former]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = names


def first_sentence(command: click.Command) -> str:
    """The first sentence of a command's help, in one line."""
    text = " ".join((command.help or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.) ", text, maxsplit=1)[0]


Command = TypeVar("Command", bound=Callable[..., Any])

OPTIONS = ("--state", "--url", "--server", "--no-server", "--json", "--quiet")
WITH_VALUES = ("--state", "--url", "--server")
JSON_HELP = "Print JSON instead of text."
QUIET_HELP = "Print only results and errors."
_OF_THIS_MACHINE = frozenset(
    "worker serve start stop mcp keys redis gateway ingest models config doctor completion "
    "backup restore".split()
)
"""Commands that ignore PENSTOCK_SERVER: they are about this machine."""

LOCAL_ONLY = {
    "documents export": "`penstock documents show PATH --page N` reads single pages.",
    "graph export": "`penstock graph neighbours NAME` reads a part of the graph.",
    "queue add": "Use penstock index or penstock note; functions are called by POST /functions/NAME.",
    "queue status": "Use `penstock queue stats`.",
    "verify": "",
    "rebuild": "",
    "import": "",
    **dict.fromkeys(("backup", "restore"), ""),
    **dict.fromkeys(("project move", "project prune"), ""),
    "watch": "",
    **dict.fromkeys(("models list", "models install", "config show", "config trust", "doctor"), ""),
    "models tokens": "The server's /metrics has penstock_tokens_total.",
    **dict.fromkeys(("worker", "serve", "start", "stop", "mcp", "completion", "gateway"), ""),
    **dict.fromkeys(("keys create", "keys list", "keys revoke", "keys add"), ""),
    **dict.fromkeys(("redis gateway", "redis submit", "redis job", "redis status"), ""),
    **dict.fromkeys(("ingest submit", "ingest status"), ""),
}
"""Commands that do not work through a server, and what else may help."""

_GRACE_S = 5.0
"""Time for running jobs to finish when a command that does the work itself is interrupted."""


QUEUE_DISABLED = (
    "No job runs while queue_enabled is false (TASK_QUEUE_ENABLED). The job waits for a worker with "
    "queue_enabled = true: penstock worker"
)


class Session:
    """The object that ``@click.pass_obj`` gives to every command. Settings are read at their first use."""

    def __init__(self) -> None:
        self.as_json = False
        self.quiet = False
        self._discovered: Client | None = None
        self.overrides: dict[str, Any] = {}
        """Settings named on the command line, before the command or after it."""
        self.no_server = False
        self.command: str | None = None

    @functools.cached_property
    def settings(self) -> Settings:
        from penstock import config

        try:
            return config.load(**self.overrides)
        except UntrustedState as error:
            if error.directory is None or not self._trusts(error.directory):
                raise
            return config.load(**self.overrides)

    def _trusts(self, directory: Path) -> bool:
        """Ask a person whether a state directory is theirs, and record a yes."""
        from penstock import config
        from penstock.service.keys import Keys

        if self.as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        question = (
            f"{directory} has Penstock's state, and is not known as yours. It may have come with a clone or "
            "an archive, with documents, jobs and keys of someone else. Did you make it, and is it to be "
            "used?"
        )
        if not click.confirm(question, err=True):
            return False
        config.trust_state(directory)
        Keys(directory).seal()
        return True

    @functools.cached_property
    def assembly(self) -> Assembly:
        """The stores of this machine; refused where the command is to work through a server."""
        from penstock.assembly import Assembly

        if self.server is not None:
            raise LocalOnly("this command does not work through a server")
        return Assembly(self.settings, door="cli")

    @functools.cached_property
    def server(self) -> str | None:
        """The URL of the server that the user chose; None: the stores of this machine."""
        if self.overrides.get("server") is not None:
            if self.no_server or self.overrides.get("url") or self.overrides.get("state_dir"):
                raise click.UsageError("Give --server, or else --url, --state or --no-server.")
            return self.settings.server
        here = self.no_server or self.overrides.get("url") or self.overrides.get("state_dir")
        # A store named on the command line counts more than a server in the environment.
        return None if here or self.command in _OF_THIS_MACHINE else self.settings.server

    def refuse_server(self, command: str) -> None:
        """Refuse a command that works on this machine only, if the user chose a server for it."""
        refused = command in LOCAL_ONLY and self.server is not None
        # The command may still override settings: they are read again.
        self.__dict__.pop("settings", None)
        if refused:
            raise LocalOnly(
                f"penstock {command} does not work through a server",
                remedy=f"{LOCAL_ONLY[command]} {LocalOnly.default_remedy}".strip(),
            )

    def worker_alive(self) -> bool:
        """Tell whether a worker serves the queue, of this machine or of the server."""
        if self.client is not None:
            return self.client.ready().workers > 0
        return self.assembly.worker_alive()

    @functools.cached_property
    def client(self) -> Client | None:
        """The client of the server that the user chose."""
        return None if self.server is None else make_client(self.settings, self.server)

    @functools.cached_property
    def services(self) -> Services:
        """The services of the server that the user chose, or of this machine."""
        return self.client or LocalServices(self.assembly)

    @functools.cached_property
    def readers(self) -> Services:
        """Services for a command that only reads: a running server of the same state answers it as well.

        The server has the model and the vectors in memory, which a command would have to load.
        """
        if self.client is None and not self.no_server and (found := discovered(self.settings)) is not None:
            self._discovered = found
            return found
        return self.services

    def place(
        self,
        path: str | None = None,
        *,
        tenant: str | None = None,
        branch: str | None = None,
        project: bool | None = None,
    ) -> Placement:
        """Tenant and branch of documents at a path, or by the folder of the command; see decision 0056.

        A server that the user chose, on another machine, decides by itself: paths here mean nothing there.
        """
        from penstock.service.projects import WantedPlace

        placement = self._placed(path, WantedPlace(tenant, branch, project))
        if project and tenant is None and path is None and placement.project is None:
            from penstock.errors import UnknownProject

            raise UnknownProject("the current folder is in no project that was indexed")
        return placement

    def _placed(self, path: str | None, wanted: WantedPlace) -> Placement:
        from penstock.service.projects import Placement

        if self.server is not None:
            if is_this_host(self.server) and wanted.tenant_id is None and wanted.project is not False:
                return self._placed_by_server(path or os.curdir, wanted)
            return Placement(wanted.tenant_id, wanted.branch)
        if not wanted.project and self.readers is self._discovered:
            # A running server answers: the catalog need not be opened to find a project.
            return self._placed_by_server(path or os.curdir, wanted)
        return self.assembly.documents.projects.for_reading(path or os.curdir, wanted)

    def _placed_by_server(self, path: str, wanted: WantedPlace) -> Placement:
        from penstock.catalog.parts import ProjectRoot
        from penstock.config import DEFAULT_TENANT
        from penstock.service.projects import placed_to_read

        def recorded(folders: list[str]) -> list[ProjectRoot]:
            client = self.client or self._discovered
            found = client.projects() if client is not None else []
            roots = (ProjectRoot(one.root, one.tenant_id, one.name, one.remote) for one in found)
            return [root for root in roots if root.root in folders]

        own_tenant = self.settings.tenant_id != DEFAULT_TENANT
        return placed_to_read(path, wanted, recorded, own_tenant=own_tenant)

    @functools.cached_property
    def project_names(self) -> dict[str, str]:
        """Names of projects by tenant."""
        from penstock.service.projects import project_names

        return project_names(self.services.projects())

    def place_of(self, path_or_id: str, *, tenant: str | None = None, branch: str | None = None) -> Placement:
        """Tenant and branch of a document by its path, or by its id in the tenant of this place."""
        if (
            self.server is None
            and tenant is None
            and "/" not in path_or_id
            and not os.path.lexists(path_or_id)
        ):
            with self.assembly.catalog.snapshot() as snapshot:
                found = snapshot.identified(path_or_id)
            here = self.place(branch=branch)
            if found is not None and found.place.tenant_id == here.tenant_id:
                from penstock.service.projects import Placement

                return Placement(here.tenant_id, branch or found.place.branch)
            return here
        return self.place(path_or_id, tenant=tenant, branch=branch)

    def path_or_id(self, text: str) -> str:
        """The path or id of a document, as the services have to get it."""
        return self.path(text) if "/" in text or os.path.lexists(text) else text

    def path(self, path: str) -> str:
        """A path typed by the user, as the services have to get it."""
        if self.server is not None:
            return server_path(self.server, path)
        return path if self._discovered is None else server_path("http://localhost", path)

    def waits_for_enabling(self, *, worker_alive: bool) -> bool:
        """Tell whether a new job waits: no worker is running, and this command may not run jobs itself."""
        return not worker_alive and not self.settings.queue_enabled

    def run_here(self, job_id: str, *, processes: int = 1) -> None:
        """Run a job inside this command until it has ended; only errors are logged.

        A note or a small file runs in this process, any other job in a worker with child processes.
        """
        log_to_stderr(logging.ERROR, self.settings.log_format)
        if self.assembly.run_small_job(job_id) and not self.assembly.has_later_tasks():
            return
        self.assembly.worker(processes=processes, until_job=job_id, grace=_GRACE_S).run()

    def hint(self, text: str) -> None:
        """Print advice to standard error, unless the user wants results only."""
        if not self.quiet:
            click.echo(text, err=True)

    def confirm_done(self, text: str) -> None:
        """Print to standard output that a request was carried out, unless the exit code is enough."""
        if not self.quiet:
            emit(text)

    def close(self) -> None:
        for client in (self.__dict__.get("client"), self._discovered):
            if client is not None:
                client.close()
        if "assembly" in self.__dict__:
            self.assembly.close()


def _set(context: click.Context, option: click.Parameter, value: Any) -> None:
    session = context.find_object(Session)
    if session is None or not value:
        return
    if option.name in ("as_json", "quiet", "no_server"):
        setattr(session, option.name, True)
    else:
        session.overrides[str(option.name)] = value


def add_global_options(command: click.Command) -> None:
    """Let a command, and every command below it, take the global options after its name as well.

    Its help shows ``--json`` and ``--quiet``: store and state directory are no matter of the single command.
    """
    present = {name for option in command.params for name in option.opts}
    made = {
        "--state": click.Option(["--state", "state_dir"], metavar="DIR", hidden=True),
        "--url": click.Option(["--url"], metavar="URL", hidden=True),
        "--server": click.Option(["--server"], metavar="URL", hidden=True),
        "--no-server": click.Option(["--no-server"], is_flag=True, hidden=True),
        "--json": click.Option(["--json", "as_json"], is_flag=True, help=JSON_HELP),
        "--quiet": click.Option(["-q", "--quiet"], is_flag=True, help=QUIET_HELP),
    }
    command.context_class = _CommandContext
    for name, option in made.items():
        if name not in present:
            option.expose_value, option.callback = False, _set
            command.params.append(option)
    if isinstance(command, click.Group):
        for below in command.commands.values():
            add_global_options(below)
