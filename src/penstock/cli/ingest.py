"""``penstock ingest submit|status`` and ``penstock queue status``: the Redis contract for people."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.exit_codes import NOT_SUBMITTED, REFUSED
from penstock.cli.gateway import config_option
from penstock.cli.output import emit, emit_error, emit_json, fields, printable, span, table
from penstock.cli.session import Command, Session, json_option
from penstock.errors import StoreError
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.redis_contract.producer_types import Health, PreparedMessage

FOLLOW_S = 0.5
WATCH_S = 2.0
ENDED = ("done", "failed")


def redis_option(command: Command) -> Command:
    return click.option(
        "--redis",
        "redis_url",
        metavar="URL",
        help="The Redis server of the contract, instead of PENSTOCK_CONTRACT_URL or the configuration's.",
    )(command)


@click.group()
def ingest() -> None:
    """Submit files by the Redis contract, and see what became of them."""


@ingest.command()
@click.option("--rag", "rag_id", metavar="ID", required=True, help="The RAG the file is for.")
@click.option("--path", type=click.Path(), required=True, help="The file.")
@click.option("--type", "source_type", type=click.Choice(["pdf", "txt", "md", "docx"]), help="What it is.")
@click.option("--reindex", is_flag=True, help="Do it again even if nothing changed.")
@click.option(
    "--skip-validation", is_flag=True, help="Take the content for what it is, whatever its type says."
)
@click.option(
    "--preserve-metadata/--drop-metadata", default=True, help="Keep the tags and metadata it has, or not."
)
@click.option("--priority", type=click.Choice(["high", "normal", "low"]), help="Which list it goes to.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag for the document; repeat for more.")
@click.option("--max-retries", type=click.IntRange(0, 1000), metavar="N", help="Retries after a failure.")
@click.option("--dry-run", is_flag=True, help="Check everything and show the message, but send nothing.")
@redis_option
@config_option
@json_option
@click.pass_obj
def submit(
    session: Session, /, rag_id: str, path: str, redis_url: str | None, rag_config: str | None, **given: Any
) -> None:
    """Send one file to a RAG.

    The file and the RAG are checked here; then hash and message go to Redis together. Exit codes: 0 sent, 1
    the file or RAG is not right, 2 Redis did not take it, 3 configuration.

    \b
    penstock ingest submit --rag policies_rag --path incoming/handbook.pdf
    """
    from penstock.redis_contract.producer_types import SubmitRequest

    dry_run = given.pop("dry_run")
    session.overrides.update(contract_url=redis_url, rag_config=rag_config)
    contract = session.assembly.producer
    prepared = contract.prepare(rag_id, path, SubmitRequest(**given))
    connected = None
    if not dry_run:
        try:
            contract.submit(prepared)
        except StoreError as error:
            emit_error(error, as_json=session.as_json)
            raise SystemExit(NOT_SUBMITTED) from None
        with suppress(StoreError):  # it was sent; who serves it is only good to know
            connected = contract.health().worker_connected
    if session.as_json:
        told = {"job_id": prepared.message["job_id"], "list": prepared.key, "message": prepared.message}
        emit_json(told | {"submitted": not dry_run, "worker_connected": connected})
        return
    emit(_told(prepared, dry_run=dry_run))
    if connected is False:
        click.echo("No gateway is connected; the job waits. Start one with: penstock gateway", err=True)


def _told(prepared: PreparedMessage, *, dry_run: bool) -> str:
    message = prepared.message
    asked = {**message["options"], "drop_metadata": not message["options"]["preserve_metadata"]}
    options = ", ".join(name for name, value in asked.items() if value and name != "preserve_metadata")
    lines = fields(
        [
            ("Would submit" if dry_run else "Job submitted", message["job_id"]),
            ("RAG", f"{message['rag_id']} (collection {prepared.collection})"),
            ("File", f"{message['source_path']} ({message['source_type']})"),
            ("Afterwards", "moved to processed/ or failed/" if prepared.moves else "it stays where it is"),
            ("List", prepared.key),
            ("Options", options),
        ]
    )
    if dry_run:
        return f"{lines}\nNothing was sent."
    return f"{lines}\nFollow it with: penstock ingest status --job {message['job_id']} --follow"


@ingest.command("status")
@click.option("--job", "job_id", metavar="ID", required=True, help="The id that submit answered.")
@click.option("--follow", is_flag=True, help="Until the job has ended; exit code 1 if it failed.")
@redis_option
@config_option
@json_option
@click.pass_obj
def job_status(
    session: Session, job_id: str, follow: bool, redis_url: str | None, rag_config: str | None
) -> None:
    """What the hash of a job says."""
    session.overrides.update(contract_url=redis_url, rag_config=rag_config)
    contract = session.assembly.producer
    shown = contract.status(job_id)
    while follow and shown.get("status") not in ENDED:
        _tell_way(session, shown)
        time.sleep(FOLLOW_S)
        shown = contract.status(job_id)
    if session.as_json:
        emit_json(shown)
    else:
        _clear_way()
        emit(_status(shown))
    if follow and shown.get("status") != "done":
        raise SystemExit(REFUSED)


def _tell_way(session: Session, shown: dict[str, Any]) -> None:
    if not session.as_json and sys.stderr.isatty():
        # Others may write the hash, too: any field may be missing, and none may drive the terminal.
        of = {name: printable(value) for name, value in shown.items() if value}
        made = f", {of.get('embeddings_generated', 0)} of {of.get('chunks_created')} chunks embedded"
        told = f"{of.get('status', 'no status yet')}{made if 'chunks_created' in of else ''}"
        click.echo(f"\r\033[K{told} ", nl=False, err=True)


def _clear_way() -> None:
    if sys.stderr.isatty():
        click.echo("\r\033[K", nl=False, err=True)


def _made(number: Any, noun: str) -> str:
    """Others may have written anything there."""
    return how_many(number, noun) if isinstance(number, int) else f"{number or 0} {noun}s"


def _status(shown: dict[str, Any]) -> str:
    def of(name: str) -> Any:
        return shown.get(name)

    made = f"{_made(of('chunks_created'), 'chunk')}, {of('embeddings_generated') or 0} embedded"
    error = f"{of('error')} ({of('error_type')}, {of('error_code')})" if of("error") else None
    took = of("duration_seconds")
    return fields(
        [
            ("Job", of("job_id")),
            ("Status", of("status")),
            ("Waiting", of("waiting")),
            ("Error", error),
            ("RAG", of("rag_id")),
            ("File", of("file") or of("source_path") or of("filename")),
            ("Left there", of("file_error")),
            ("Outcome", of("outcome")),
            ("Made", f"{made}, {_made(of('tokens_used'), 'token')}" if of("status") != "queued" else None),
            ("Submitted", of("submitted_at")),
            ("Started", of("started_at")),
            (
                "Completed",
                f"{of('completed_at')}{f' ({took} s)' if took is not None else ''}"
                if of("completed_at")
                else None,
            ),
            ("Retries", f"{of('retry_count')} of {of('max_retries')}" if of("retry_count") else None),
        ]
    )


@click.command("status")
@click.option("--watch", is_flag=True, help="Look again every 2 seconds, until Ctrl-C.")
@redis_option
@config_option
@json_option
@click.pass_obj
def queue_status(session: Session, watch: bool, redis_url: str | None, rag_config: str | None) -> None:
    """The lists of the Redis contract, and whether somebody serves them."""
    session.overrides.update(contract_url=redis_url, rag_config=rag_config)
    contract = session.assembly.producer
    while True:
        health = contract.health()
        if watch and not session.as_json:
            click.clear()
        if session.as_json:
            emit_json(health)
        else:
            _print_health(health)
        if not watch:
            return
        time.sleep(WATCH_S)


def _print_health(health: Health) -> None:
    age = health.heartbeat_age_s
    beat = "no heartbeat" if age is None else f"last heartbeat {span(age)} ago"
    emit(
        fields(
            [
                ("Queue name", health.queue_name),
                ("Connection", health.connection),
                ("Queue length", f"{health.queue_length:,}"),
                ("Processing", f"{health.processing:,}"),
                ("Queued", f"{health.queued:,}"),
                ("Accepted", f"{health.accepted:,} waiting for a worker" if health.accepted else None),
                ("Worker connected", f"{'yes' if health.worker_connected else 'no'} ({beat})"),
                ("Dead letters", f"{health.dead_letters:,}"),
            ]
        )
    )
    if health.waiting:
        named = ", ".join(f"{printable(rag)} ({count:,})" for rag, count in health.waiting.items())
        emit(f"\nWaiting for a gateway that serves their RAG: {named}")
    for key, kind in health.misplaced.items():
        emit(f"\n{printable(key)} is no list but a {kind}; nothing is taken from it.")
        emit("Rename or remove that key.")
    filled = [(key, length) for key, length in health.lists.items() if length]
    if len(filled) > 1:
        emit("\n" + table(["list", "messages"], filled))
    connected = [one for one in health.gateways if one.connected]
    if connected:
        rows = [(one.host, one.pid, one.processing, one.queued, one.workers) for one in connected]
        emit("\n" + table(["gateway", "pid", "processing", "waiting", "workers"], rows))
    if not connected and health.queue_length:
        emit("\nNobody serves the lists. Start a gateway with: penstock gateway")
    elif connected and not any(one.workers for one in connected) and (health.accepted or health.processing):
        emit("\nNo worker is running behind the gateway. Start one with: penstock worker")
