"""``penstock library``: add, list, show and remove the documentation of libraries."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.exit_codes import REFUSED
from penstock.cli.options import all_words
from penstock.cli.output import age, emit, emit_json, fields, printable, table
from penstock.cli.session import QUEUE_DISABLED, CommandGroup, Session
from penstock.errors import UnknownLibrary
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.client.library_calls import ClientLibraries
    from penstock.service.libraries import IndexedLibrary, Libraries
    from penstock.service.requests import Receipt


F = TypeVar("F", bound=Callable[..., Any])


def _place_options(command: F) -> F:
    for option in (
        click.option("--branch", metavar="NAME", help="Branch of the documents."),
        click.option("--tenant", "tenant_id", metavar="NAME", help="Tenant who owns the documents."),
        click.option("--collection", metavar="NAME", help="Collection of the documents."),
    ):
        command = option(command)
    return command


@click.group(cls=CommandGroup)
def library() -> None:
    """Add, list, show and remove the documentation of libraries.

    Versions of a library are kept beside each other. `penstock search --library NAME==VERSION` searches one.

    \b
    penstock library add mill==1.2 --from mill-1.2.tar.gz
    penstock library add mill==2.0 --from https://docs.example.org/mill/ --replace
    penstock library remove mill==1.2
    """


@library.command()
@click.argument("requirement", metavar="NAME[==VERSION]")
@click.option(
    "--from",
    "source",
    metavar="PATH|URL",
    help="Folder, archive, wheel, or URL of an archive or start page. Default: the installed distribution.",
)
@click.option("--replace", is_flag=True, help="Remove the other versions once this one is indexed.")
@click.option("--include", multiple=True, metavar="GLOB", help="Index only matching files; may be repeated.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Leave out matching files; may be repeated.")
@click.option(
    "--include-code/--no-code", "include_code", default=None, help="Index source code (default), or not."
)
@click.option(
    "--depth",
    type=click.IntRange(0),
    metavar="N",
    help="Maximum folder depth; of a URL, the links followed from the start page. Default: 3.",
)
@click.option("--host", "hosts", multiple=True, metavar="ADDRESS", help="Follow links to this host, too.")
@click.option(
    "--max-pages",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Maximum number of web pages. Default: 1,000.",
)
@click.option("--graph/--no-graph", default=None, help="Extract entities and relations, or remove them.")
@click.option("--ocr", is_flag=True, default=None, help="Recognize text in pictures, too.")
@click.option("--force", is_flag=True, help="Index unchanged files again.")
@click.option("--retry-failed", is_flag=True, help="Read unchanged files again that failed before.")
@click.option(
    "--wait/--no-wait", default=None, help="Wait until the job has ended, or return once it is queued."
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Number of processes when the job runs in this command.",
)
@click.option("--serial", is_flag=True, help="Use one process when the job runs in this command.")
@_place_options
@click.pass_obj
def add(session: Session, /, requirement: str, source: str | None, replace: bool, **given: Any) -> None:
    """Index the documentation of a library.

    Without --from, the files of the distribution that is installed beside Penstock are read. Nothing is
    downloaded unless --from is a URL. Without ==VERSION, the version is the one that the source states.

    When a worker is running, the job is queued for that worker. Otherwise this command does the work.

    \b
    penstock library add requests
    penstock library add mill==1.2 --from mill-1.2.tar.gz
    """
    from penstock.cli.index import follow, follow_there

    names = "include_code depth max_pages graph ocr force retry_failed collection tenant_id branch"
    options: dict[str, Any] = {name: given[name] for name in names.split()}
    options |= {name: all_words(given[name]) for name in ("include", "exclude", "hosts")}
    if session.client is not None:
        began, there = time.monotonic(), session.client.libraries
        path = None if source is None else session.path(source)
        receipt = there.add(requirement, source=path, replace=replace, **options)
        title = f"Indexing {requirement}"
        follow_there(session, session.client, title, receipt, began, waits=bool(given["wait"]))
        return
    libraries = session.assembly.documents.libraries
    follow(
        session,
        f"Indexing {requirement}",
        lambda: libraries.add(requirement, source=source, replace=replace, **options),
        given,
    )


@library.command("list")
@click.argument("requirement", metavar="[NAME[==VERSION]]", required=False)
@_place_options
@click.pass_obj
def list_(session: Session, /, requirement: str | None, **where: Any) -> None:
    """List the indexed libraries and their versions."""
    found = _libraries(session).versions(requirement, **where)
    if session.as_json:
        emit_json({"libraries": found})
        return
    if not found:
        emit("No library is indexed. Add one with: penstock library add NAME --from PATH|URL")
        return
    rows = [[each.name, each.version, each.documents, each.chunks, _age(each)] for each in found]
    emit(table(["name", "version", "documents", "chunks", "indexed"], rows))


@library.command()
@click.argument("requirement", metavar="NAME[==VERSION]")
@_place_options
@click.pass_obj
def show(session: Session, /, requirement: str, **where: Any) -> None:
    """Show the versions of a library, and where each came from."""
    found = _libraries(session).versions(requirement, **where)
    if not found:
        raise UnknownLibrary(f"no library {requirement[:120]!r} is indexed")
    if session.as_json:
        emit_json({"libraries": found})
        return
    emit("\n\n".join(_shown(each) for each in found))


@library.command()
@click.argument("requirement", metavar="NAME[==VERSION]")
@_place_options
@click.pass_obj
def remove(session: Session, /, requirement: str, **where: Any) -> None:
    """Remove a version of a library, or all versions. Folders and archives are not touched."""
    alive = session.worker_alive()
    disabled = session.client is None and session.waits_for_enabling(worker_alive=alive)
    answers: list[dict[str, Any]] = []
    failed = False
    for version, receipt in _removals(session, requirement, where):
        if session.client is None and not alive and not disabled:
            session.run_here(receipt.job_id)
        job = session.services.job(receipt.job_id)
        answers.append(
            {"library": version, "job_id": job.queue_id, "status": str(job.status), "result": job.result}
        )
        failed = failed or job.status == "failed"
        if not session.as_json:
            removed = job.result_fields.get("removed")
            done = f"removed: {how_many(removed, 'document')}" if removed is not None else f"job {job.status}"
            session.confirm_done(
                f"{version} {done}" if job.ended else f"{version}: job queued, {job.queue_id}"
            )
    if session.as_json:
        emit_json({"removals": answers})
    elif disabled:
        session.hint(QUEUE_DISABLED)
    if failed:
        raise SystemExit(REFUSED)


def _libraries(session: Session) -> Libraries | ClientLibraries:
    """The libraries of the server that the user chose, or of this machine."""
    return session.assembly.documents.libraries if session.client is None else session.client.libraries


def _removals(session: Session, requirement: str, where: dict[str, Any]) -> Iterator[tuple[str, Receipt]]:
    """Queue the removal of one version, or of all of them."""
    if session.client is None:
        for each in session.assembly.documents.libraries.removals(requirement, **where):
            payload = each["payload"]
            named = f"{payload['library_name']}=={payload['library_version']}"
            yield named, session.assembly.jobs.submit(exact=True, **each)
        return
    there = session.client.libraries
    found = there.versions(requirement, **where)
    if not found:
        raise UnknownLibrary(f"no library {requirement[:120]!r} is indexed")
    for one in found:
        yield f"{one.name}=={one.version}", there.remove(one.name, one.version, **where)


def _age(each: IndexedLibrary) -> str:
    return age(each.indexed_at) if each.indexed_at is not None else ""


def _shown(each: IndexedLibrary) -> str:
    return fields(
        [
            ("library", f"{each.name}=={each.version}"),
            ("from", printable(each.source)),
            ("documents", f"{each.documents:,}"),
            ("chunks", f"{each.chunks:,}"),
            ("failed", f"{each.failed:,}" if each.failed else None),
            ("indexed", _age(each)),
            ("path", each.path),
        ]
    )
