"""Projects in commands: the scope of a search, and names instead of tenants."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.hit_page import relative
from penstock.cli.output import printable
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.catalog.values import Place
    from penstock.cli.services import Services
    from penstock.cli.session import Session
    from penstock.service.projects import Placement


def filtered_path(given: dict[str, Any]) -> str | None:
    """The path that filters narrow to, if it is one of libraries or web pages: these are of no project."""
    # Imported here: the help of all commands loads this module.
    from penstock.payloads import LIBRARIES, is_off_disk

    if given.get("library") is not None:
        return LIBRARIES
    path = given.get("path")
    return path if path is not None and is_off_disk(path) else None


def scope(session: Session, given: dict[str, Any]) -> tuple[Services, Placement, dict[str, Any]]:
    """The services and options of a search: of the project around the folder of the command, or of all.

    A running server searches one tenant at a time, so that this process searches several.
    """
    from penstock.service.document_filters import DocumentFilters

    project, every = given["project"], given["every"]
    if every and (given["tenant_id"] or given["branch"] or project is not None):
        raise click.UsageError("Give --all, or else --tenant, --branch or --project.")
    place = session.place(
        filtered_path(given), tenant=given["tenant_id"], branch=given["branch"], project=project
    )
    asked = {
        name: value for name, value in given.items() if name not in ("project", "every", "weak", "explain")
    }
    if session.server is not None:
        return session.services, place, asked | ({"all_tenants": True} if every else {})
    if not every and place.project is None and session.readers is session._discovered:
        return session.readers, place, asked
    filters = {name: asked[name] for name in DocumentFilters.__annotations__ if asked.get(name) is not None}
    first, *more = session.assembly.documents.projects.scopes(place, every=every)
    narrowed = asked["path"] is not None or asked["library"] is not None
    if not every and (narrowed or not session.assembly.documents.notes.page(limit=1)):
        more = []
    also = [filters | one for one in more]
    scoped = asked | first | ({"also": also} if also else {})
    return (session.services if also else session.readers), place, scoped


def hint_elsewhere(session: Session, place: Placement) -> None:
    """Say where documents are, when a search of one project, or outside of projects, found none."""
    if session.server is not None or not session.project_names:
        return
    if place.project is not None and place.branch not in indexed_branches(session, place):
        root = place.project.root
        folder = "." if root == str(Path.cwd()) else printable(relative(root))
        session.hint(f"Branch {printable(place.branch)} is not indexed. Index it: penstock index {folder}")
    else:
        projects = how_many(len(session.project_names), "project is", "projects are")
        session.hint(f"{projects} indexed. Search everything with: --all")


def indexed_branches(session: Session, place: Placement) -> set[str]:
    counts = session.assembly.documents.tenant_counts(place.tenant_id)
    return {one.branch for one in counts if one.sources}


def in_project(place: Placement) -> str:
    """The words for the project that a command was about; empty outside of projects."""
    return "" if place.name is None else f" in project {printable(place.name)}"


def tenant_name(session: Session, tenant_id: str) -> str:
    """The name of a tenant's project, or else the tenant."""
    return session.project_names.get(tenant_id, tenant_id)


def place_text(session: Session, place: Place) -> str:
    """Project or tenant, collection and branch of a document."""
    name = session.project_names.get(place.tenant_id)
    owner = f"tenant {place.tenant_id}" if name is None else f"project {name}"
    return f"{owner}, collection {place.collection}, branch {place.branch}"
