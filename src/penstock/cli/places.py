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
    from penstock.service.hits import Coverage, SearchResult
    from penstock.service.passages import PromptContext
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

    A running server searches one part of the index at a time, so that this process searches several.
    """
    project, every = given["project"], given["every"]
    if every and (given["tenant_id"] or given["branch"] or project is not None):
        raise click.UsageError("Give --all, or else --tenant, --branch or --project.")
    place = session.place(
        filtered_path(given), tenant=given["tenant_id"], branch=given["branch"], project=project
    )
    asked = {
        name: value for name, value in given.items() if name not in ("project", "every", "weak", "explain")
    }
    placed = asked | {"tenant_id": place.tenant_id, "branch": place.branch}
    if session.server is not None:
        return session.services, place, asked | {"all": True} if every else placed
    if not every and place.project is None and session.readers is session._discovered:
        return session.readers, place, placed
    projects = session.assembly.documents.projects
    if every:
        return session.services, place, asked | {"within": projects.search_scope(every=True)}
    narrowed = asked["path"] is not None or asked["library"] is not None
    found = projects.scope_at(place)
    if len(found.filters) > 1 and (narrowed or not session.assembly.documents.notes.page(limit=1)):
        found = found.without_notes()
    if len(found.filters) > 1 or (session.client is None and session._discovered is None):
        return session.services, place, asked | {"within": found}
    return session.readers, place, placed


def covered_by(answer: SearchResult | PromptContext, place: Placement) -> Coverage:
    """The part of the index that a search covered; a server knows the tenant of a project, not the name."""
    import msgspec

    covered = answer.covered
    if place.project is None:
        return covered
    parts = tuple(
        msgspec.structs.replace(part, project=place.project.name)
        if part.tenant_id == place.tenant_id and part.project is None
        else part
        for part in covered.parts
    )
    return msgspec.structs.replace(covered, parts=parts)


def hint_covered(session: Session, covered: Coverage, *, found: bool) -> None:
    """Say what was searched, and how to search all; after no hit also that there are projects."""
    from penstock.service.hits import coverage_text

    text = printable(coverage_text(covered))
    if not covered.everything:
        in_project = any(part.project is not None for part in covered.parts)
        number = 0 if found or in_project or session.server is not None else len(session.project_names)
        there = f" {how_many(number, 'project is', 'projects are')} indexed." if number else ""
        text += f"{there} Search everything with: --all"
    session.hint(text)


def hint_branch(session: Session, place: Placement) -> None:
    """Say that the checked-out branch of a project is not indexed, when a search found nothing in it."""
    if session.server is not None or place.project is None:
        return
    if place.branch not in indexed_branches(session, place):
        root = place.project.root
        folder = "." if root == str(Path.cwd()) else printable(relative(root))
        session.hint(f"Branch {printable(place.branch)} is not indexed. Index it: penstock index {folder}")


def indexed_branches(session: Session, place: Placement) -> set[str]:
    counts = session.assembly.documents.tenant_counts(place.tenant_id)
    return {one.branch for one in counts if one.sources}


def in_project(place: Placement) -> str:
    """The words for the project that a command was about; empty outside of projects."""
    return "" if place.name is None else f" in project {printable(place.name)}"


def tenant_name(session: Session, tenant_id: str) -> str:
    """The name of a tenant's project, or else the tenant."""
    return session.project_names.get(tenant_id, tenant_id)


def owner_word(session: Session, tenant_id: str) -> str:
    """What ``tenant_name`` names: a project, or else a tenant."""
    return "Project" if tenant_id in session.project_names else "Tenant"


def place_text(session: Session, place: Place) -> str:
    """Project or tenant, collection and branch of a document."""
    name = session.project_names.get(place.tenant_id)
    owner = f"tenant {place.tenant_id}" if name is None else f"project {name}"
    return f"{owner}, collection {place.collection}, branch {place.branch}"
