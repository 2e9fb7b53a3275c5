"""``penstock collection``: the collections of documents, and their removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from penstock.cli.arguments import agreed
from penstock.cli.change_commands import print_queued, submit
from penstock.cli.command_group import CommandGroup
from penstock.cli.exit_codes import REFUSED
from penstock.cli.output import emit, emit_json, fields, printable, table
from penstock.cli.places import owner_word, tenant_name
from penstock.cli.session import Session
from penstock.errors import CollectionNotFound
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.client.collection_calls import ClientCollections
    from penstock.service.collections import CollectionRecord, Collections


def _collections(session: Session) -> Collections | ClientCollections:
    """The collections of the server that the user chose, or of this machine."""
    if session.client is not None:
        return session.client.collections
    return _own(session)


def _own(session: Session) -> Collections:
    from penstock.service.collections import Collections

    return Collections(session.assembly.catalog, session.assembly.jobs)


def _found(session: Session, name: str, tenant: str | None) -> CollectionRecord:
    """The collection of a tenant, or of the project here; a refusal names the project instead of its id."""
    tenant_id = session.place(tenant=tenant).tenant_id
    try:
        return _collections(session).show(name, tenant_id=tenant_id)
    except CollectionNotFound:
        project = session.project_names.get(tenant_id) if tenant_id is not None else None
        if project is None:
            raise
        raise CollectionNotFound(f"project {project!r} has no collection {name!r}") from None


@click.group(cls=CommandGroup)
def collection() -> None:
    """List, show and clear collections of documents.

    A collection belongs to one tenant, and has documents of any branch.
    """


@collection.command("list")
@click.option("--tenant", metavar="NAME", help="List only this tenant's collections.")
@click.pass_obj
def list_collections(session: Session, /, tenant: str | None) -> None:
    """List the collections with documents."""
    found = _collections(session).list(tenant)
    if session.as_json:
        emit_json({"collections": found})
    elif found:
        rows = [
            (
                printable(tenant_name(session, one.tenant_id)),
                printable(one.collection),
                f"{one.documents:,}",
                f"{one.chunks:,}",
                f"{one.failed:,}" if one.failed else "",
                ", ".join(printable(branch.branch) for branch in one.branches),
            )
            for one in found
        ]
        emit(table(["tenant", "collection", "documents", "chunks", "failed", "branches"], rows))
    else:
        emit("There are no collections with documents.")
        session.hint("Index something: penstock index PATH --collection NAME")


@collection.command("show")
@click.argument("name")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the collection.")
@click.pass_obj
def show_collection(session: Session, /, name: str, tenant: str | None) -> None:
    """Show one collection: documents, branches and open jobs."""
    record = _found(session, name, tenant)
    if session.as_json:
        emit_json(record)
        return
    emit(
        fields(
            [
                ("Collection", printable(record.collection)),
                (owner_word(session, record.tenant_id), printable(tenant_name(session, record.tenant_id))),
                ("Documents", f"{record.documents:,}"),
                ("Partial", f"{record.partial:,}" if record.partial else None),
                ("Failed", f"{record.failed:,}" if record.failed else None),
                ("Pages", f"{record.pages:,}"),
                ("Chunks", f"{record.chunks:,}"),
                ("Open jobs", f"{record.open_jobs:,}" if record.open_jobs else None),
            ]
        )
    )
    if len(record.branches) > 1:
        rows = [
            (printable(one.branch), f"{one.documents:,}", f"{one.chunks:,}", f"{one.failed:,}")
            for one in record.branches
        ]
        emit("\n" + table(["branch", "documents", "chunks", "failed"], rows))


@collection.command()
@click.argument("name")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the collection.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def clear(session: Session, /, name: str, tenant: str | None, yes: bool) -> None:
    """Remove all documents of a collection. Files are not touched.

    All branches are cleared. Requests from before the command index nothing any more, also if they run later;
    later ones do.

    \b
    penstock collection clear handbook --yes
    """
    record = _found(session, name, tenant)
    owner = f"{owner_word(session, record.tenant_id).lower()} {tenant_name(session, record.tenant_id)}"
    if not yes and not agreed(
        f"Remove {how_many(record.documents, 'document')} of collection {printable(record.collection)} "
        f"of {printable(owner)}?"
    ):
        emit("Nothing was removed.")
        raise SystemExit(REFUSED)
    if session.client is not None:
        print_queued(session, session.client.collections.clear(name, tenant_id=record.tenant_id))
        return
    from penstock.service.collections import clearing

    submit(session, clearing(record.collection, record.tenant_id))
