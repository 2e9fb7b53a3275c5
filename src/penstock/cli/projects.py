"""``penstock project``: projects, their branches, and the removal of branches that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.exit_codes import REFUSED
from penstock.cli.hit_page import relative
from penstock.cli.options import agreed
from penstock.cli.output import emit, emit_json, fields, printable, record_fields, table
from penstock.cli.session import QUEUE_DISABLED, CommandGroup, Session
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.service.projects import ProjectView, Prune
    from penstock.service.requests import Receipt


_NONE_YET = "No projects yet. Index one: penstock index FOLDER, in a git work tree"


@click.group(cls=CommandGroup)
def project() -> None:
    """List projects and their branches, and forget branches that are gone.

    A folder in a git work tree is indexed as a project: its documents have a tenant of their own, by the
    remote of the repository, and are kept for each branch. NAME is the name of a project, or a path in it.
    """


@project.command("list")
@click.pass_obj
def list_projects(session: Session) -> None:
    """List projects."""
    found = _every(session)
    if session.as_json:
        emit_json({"projects": [_as_json(one) for one in found]})
        return
    rows = [
        (
            printable(one.name),
            len({each.branch for each in one.branches}),
            sum(each.sources for each in one.branches),
            printable(relative(one.roots[0]))
            + (f" and {len(one.roots) - 1:,} more" if one.roots[1:] else ""),
        )
        for one in found
    ]
    emit(table(["project", "branches", "documents", "folder"], rows, paths=3) if rows else _NONE_YET)


@project.command()
@click.argument("name", default=".")
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show a project with its folders and branches; by default the one around the current folder."""
    from penstock.service.paths import real_path
    from penstock.service.projects import find_project

    found = find_project(
        _every(session), name, real_path(name) if session.server is None else session.path(name)
    )
    if session.as_json:
        emit_json(_as_json(found))
        return
    facts: list[tuple[str, object]] = [("Project", found.name), ("Remote", found.remote)]
    facts += [("Folder", root) for root in found.roots]
    emit(fields([*facts, ("Tenant", found.tenant_id)]))
    current = found.checked_out
    rows = [
        (
            printable(one.branch),
            one.collection,
            one.sources,
            one.chunks,
            "checked out" if one.branch in current else "",
        )
        for one in found.branches
    ]
    emit("\n" + table(["branch", "collection", "documents", "chunks", ""], rows))


@project.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--branch",
    "branches",
    multiple=True,
    metavar="NAME",
    help="Forget this branch, whether or not it is gone.",
)
@click.option("--dry-run", is_flag=True, help="Print the branches, but remove nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def prune(
    session: Session, names: tuple[str, ...], branches: tuple[str, ...], dry_run: bool, yes: bool
) -> None:
    """Remove documents of branches that are deleted in the repository. Files are not touched.

    By default all projects are looked at; with --branch the one around the current folder.

    \b
    penstock project prune --dry-run
    penstock project prune mill --branch wip
    """
    projects = session.assembly.documents.projects
    chosen = [projects.find(name) for name in names or (["."] if branches else [])] or projects.all()
    plans = [projects.prunable(one, branches) for one in chosen]
    gone = [plan for plan in plans if plan.branches]
    if not session.as_json:
        _show_plans(session, plans)
    done: list[Receipt] = []
    if gone and not dry_run:
        number = how_many(sum(len(plan.branches) for plan in gone), "branch", "branches")
        if not yes and not agreed(f"Remove the documents of {number}?"):
            emit("Nothing was removed.")
            raise SystemExit(REFUSED)
        done = projects.prune(gone)
        _run(session, done)
    if session.as_json:
        emit_json(_plans_as_json(plans, done))


@project.command()
@click.argument("old", type=click.Path())
@click.argument("new", type=click.Path())
@click.pass_obj
def move(session: Session, old: str, new: str) -> None:
    """Record that the folder of a project was moved. Move the folder first.

    Its documents keep their tenant; `penstock index NEW` gives them their new paths, and reads none again.
    """
    found = session.assembly.documents.projects.move(old, new)
    if session.as_json:
        emit_json(record_fields(found))
    else:
        session.confirm_done(f"Project {printable(found.name)} is now at {printable(found.root)}")


def _every(session: Session) -> list[ProjectView]:
    from penstock.service.projects import project_views

    return project_views(session.services.projects(), session.services.overview(None).tenants)


def _run(session: Session, receipts: list[Receipt]) -> None:
    """Run the removals here, unless a worker does."""
    alive = session.assembly.worker_alive()
    if session.waits_for_enabling(worker_alive=alive):
        session.hint(QUEUE_DISABLED)
        return
    for receipt in receipts if not alive else ():
        session.run_here(receipt.job_id)
    if not session.as_json:
        branches = how_many(len(receipts), "branch", "branches")
        session.confirm_done(f"Removing {branches}: jobs queued." if alive else f"Removed {branches}.")


def _show_plans(session: Session, plans: list[Prune]) -> None:
    rows = [
        (printable(plan.project.name), printable(one.branch), one.collection, one.sources)
        for plan in plans
        for one in plan.branches
    ]
    if rows:
        emit(table(["project", "branch", "collection", "documents"], rows))
    elif not any(plan.kept_because for plan in plans):
        session.confirm_done("Every indexed branch exists.")
    for plan in plans:
        if plan.kept_because:
            session.hint(
                f"{printable(plan.project.name)}: {printable(plan.kept_because)}, so none of its branches is "
                "removed. Name one with --branch, or record where the folder is: penstock project move"
            )


def _plans_as_json(plans: list[Prune], done: list[Receipt]) -> dict[str, Any]:
    return {
        "projects": [
            {
                "name": plan.project.name,
                "tenant_id": plan.project.tenant_id,
                "branches": plan.branches,
                "kept_because": plan.kept_because,
            }
            for plan in plans
        ],
        "jobs": [receipt.job_id for receipt in done],
    }


def _as_json(found: ProjectView) -> dict[str, Any]:
    return record_fields(found) | {"checked_out": found.checked_out}
