"""One invocation of ``penstock``: global options, groups of commands, and the assembly made of them."""

from __future__ import annotations

import copy
import functools
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import click

from penstock.cli.output import emit
from penstock.errors import InvalidSetting, LocalOnly, PenstockError, UntrustedState
from penstock.process_start import log_to_stderr

if TYPE_CHECKING:
    from penstock.assembly import Assembly
    from penstock.client.sync_client import Client
    from penstock.config import Settings
    from penstock.service.projects import Placement, WantedPlace


# Services for commands: the same methods on the stores of this machine and on a server.
#
# ``LocalServices`` has the methods of ``Client`` that commands use, so that a command does not see which of
# the two it has, and prints the same.


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

    def tenant_name(self, tenant_id: str) -> str:
        """The name of a tenant's project, or else the tenant."""
        return self.project_names.get(tenant_id, tenant_id)

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
