"""Groups of commands: help by task with whole sentences, and former spellings that still work."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

TASKS: Mapping[str, Mapping[str, str]] = {
    "Index and search": {
        "index": "index",
        "search": "search",
        "context": "search",
        "similar": "search",
        "note": "note_commands",
        "documents": "document_commands",
        "collection": "collection_commands",
        "project": "project_commands",
        "library": "library_commands",
        "graph": "graph_commands",
        "why": "document_commands",
        "rename": "change_commands",
        "delete": "change_commands",
    },
    "Jobs": {
        "status": "job_commands",
        "jobs": "job_commands",
        "cancel": "queue_manage",
        "retry": "queue_manage",
        "queue": "queue_commands",
        "schedule": "schedule_commands",
        "limit": "limit_commands",
    },
    "Workers and services": {
        "worker": "worker",
        "watch": "watch",
        "serve": "serve_commands",
        "stop": "serve_commands",
        "mcp": "serve_commands",
        "keys": "key_commands",
        "redis": "redis_commands",
    },
    "Maintenance": {
        "verify": "change_commands",
        "rebuild": "rebuild",
        "backup": "backup_commands",
        "restore": "backup_commands",
        "import": "import_command",
        "delete-tenant": "change_commands",
        "models": "model_commands",
        "config": "config_commands",
        "doctor": "doctor",
        "completion": "completion",
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


class CommandContext(click.Context):
    """The context of every command."""

    formatter_class = HelpFormatter

    def invoke(self, callback: Any, /, *given: Any, **named: Any) -> Any:
        """Call the function of a command, unless it works on this machine only and a server was named."""
        if self.obj is not None and callback is self.command.callback:
            self.obj.refuse_server(self.command_path.partition(" ")[2])
        return super().invoke(callback, *given, **named)


class CommandGroup(click.Group):
    """A group whose help lists commands in the order they were added, each with its first sentence."""

    context_class = CommandContext
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
