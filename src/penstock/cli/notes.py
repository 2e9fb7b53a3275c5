"""``penstock note``: add, replace and remove notes, ``note list`` and ``note show``."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.exit_codes import REFUSED
from penstock.cli.output import age, emit, emit_json, fields, printable, space_left, table
from penstock.cli.progress import spoken
from penstock.cli.session import OPTIONS, QUEUE_DISABLED, WITH_VALUES, CommandGroup, Session
from penstock.errors import InvalidRequest, PayloadTooLarge
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.client.sync_client import Client
    from penstock.queue.job import Job
    from penstock.service.notes import NoteView
    from penstock.service.requests import Receipt


ADD = "add"
WAIT_S = 3.0
"""Longest wait for a running worker to index a note, so that the id can be printed."""
_LEAST_TITLE = 20
"""Columns that `note list` keeps for the beginning of a text."""
DONE = {"ingest": "Note added", "update": "Note replaced", "delete": "Note removed"}


class NoteGroup(CommandGroup):
    """``note TEXT`` is ``note add TEXT``; only the exact words of commands are commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert ``add`` before a text or an option of ``add``. Global options may come first."""
        first = 0
        while first < len(args) and args[first].partition("=")[0] in (*OPTIONS, "-q"):
            takes_value = args[first] in WITH_VALUES
            first += 2 if takes_value else 1
        word = args[first] if first < len(args) else None
        if word is not None and word not in self.commands and word not in ctx.help_option_names:
            args = [*args[:first], ADD, *args[first:]]
        return super().parse_args(ctx, args)


@click.group(cls=NoteGroup)
def note() -> None:
    """Add, list, show, replace and remove notes.

    `penstock note TEXT` is short for `penstock note add TEXT`. With - the text is read from standard input.

    \b
    penstock note "The gate sticks when it freezes." --tag mill/gate
    penstock note - < minutes.txt
    penstock note --update ID "The gate runs well."
    penstock note add list
    """


@note.command(ADD)
@click.argument("text", metavar="TEXT|-")
@click.option("--tag", metavar="TAG", help="Tag of the note, such as mill/water.")
@click.option("--no-tag", is_flag=True, help="With --update: remove the tags of the note.")
@click.option("--collection", metavar="NAME", help="Collection of the note.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the note.")
@click.option("--update", metavar="ID", help="Replace the note with this id. Its tags stay without --tag.")
@click.option("--delete", is_flag=True, help="Remove the note with this text or id.")
@click.pass_obj
def add_note(session: Session, /, text: str, **given: Any) -> None:
    """Add a note to the index, or replace or remove one.

    The id of the note is printed. An equal text is the same note.
    """
    _refuse_contradictions(given)
    if text == "-":
        text = _standard_input(session.settings.max_payload_bytes)
    if session.client is not None:
        _add_by_server(session, session.client, text, given)
        return
    alive = session.assembly.worker_alive()
    disabled = session.waits_for_enabling(worker_alive=alive)
    if not alive and not disabled and not given["delete"]:
        session.assembly.documents.refuse_another_model()
    receipt = session.assembly.documents.note(
        text,
        tag=given["tag"],
        collection=given["collection"],
        tenant_id=given["tenant"],
        update=given["update"],
        delete=given["delete"],
        drop_tags=given["no_tag"],
    )
    if alive:
        session.assembly.wait(receipt.job_id, timeout=WAIT_S)
        # The worker may have been that of another command, which ended with its own job.
        alive = session.assembly.jobs.job(receipt.job_id).ended or session.assembly.worker_alive()
    if not alive and session.settings.queue_enabled:
        session.run_here(receipt.job_id)
    job = session.assembly.jobs.job(receipt.job_id)
    _print_result(session, receipt, job, _note_id(session, job, text))
    if disabled and not session.as_json:
        session.hint(QUEUE_DISABLED)
    if job.ended and job.status != "done":
        raise SystemExit(REFUSED)


def _add_by_server(session: Session, client: Client, text: str, given: dict[str, Any]) -> None:
    receipt = _sent(client, text, given)
    with suppress(TimeoutError):
        client.wait(receipt.job_id, timeout=WAIT_S)
    job = client.job(receipt.job_id)
    note_id = job.payload.get("document_id")
    if note_id is None and job.status == "done":
        where = {"tenant_id": job.tenant_id, "collection": job.collection, "branch": job.branch}
        from penstock.queue.payloads import note_path

        found = client.documents(path=note_path(text), limit=1, **where)
        note_id = found[0].source_id if found else None
    _print_result(session, receipt, job, note_id)
    if job.ended and job.status != "done":
        raise SystemExit(REFUSED)


def _sent(client: Client, text: str, given: dict[str, Any]) -> Receipt:
    """Send what is asked for to a server. A note to remove may be given by its text."""
    place = {"tenant_id": given["tenant"], "collection": given["collection"]}
    if given["delete"]:
        from penstock.queue.payloads import note_path

        known = client.documents(path=note_path(text), limit=1, **place)
        return client.remove_note(known[0].source_id if known else text, tenant_id=given["tenant"])
    if given["update"] is not None:
        return client.replace_note(
            given["update"],
            text,
            tag=given["tag"],
            drop_tags=bool(given["no_tag"]),
            tenant_id=given["tenant"],
        )
    return client.note(text, tag=given["tag"], **place)


def _refuse_contradictions(given: dict[str, Any]) -> None:
    if given["delete"] and given["update"] is not None:
        raise click.UsageError("--update and --delete: give one of them.")
    if given["no_tag"] and given["tag"] is not None:
        raise click.UsageError("--tag and --no-tag: give one of them.")
    if given["no_tag"] and given["update"] is None:
        raise click.UsageError("--no-tag goes with --update.")


def _standard_input(max_bytes: int) -> str:
    """Read the text of a note, without line breaks at its end, as the shell does for ``$(...)``."""
    read = sys.stdin.buffer.read(max_bytes + 1)
    if len(read) > max_bytes:
        # An endless input must not be read to its end.
        raise PayloadTooLarge(
            f"standard input has more than {max_bytes:,} bytes",
            remedy="Index it as a file, or raise PENSTOCK_MAX_PAYLOAD_BYTES.",
        )
    try:
        text = read.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"standard input is not UTF-8 text (byte {error.start + 1:,})",
            remedy="A note is text. Index a file with: penstock index FILE",
        ) from None
    if not text.strip():
        raise InvalidRequest(
            "standard input is empty or closed", remedy="Pipe a text into the command, or give it as TEXT."
        )
    return text


def _note_id(session: Session, job: Job, text: str) -> str | None:
    """The id of the note, once it is known; None for a removed note given by its text."""
    if job.payload.get("document_id"):
        return str(job.payload["document_id"])
    if job.op == "delete" or (job.ended and job.status != "done"):
        return None
    notes = session.assembly.documents.notes
    return notes.find(text, notes.place_of(job.tenant_id, job.collection, job.branch))


def _print_result(session: Session, receipt: Receipt, job: Job, note_id: str | None) -> None:
    if session.as_json:
        answer = {"job_id": receipt.job_id, "note_id": note_id, "status": spoken(job.status)}
        more = {"dedupe_hit": receipt.dedupe_hit, "result": job.result, "error": job.error_message}
        emit_json(answer | more)
    elif job.status == "done":
        outcome = job.result_fields.get("outcome")
        usual = outcome in ("indexed", "removed")
        done = DONE[job.op] if usual else f"Note {printable(outcome)}"
        if session.quiet:
            # The id is a result; that the request was carried out is said by the exit code.
            emit(note_id or "")
        else:
            emit(f"{done}: {note_id}" if note_id else f"{done}.")
    elif job.ended:
        failed = f"{job.error_message} ({job.error_code})" if job.error_code else spoken(job.status)
        emit(f"{receipt.job_id}: {printable(failed)}")
    else:
        emit(f"Job queued: {receipt.job_id}")


@note.command("list")
@click.option("--tag", metavar="TAG", help="List only notes with this tag or a tag below it.")
@click.option("--collection", metavar="NAME", help="List only this collection.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the notes.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    metavar="N",
    help="Maximum number of notes.",
)
@click.option("--after", metavar="ID", default="", help="List notes after this id, the last one of a page.")
@click.pass_obj
def list_notes(
    session: Session, tag: str | None, collection: str | None, tenant: str | None, limit: int, after: str
) -> None:
    """List notes, newest first."""
    found = session.services.notes(
        tenant_id=tenant, collection=collection, tag=tag, after=after, limit=limit + 1
    )
    page = found[:limit]
    following = page[-1].note_id if len(found) > limit else None
    if session.as_json:
        emit_json({"notes": page, "next": following})
        return
    emit(_note_table(page) if page else "No notes.")
    if following:
        session.hint(f"More notes follow: add --after {following}")


def _note_table(page: Sequence[NoteView]) -> str:
    """Notes in lines. On a narrow terminal tags and age give way, because a cut id names no note."""
    header = ["id", "changed", "tags"]
    rows = [[each.note_id, age(each.updated_at), printable(", ".join(each.tags))] for each in page]
    while len(header) > 1 and space_left(header, rows) < _LEAST_TITLE:
        header, rows = header[:-1], [row[:-1] for row in rows]
    titles = [each.title for each in page]
    return table([*header, "note"], [[*row, title] for row, title in zip(rows, titles, strict=True)])


@note.command("show")
@click.argument("note_id", metavar="ID")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the note.")
@click.pass_obj
def show_note(session: Session, note_id: str, tenant: str | None) -> None:
    """Show one note with its text.

    ID is printed by `penstock note` and `penstock note list`.
    """
    found = session.services.read_note(note_id, tenant_id=tenant)
    if session.as_json:
        emit_json(found)
        return
    emit(
        fields(
            [
                ("Note", found.note_id),
                ("Place", f"tenant {found.tenant_id}, collection {found.collection}, branch {found.branch}"),
                ("Tags", ", ".join(found.tags)),
                ("Size", how_many(found.size, "byte")),
                ("Changed", age(found.updated_at)),
            ]
        )
    )
    lines = (found.text or "").splitlines()
    emit("\n" + "\n".join(printable(line) for line in lines))
