"""``penstock documents``, ``collection``, ``why``, ``rename``, ``delete``, ``delete-tenant``, ``verify``."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import index
from penstock.cli.exit_codes import REFUSED
from penstock.cli.hit_page import filtered_path, in_project, owner_word, place_text, relative
from penstock.cli.index import print_reasons
from penstock.cli.options import agreed, filter_options
from penstock.cli.output import (
    age,
    emit,
    emit_document_text,
    emit_json,
    fields,
    printable,
    shortened,
    table,
    terminal_width,
    wrapped,
)
from penstock.cli.session import QUEUE_DISABLED, CommandGroup, Session
from penstock.errors import CollectionNotFound
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.catalog.values import Document, Source
    from penstock.client.collection_calls import ClientCollections
    from penstock.queue.job import Job
    from penstock.service.collections import CollectionRecord, Collections
    from penstock.service.pages import ShownPage
    from penstock.service.requests import MovedWhere, PathPlace, Receipt, Submission
    from penstock.service.upkeep import Difference


MISSING_NAMED = 10
"""Failed pages and chunks named by ``why``."""


_WIDTH_FOR_IDS = 110
"""Columns of a terminal from which `documents list` shows ids beside the paths."""


@click.group(cls=CommandGroup, invoke_without_command=True)
@click.pass_context
def documents(context: click.Context) -> None:
    """List and inspect indexed documents.

    Without a command, the documents are listed.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_documents)


@documents.command("list")
@filter_options("List")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    metavar="N",
    help="Maximum number of documents.",
)
@click.option(
    "--after",
    metavar="ID",
    default="",
    help="List documents after this id, the last one of the previous page.",
)
@click.pass_obj
def list_documents(
    session: Session, /, limit: int, after: str, project: bool | None, **narrowed: Any
) -> None:
    """List documents in search, and files that cannot be read."""
    place = session.place(
        filtered_path(narrowed), tenant=narrowed["tenant_id"], branch=narrowed["branch"], project=project
    )
    narrowed |= {"tenant_id": place.tenant_id, "branch": place.branch}
    found = session.readers.documents(after=after, limit=limit + 1, **narrowed)
    page = found[:limit]
    following = page[-1].source_id if len(found) > limit else None
    if session.as_json:
        emit_json({"documents": page, "next": following})
        return
    header = ["path", "pages", "chunks", "indexed", "id"]
    rows: list[tuple[object, ...]] = [
        (
            _name(source),
            source.page_count,
            source.chunk_count,
            age(source.published_at) if source.published_id is not None else "failed",
            source.source_id,
        )
        for source in page
    ]
    if terminal_width() < _WIDTH_FOR_IDS:
        # A path names a document as well; --json prints the ids.
        header, rows = header[:-1], [row[:-1] for row in rows]
    emit(table(header, rows, paths=0) if rows else f"No documents{in_project(place)}.")
    if following:
        session.hint(f"More documents follow: add --after {following}")


def _name(source: Source) -> str:
    """Path or title. On a terminal a path is short, as in the hits of a search; programs get whole ones."""
    if source.path.startswith("note:"):
        name = source.title
    else:
        name = source.path if terminal_width() == sys.maxsize else relative(source.path)
    return name + _mark(source)


def _mark(source: Source) -> str:
    if source.failed and source.published_id is not None:
        return " (former version: the file cannot be read)"
    return " (partial)" if source.partial else ""


@documents.command()
@click.argument("path_or_id", metavar="PATH|ID")
@click.option("--collection", metavar="NAME", help="Collection of the document.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the document.")
@click.option("--branch", metavar="NAME", help="Branch of the document.")
@click.option(
    "--page", type=click.IntRange(1), metavar="N", help="Print the text of this page, as it was read."
)
@click.pass_obj
def show(
    session: Session,
    path_or_id: str,
    collection: str | None,
    tenant: str | None,
    branch: str | None,
    page: int | None,
) -> None:
    """Show one document and its generations, or the text of one page."""
    services, place = session.readers, session.place_of(path_or_id, tenant=tenant, branch=branch)
    where = {"collection": collection, "tenant_id": place.tenant_id, "branch": place.branch}
    named = session.path_or_id(path_or_id)
    if page is not None:
        _show_page(session, services.page(named, page, **where))
        return
    view = services.document(named, **where)
    source, generations, failed = view.source, view.generations, view.failed_inside
    if session.as_json:
        emit_json({"document": source, "generations": generations, "failed_inside": failed})
        return
    from penstock.service.why import recognized_text

    found = view.recognized
    inside = f"{how_many(len(failed), 'file')} inside it failed; see `penstock why`" if failed else None
    ocr = recognized_text(found) if found.pages else None
    emit(fields([*_facts(source, session), ("Inside", inside), ("OCR", ocr)]))
    rows = [
        (
            each.document_id,
            _state(each),
            each.page_count,
            each.chunk_count,
            age(each.created_at),
            each.note or "",
        )
        for each in generations
    ]
    emit("\n" + table(["generation", "state", "pages", "chunks", "made", "note"], rows))


def _state(document: Document) -> str:
    """The state of a generation; one that is kept back has failed."""
    return "failed" if document.state == "building" and document.settled else str(document.state)


def _failure(source: Source) -> str | None:
    if not source.failed:
        return None
    former = "; the former version is in search" if source.published_id is not None else ""
    return f"{source.failure.error}, {age(source.failure.at)}{former}"


def _facts(source: Source, session: Session) -> list[tuple[str, object]]:
    place = source.place
    content = f"{how_many(source.page_count, 'page')}, {how_many(source.chunk_count, 'chunk')}"
    return [
        ("Document", source.source_id),
        ("Path", source.path),
        ("Title", source.title),
        ("Place", place_text(session, place)),
        ("Tags", ", ".join(source.tags)),
        *_properties(source),
        ("Size", how_many((source.failure.size if source.failed else source.size) or 0, "byte")),
        ("Content", content if source.published_id is not None else None),
        ("Indexed", age(source.published_at)),
        ("Failed", _failure(source)),
        ("Partial", "some pages or chunks failed; see `penstock why`" if source.partial else None),
    ]


def _properties(source: Source) -> list[tuple[str, object]]:
    """Properties that the document states, and warnings about its reading."""
    found = source.properties
    encoding = found.encoding
    if found.replaced:
        encoding = f"{encoding or 'UTF-8'}, {how_many(found.replaced, 'character')} replaced"
    return [
        ("Type", found.media_type),
        ("Author", found.author),
        ("Created", found.created),
        ("Modified", found.modified),
        ("Language", found.language),
        ("Encoding", encoding),
        *(("Warning", warning) for warning in found.warnings),
    ]


def _show_page(session: Session, page: ShownPage) -> None:
    if session.as_json:
        emit_json(page)
        return
    emit_document_text(page.text)
    facts = [
        f"page {page.page:,} of {page.page_count:,}",
        f"recognized by {page.engine}" if page.engine else None,
        f"confidence {page.confidence:.0f}" if page.confidence is not None else None,
        page.error,
        None if page.exact or not page.text else "put together from chunks: blank lines may differ",
        f"file {page.page_file_path}" if page.page_file_path else None,
    ]
    session.hint(printable(", ".join(filter(None, facts))))
    for warning in page.warnings:
        session.hint(printable(f"warning: {warning}"))


@documents.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False))
@click.option("--collection", metavar="NAME", help="Export only this collection.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the documents.")
@click.option("--path", metavar="GLOB", help="Export only matching paths.")
@click.pass_obj
def export(
    session: Session, directory: str, collection: str | None, tenant: str | None, path: str | None
) -> None:
    """Write the text of documents to DIR, a Markdown file for each page."""
    place = session.place(tenant=tenant)
    done = session.assembly.documents.export(
        directory, path=path, collection=collection, tenant_id=place.tenant_id, branch=place.branch
    )
    if session.as_json:
        emit_json(done)
        return
    left_out = f" {how_many(done.unread, 'page')} could not be read." if done.unread else ""
    emit(
        f"{how_many(done.pages, 'page')} of {how_many(done.documents, 'document')} written to "
        f"{printable(done.directory)}.{left_out}"
    )


@documents.command()
@click.argument("path_or_id", metavar="PATH|ID")
@click.option("--collection", metavar="NAME", help="Collection of the document.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the document.")
@click.pass_obj
def history(session: Session, path_or_id: str, collection: str | None, tenant: str | None) -> None:
    """Show when a document was indexed, updated, renamed and removed."""
    services, place = session.services, session.place_of(path_or_id, tenant=tenant)
    where = {"collection": collection, "tenant_id": place.tenant_id, "branch": place.branch}
    entries = services.history(session.path_or_id(path_or_id), **where)
    if session.as_json:
        emit_json({"history": entries})
        return
    rows = [(f"{entry.at:%Y-%m-%d %H:%M:%S}", entry.what, printable(entry.note or "")) for entry in entries]
    emit(table(["when (UTC)", "what", ""], rows))


@documents.command()
@click.argument("path_or_id", metavar="PATH|ID")
@click.option("--collection", metavar="NAME", help="Collection of the document.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the document.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    metavar="N",
    help="Maximum number of pages.",
)
@click.pass_obj
def tree(session: Session, path_or_id: str, collection: str | None, tenant: str | None, limit: int) -> None:
    """Show the progress of each phase, page by page."""
    services, place = session.services, session.place_of(path_or_id, tenant=tenant)
    where = {"collection": collection, "tenant_id": place.tenant_id, "branch": place.branch}
    view = services.document(session.path_or_id(path_or_id), **where)
    source, generations = view.source, view.generations
    if not generations:
        emit("No generation of this document is left.")
        return
    newest = generations[0]
    pages = services.pages(source.source_id, limit=limit)
    if session.as_json:
        emit_json({"document": newest, "pages": pages})
        return
    emit(f"{printable(source.path)}: {_phases(newest)}")
    recognized = any(page.engine for page in pages)
    rows = [
        (
            page.number,
            page.chunk_count,
            *(str(state.status) for state in page.phases.values()),
            *(["" if page.confidence is None else f"{page.confidence:.0f}"] if recognized else []),
            page.error or "; ".join(page.warnings),
        )
        for page in pages
    ]
    header = ["page", "chunks", *newest.phases, *(["confidence"] if recognized else []), "remark"]
    emit(table(header, rows))
    if len(pages) < newest.page_count:
        session.hint(f"{len(pages):,} of {newest.page_count:,} pages; --limit shows more")


def _phases(document: Document) -> str:
    return ", ".join(f"{name} {state.status}" for name, state in document.phases.items())


def _why_job(session: Session, id_or_prefix: str) -> None:
    from penstock.cli.progress import status_and_held

    details = session.readers.view(id_or_prefix).details
    if session.as_json:
        emit_json({"job_id": details.job.queue_id, "held": details.job.held, "reason": details.reason})
        return
    job = details.job
    error = f"{job.error_code}: {job.error_message}" if job.error_code else None
    reason = details.reason or ("ended" if job.ended else "runs")
    emit(
        fields(
            [("Job", job.queue_id), ("Status", status_and_held(job)), ("Reason", reason), ("Error", error)]
        )
    )


@click.command()
@click.argument("path", metavar="PATH_OR_JOB", type=click.Path())
@click.option("--collection", metavar="NAME", help="Collection of the document.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the document.")
@click.option("--branch", metavar="NAME", help="Branch of the document.")
@click.option(
    "--project/--no-project",
    default=None,
    help="In the project around the path, or outside of projects. Default: the project, if it was indexed.",
)
@click.option("--all", "every", is_flag=True, help="Look in all tenants: every project, and outside of them.")
@click.pass_obj
def why(
    session: Session,
    path: str,
    collection: str | None,
    tenant: str | None,
    branch: str | None,
    project: bool | None,
    every: bool,
) -> None:
    """Explain why search does, or does not, find a path, or why a job waits.

    \b
    penstock why docs/mill.md
    penstock why job_0660f5b1a2c3d4e5f60718
    """
    if path.startswith("job_") and not os.path.lexists(path):
        _why_job(session, path)
        return
    if every and (tenant or branch or project is not None):
        raise click.UsageError("Give --all, or else --tenant, --branch or --project.")
    services = session.readers
    where: PathPlace = {"collection": collection, "tenant_id": tenant, "branch": branch, "project": project}
    reason = services.why(session.path(path), **where, all=every)
    if session.as_json:
        emit_json(reason)
        return
    facts: list[tuple[str, object]] = [
        ("Path", reason.path),
        ("State", reason.verdict),
        ("Reason", reason.cause),
        ("Remedy", reason.remedy),
        ("Job", reason.job_id),
    ]
    facts += [("Warning", warning) for warning in reason.warnings]
    facts += [("Missing", part) for part in reason.missing[:MISSING_NAMED]]
    if len(reason.missing) > MISSING_NAMED:
        facts.append(("Missing", f"and {len(reason.missing) - MISSING_NAMED:,} more; --json lists them"))
    emit(fields(facts))
    if reason.failed_inside:
        emit(f"\n{how_many(len(reason.failed_inside), 'file')} inside it failed:")
        print_reasons(reason.path, reason.failed_inside)
        session.hint("\n" + wrapped("`penstock index PATH --retry-failed` reads them again."))
    if reason.below:
        rows = [
            (one.verdict, shortened(os.path.relpath(one.path, reason.path)), one.cause)
            for one in reason.below
        ]
        emit("\n" + table(["state", "path", "reason"], rows))


SHOWN = 20


@click.command()
@click.argument("old", type=click.Path())
@click.argument("new", type=click.Path())
@click.option("--collection", metavar="NAME", help="Collection of the documents.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the documents.")
@click.pass_obj
def rename(session: Session, /, old: str, new: str, **where: Any) -> None:
    """Record that a file or folder was moved. No file is read or embedded again.

    Move the file yourself, before or after. The job compares both paths with the disk when it runs.
    """
    if session.client is not None:
        old, new = session.path(old), session.path(new)
        _print_queued(
            session,
            session.client.rename(old, new, tenant_id=where["tenant"], collection=where["collection"]),
        )
        return
    from penstock.service.documents import renaming

    named: MovedWhere = {"tenant_id": where["tenant"], "collection": where["collection"]}
    submit(session, renaming(session.assembly.documents, old, new, named))


@click.command()
@click.argument("path_or_id", metavar="PATH|ID")
@click.option("--collection", metavar="NAME", help="Collection of the documents.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the documents.")
@click.pass_obj
def delete(session: Session, /, path_or_id: str, **where: Any) -> None:
    """Remove a document or folder from the index. Files are not touched."""
    if session.client is not None:
        named = {"tenant_id": where["tenant"], "collection": where["collection"]}
        _print_queued(session, session.client.remove(session.path_or_id(path_or_id), **named))
        return
    place = session.place_of(path_or_id, tenant=where["tenant"])
    removal = session.assembly.documents.removal(
        path_or_id, tenant_id=place.tenant_id, collection=where["collection"], branch=place.branch
    )
    submit(session, removal)


@click.command("delete-tenant")
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_obj
def delete_tenant(session: Session, /, name: str, yes: bool) -> None:
    """Remove all documents and jobs of a tenant. Files are not touched."""
    if not yes and not agreed(f"Remove all documents and jobs of tenant {printable(name)}?"):
        emit("Nothing was removed.")
        raise SystemExit(REFUSED)
    if session.client is not None:
        _print_queued(session, session.client.remove_tenant(name))
        return
    payload = {"tenant_id_to_delete": name}
    submit(session, {"item_type": "delete_tenant", "op": "delete", "payload": payload})


def submit(session: Session, submission: Submission) -> None:
    """Submit a change and, where no worker is running, run it here."""
    alive = session.assembly.worker_alive()
    disabled = session.waits_for_enabling(worker_alive=alive)
    if not alive and not disabled and submission["item_type"] == "rename":
        session.assembly.documents.refuse_another_model()
    receipt = session.assembly.jobs.submit(exact=True, **submission)
    if alive or disabled:
        _print_queued(session, receipt)
        if disabled and not session.as_json:
            session.hint(QUEUE_DISABLED)
        return
    session.run_here(receipt.job_id)
    job = session.assembly.jobs.job(receipt.job_id)
    result = {"outcome": str(job.status)} | job.result_fields
    if session.as_json:
        error = {"code": job.error_code, "message": job.error_message} if job.error_code else None
        emit_json({"job_id": job.queue_id, "status": str(job.status), "result": job.result, "error": error})
    elif job.status == "done":
        renamed = job.item_type == "rename" and job.result is None
        session.confirm_done(_renamed(job) if renamed else _removed(result))
    else:
        emit(f"{job.status}: {printable(job.error_message)} ({job.error_code})")
    if job.status != "done":
        raise SystemExit(REFUSED)


def _removed(result: dict[str, Any]) -> str:
    removed, because = result.get("removed"), result.get("note")
    what = f": {how_many(removed, 'document')}" if removed is not None else ""
    return f"{result['outcome']}{what}" + (f" ({printable(because)})" if because else "")


def _renamed(job: Job) -> str:
    number = (job.progress or {}).get("counts", {}).get("renamed")
    if number:
        return f"renamed: {how_many(number, 'document')}"
    return "nothing was renamed; both paths were compared with the disk"


def _print_queued(session: Session, receipt: Receipt) -> None:
    """Print the id of a job that another process runs."""
    if session.as_json:
        emit_json({"job_id": receipt.job_id, "status": str(receipt.status), "result": None, "error": None})
    else:
        session.confirm_done(f"Job queued: {receipt.job_id}")


@click.command()
@click.option("--tenant", metavar="NAME", help="Check only this tenant.")
@click.option(
    "--fix",
    is_flag=True,
    help="Repair the catalog, and queue a job for each path that differs from the disk.",
)
@click.option("--checksum", is_flag=True, help="Compare file contents as well; reads every file.")
@click.pass_obj
def verify(session: Session, /, tenant: str | None, fix: bool, checksum: bool) -> None:
    """Compare the index with the disk and list differences.

    --fix leaves a path alone when its whole folder is missing or cannot be read: the disk may be unmounted.
    Remove such documents with `penstock delete PATH`.

    Files that cannot be read are listed after the differences; there is nothing of them in the index.

    The exit code is 0 without differences, and with --fix.
    """
    verifier = session.assembly.verifier
    found = list(verifier.differences(tenant, checksum=checksum))
    repaired = verifier.repair() if fix and any(one.path is None for one in found) else 0
    receipts = verifier.fix(found) if fix and found else []
    unreadable = verifier.unreadable(tenant)
    if session.as_json:
        queued = [receipt.job_id for receipt in receipts]
        emit_json({"differences": found, "repaired": repaired, "queued": queued, "unreadable": unreadable})
    elif not found:
        emit("Everything matches.")
    else:
        emit(table(["path", "difference"], [(one.path or "(catalog)", one.what) for one in found[:SHOWN]]))
        if len(found) > SHOWN:
            emit(f"… and {len(found) - SHOWN:,} more; --json lists all.")
        if repaired:
            emit(f"{how_many(repaired, 'row')} of the catalog or its copies repaired.")
        if receipts:
            emit(f"{how_many(len(receipts), 'job')} queued to repair the rest.")
        if fix:
            _print_left_alone(found)
        if (repaired or receipts) and not session.quiet and not session.assembly.worker_alive():
            emit("No worker is running. Start one with: penstock worker")
    if unreadable and not session.as_json:
        emit(f"\n{how_many(len(unreadable), 'file')} cannot be read:")
        index.print_reasons("/", unreadable)
    if found and not fix:
        raise SystemExit(REFUSED)


def _print_left_alone(found: list[Difference]) -> None:
    left = Counter(one.left_alone for one in found if one.left_alone is not None)
    for reason, number in left.most_common(SHOWN):
        emit(f"{number:,} left alone: {printable(reason)}.")
    if left:
        emit("Run `penstock verify` again when they can be read, or remove them: penstock delete PATH")


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
                printable(session.tenant_name(one.tenant_id)),
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
                (owner_word(session, record.tenant_id), printable(session.tenant_name(record.tenant_id))),
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
    owner = f"{owner_word(session, record.tenant_id).lower()} {session.tenant_name(record.tenant_id)}"
    if not yes and not agreed(
        f"Remove {how_many(record.documents, 'document')} of collection {printable(record.collection)} "
        f"of {printable(owner)}?"
    ):
        emit("Nothing was removed.")
        raise SystemExit(REFUSED)
    if session.client is not None:
        _print_queued(session, session.client.collections.clear(name, tenant_id=record.tenant_id))
        return
    from penstock.service.collections import clearing

    submit(session, clearing(record.collection, record.tenant_id))
