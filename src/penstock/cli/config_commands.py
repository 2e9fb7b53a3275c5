"""``penstock config``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.command_group import CommandGroup
from penstock.cli.output import emit, emit_json, fields, table
from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.settings_file import FilePlaces


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
    from penstock.config import read_project_file
    from penstock.settings_file import is_trusted

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
    from penstock.config import file_places, read_project_file
    from penstock.errors import InvalidSettingsFile
    from penstock.settings_file import set_trust

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
