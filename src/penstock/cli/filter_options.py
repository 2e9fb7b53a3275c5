"""Options that narrow a search or a list of documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

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
