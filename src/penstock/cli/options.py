"""Values typed on the command line, and the options that several commands share."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock.errors import InvalidPayload, InvalidRequest, RelativePath

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def duration(context: click.Context, param: click.Parameter, value: str | None) -> timedelta | None:
    """Parse seconds, or a number with a unit: ``90``, ``90s``, ``5m``, ``2h``, ``7d``, ``2w``."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) *([smhdw]?)", value.strip().lower())
    if match is None:
        raise click.BadParameter(
            f"{value[:80]!r} is not a duration such as 90s, 5m, 2h or 7d", context, param
        )
    # The service refuses absurd durations; here they must only not overflow.
    return timedelta(seconds=min(float(match[1]) * _UNITS[match[2]], 1e11))


def seconds_of_grace(context: click.Context, param: click.Parameter, value: str) -> float:
    """Parse the time for running jobs to finish: a duration of at most a day."""
    grace = duration(context, param, value)
    if grace is None or grace > timedelta(days=1):
        raise click.BadParameter("the longest time is 1d", context, param)
    return grace.total_seconds()


PROCESSES = click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of worker processes, each with one job at a time.",
)
GRACE = click.option(
    "--grace",
    default="30s",
    show_default=True,
    metavar="DURATION",
    callback=seconds_of_grace,
    help="Time for running jobs to finish after a stop signal; then they are released.",
)
"""Options of every command that runs a worker."""


def agreed(question: str) -> bool:
    """Ask for confirmation. Without a terminal the request is refused: there is no one to ask."""
    if not sys.stdin.isatty():
        raise InvalidRequest(
            "confirmation is required, but standard input is not a terminal", remedy="Add --yes."
        )
    return click.confirm(question, err=True)


def all_words(given: Sequence[str]) -> list[str]:
    """Split the values of an option which may be repeated or joined by commas."""
    return [word for text in given for word in text.split(",")]


def read_payload(text: str | None) -> dict[str, Any]:
    """Read a JSON object from text, from a file (``@name``) or from standard input (``-``)."""
    if text is None:
        return {}
    import msgspec

    try:
        payload = msgspec.json.decode(_source(text))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidPayload(
            f"--payload: {error}", remedy='Give a JSON object such as {"content": "…"}.'
        ) from None
    if not isinstance(payload, dict):
        raise InvalidPayload(f"--payload: expected an object, got {type(payload).__name__}")
    return payload


def _source(text: str) -> bytes:
    if text == "-":
        read = sys.stdin.buffer.read()
        if not read:
            remedy = "Pipe a JSON object into the command, or give @FILE."
            raise InvalidPayload("--payload: standard input is empty or closed", remedy=remedy)
        return read
    if not text.startswith("@"):
        return text.encode(errors="surrogateescape")
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise InvalidPayload(
            f"--payload: {text[1:]}: {error.strerror}", remedy="Name a file that can be read."
        ) from None


PATH_FIELDS = {"file": "file_path", "folder": "folder_path", "project": "project_root"}


def add_path(payload: dict[str, Any], item_type: str, path: str | None) -> None:
    """Put ``--path``, absolute and with links resolved, into the path field of the item type."""
    if path is None:
        return
    from penstock.service.paths import real_path

    field = PATH_FIELDS.get(item_type)
    if field is None:
        raise InvalidPayload(
            f"--path: only {', '.join(PATH_FIELDS)} jobs have a path", remedy="Use --payload instead."
        )
    if field in payload:
        raise InvalidPayload(f"--path: the payload has {field!r} already", remedy="Leave out one of them.")
    try:
        payload[field] = real_path(str(Path(path).expanduser()))
    except (OSError, RuntimeError, ValueError) as error:
        raise RelativePath(f"--path: {path[:200]!r} cannot be resolved ({error})") from None


def add_text(payload: dict[str, Any], item_type: str, text: str | None) -> None:
    """Put ``--text`` into the text field of a note."""
    if text is None:
        return
    if item_type != "content":
        raise InvalidPayload(
            "--text: only content jobs have a text", remedy="Use --payload or --path instead."
        )
    if "content" in payload:
        raise InvalidPayload("--text: the payload has 'content' already", remedy="Leave out one of them.")
    payload["content"] = text


F = TypeVar("F", bound=Callable[..., Any])


def filter_options(verb: str) -> Callable[[F], F]:
    """Add the options of ``DocumentFilters`` to a command. ``verb`` begins their help texts."""
    options = [
        click.option("--collection", metavar="NAME", help=f"{verb} only this collection."),
        click.option("--tenant", "tenant_id", metavar="NAME", help="Tenant who owns the documents."),
        click.option("--branch", metavar="NAME", help=f"{verb} only this branch."),
        click.option(
            "--project/--no-project",
            default=None,
            help=f"{verb} the project around this folder, or documents outside of projects. "
            "Default: the project, if it was indexed.",
        ),
        click.option("--path", metavar="GLOB", help=f"{verb} only matching paths, such as '*/guides/*'."),
        click.option(
            "--library",
            metavar="NAME[==VERSION]",
            help=f"{verb} only the documentation of this library.",
        ),
        click.option(
            "--type",
            "file_type",
            metavar="SUFFIX",
            help=f"{verb} only files with this suffix, such as pdf; a wrong suffix does not count.",
        ),
        click.option("--tag", metavar="TAG", help=f"{verb} only this tag and tags below it."),
        click.option("--author", metavar="TEXT", help=f"{verb} only documents by an author with this text."),
        click.option("--title", metavar="TEXT", help=f"{verb} only documents with this text in the title."),
        click.option(
            "--language", metavar="TAG", help=f"{verb} only documents in this language; en includes en-US."
        ),
        click.option("--created-after", metavar="DATE", help="Only documents dated on this day or later."),
        click.option("--created-before", metavar="DATE", help="Only documents dated before this day."),
    ]

    def decorated(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated
