"""``penstock config``."""

from __future__ import annotations

import click

from penstock.cli.command_group import CommandGroup
from penstock.cli.output import emit, emit_json, table
from penstock.cli.session import Session


@click.group(cls=CommandGroup)
def config() -> None:
    """Show the settings."""


@config.command()
@click.pass_obj
def show(session: Session) -> None:
    """Show every setting with its value and source. Passwords are masked."""
    from penstock.config import describe

    described = describe(session.settings)
    if session.as_json:
        emit_json({row.name: {"value": row.value, "source": row.source} for row in described})
        return
    rows = [(row.name, _shown(row.value), row.source) for row in described]
    emit(table(["setting", "value", "from"], rows))


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={part:g}" for name, part in value.items()) or "none"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
