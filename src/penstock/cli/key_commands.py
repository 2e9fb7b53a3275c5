"""``penstock keys``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.command_group import CommandGroup
from penstock.cli.output import emit, emit_json, fields, printable, table
from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.service.access import KeyScope
    from penstock.service.keys import Keys, KeyView

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
