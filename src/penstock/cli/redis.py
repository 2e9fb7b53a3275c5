"""``penstock redis``: the commands of the Redis contract, also under the contract's own words.

Those are ``gateway``, ``ingest submit``, ``ingest status --job ID`` and ``queue status``.
"""

from __future__ import annotations

import copy
import logging
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.exit_codes import NOT_SUBMITTED, REFUSED
from penstock.cli.output import emit, emit_error, emit_json, fields, printable, span, table
from penstock.cli.session import Command, CommandGroup, RenamedOption, Session
from penstock.errors import StoreError
from penstock.process_start import log_to_stderr
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.redis_contract.messages import Health, PreparedMessage


_FOLLOW_S = 0.5
WATCH_S = 2.0
ENDED = ("done", "failed")
_SHOWN = 8
"""RAGs named by a starting gateway."""


def _redis_option(command: Command) -> Command:
    return click.option(
        "--redis",
        "redis_url",
        metavar="URL",
        help="Redis server; overrides PENSTOCK_CONTRACT_URL and the configuration file.",
    )(command)


def _config_option(command: Command) -> Command:
    return click.option(
        "--rags",
        "rag_config",
        cls=RenamedOption,
        former=("--config",),
        metavar="FILE",
        help="YAML file with the RAGs; overrides PENSTOCK_RAG_CONFIG.",
    )(command)


@click.command()
@click.argument("redis_url", metavar="[URL]", required=False)
@_config_option
@click.pass_obj
def gateway(session: Session, redis_url: str | None, rag_config: str | None) -> None:
    """Take jobs from Redis lists and report their status.

    URL is the Redis server with the lists. The jobs go to the queue of --url, where `penstock worker` runs
    them. Several gateways may run at once. SIGTERM or Ctrl-C stops the gateway; no message is lost.

    \b
    penstock redis gateway redis://broker:6379/0 --rags rags.yaml
    """
    session.overrides.update(contract_url=redis_url, rag_config=rag_config)
    log_to_stderr(logging.WARNING if session.quiet else logging.INFO, session.settings.log_format)
    made = session.assembly.gateway
    store = session.settings.store.masked

    def announce() -> None:
        if session.as_json:
            emit_json({"rags": made.serves, "redis": made.where, "store": store})
            return
        named = ", ".join(made.serves[:_SHOWN]) + (", …" if len(made.serves) > _SHOWN else "")
        session.confirm_done(f"Taking messages for {named} from {made.where} into {store}.")

    made.run(announce)


@click.command()
@click.option("--rag", "rag_id", metavar="ID", required=True, help="RAG to send the file to.")
@click.option("--path", type=click.Path(), required=True, help="File to send.")
@click.option(
    "--type",
    "source_type",
    type=click.Choice(["pdf", "txt", "md", "docx"]),
    help="File type; by default from the file name.",
)
@click.option(
    "--reindex",
    is_flag=True,
    help="Index the file even if it is unchanged, then remove what was sent before.",
)
@click.option("--skip-validation", is_flag=True, help="Do not compare the content with --type.")
@click.option(
    "--preserve-metadata/--drop-metadata",
    default=True,
    help="Keep the document's tags and metadata, or replace them.",
)
@click.option("--priority", type=click.Choice(["high", "normal", "low"]), help="List to put the message on.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag for the document; may be repeated.")
@click.option("--max-retries", type=click.IntRange(0, 1000), metavar="N", help="Maximum number of retries.")
@click.option("--dry-run", is_flag=True, help="Check the file and print the message, but send nothing.")
@_redis_option
@_config_option
@click.pass_obj
def submit(
    session: Session, /, rag_id: str, path: str, redis_url: str | None, rag_config: str | None, **given: Any
) -> None:
    """Send one file to a RAG.

    File and RAG are checked first; then status hash and message are written to Redis in one transaction.

    Exit codes: 0 sent, 1 file or RAG refused, 2 Redis did not accept the job, 3 configuration.

    \b
    penstock redis submit --rag policies_rag --path incoming/handbook.pdf
    """
    from penstock.redis_contract.messages import SubmitRequest

    dry_run = given.pop("dry_run")
    session.overrides.update(contract_url=redis_url, rag_config=rag_config)
    contract = session.assembly.producer
    prepared = contract.prepare(rag_id, path, SubmitRequest(**given))
    health = None
    if not dry_run:
        try:
            contract.submit(prepared)
        except StoreError as error:
            emit_error(error, as_json=session.as_json)
            raise SystemExit(NOT_SUBMITTED) from None
        with suppress(StoreError):  # the job is sent; whether a gateway runs is only a hint
            health = contract.health()
    if session.as_json:
        sent = {"job_id": prepared.message["job_id"], "list": prepared.key, "message": prepared.message}
        connected = None if health is None else health.worker_connected
        emit_json(sent | {"submitted": not dry_run, "worker_connected": connected})
        return
    emit(_summary(prepared, dry_run=dry_run))
    if health is not None and not health.gateway_connected:
        session.hint("No gateway is connected; the job waits. Start one with: penstock redis gateway")
    elif health is not None and not health.worker_connected:
        session.hint("No worker is connected; the job waits. Start one with: penstock worker")


def _summary(prepared: PreparedMessage, *, dry_run: bool) -> str:
    message = prepared.message
    flags = {**message["options"], "drop_metadata": not message["options"]["preserve_metadata"]}
    options = ", ".join(name for name, value in flags.items() if value and name != "preserve_metadata")
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
    return f"{lines}\nFollow it with: penstock redis job {message['job_id']} --watch"


@click.command("job")
@click.argument("job_id", metavar="ID")
@click.option(
    "--watch",
    cls=RenamedOption,
    former=("--follow",),
    is_flag=True,
    help="Wait until the job has ended; exit code 1 if it failed.",
)
@_redis_option
@_config_option
@click.pass_obj
def contract_job(
    session: Session, job_id: str, watch: bool, redis_url: str | None, rag_config: str | None
) -> None:
    """Show the status hash of a job."""
    session.overrides.update(contract_url=redis_url, rag_config=rag_config)
    contract = session.assembly.producer
    shown = contract.status(job_id)
    while watch and shown.get("status") not in ENDED:
        _print_progress(session, shown)
        time.sleep(_FOLLOW_S)
        shown = contract.status(job_id)
    if session.as_json:
        emit_json(shown)
    else:
        _clear_progress()
        emit(_status(shown))
    if watch and shown.get("status") != "done":
        raise SystemExit(REFUSED)


def _print_progress(session: Session, shown: dict[str, Any]) -> None:
    if not session.as_json and not session.quiet and sys.stderr.isatty():
        # Other programs write the hash as well: any field may be missing, and none may drive the terminal.
        of = {name: printable(value) for name, value in shown.items() if value}
        made = f", {of.get('embeddings_generated', 0)} of {of.get('chunks_created')} chunks embedded"
        line = f"{of.get('status', 'no status yet')}{made if 'chunks_created' in of else ''}"
        click.echo(f"\r\033[K{line} ", nl=False, err=True)


def _clear_progress() -> None:
    if sys.stderr.isatty():
        click.echo("\r\033[K", nl=False, err=True)


def _made(number: Any, noun: str) -> str:
    """A count from the hash, which another program may have filled with anything."""
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
@click.option("--watch", is_flag=True, help="Refresh every 2 seconds until Ctrl-C.")
@_redis_option
@_config_option
@click.pass_obj
def queue_status(session: Session, watch: bool, redis_url: str | None, rag_config: str | None) -> None:
    """Show the Redis lists and whether a gateway serves them."""
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


def _workers(health: Health) -> str:
    """The workers behind the gateways. Several gateways may see the same ones."""
    if not health.gateway_connected:
        return "unknown (no gateway is connected)"
    seen = max(one.workers for one in health.gateways if one.connected)
    return f"yes ({how_many(seen, 'worker')})" if seen else "no"


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
                ("Gateway connected", f"{'yes' if health.gateway_connected else 'no'} ({beat})"),
                ("Worker connected", _workers(health)),
                ("Dead letters", f"{health.dead_letters:,}"),
            ]
        )
    )
    if health.waiting:
        named = ", ".join(f"{printable(rag)} ({count:,})" for rag, count in health.waiting.items())
        emit(f"\nWaiting for a gateway that serves their RAG: {named}")
    for key, redis_type in health.misplaced.items():
        emit(f"\n{printable(key)} is a {redis_type}, not a list; no message is taken from it.")
        emit("Rename or remove that key.")
    filled = [(key, length) for key, length in health.lists.items() if length]
    if len(filled) > 1:
        emit("\n" + table(["list", "messages"], filled))
    connected = [one for one in health.gateways if one.connected]
    if connected:
        rows = [(one.host, one.pid, one.processing, one.queued, one.workers) for one in connected]
        emit("\n" + table(["gateway", "pid", "processing", "waiting", "workers"], rows))
    if not connected and health.queue_length:
        emit("\nNo gateway serves the lists. Start one with: penstock redis gateway")
    elif connected and not any(one.workers for one in connected) and (health.accepted or health.processing):
        emit("\nNo worker is running behind the gateway. Start one with: penstock worker")


@click.group(cls=CommandGroup)
def redis() -> None:
    """Take jobs from other programs through Redis lists (the Redis contract).

    To keep the queue itself in Redis, no gateway is needed: use --url redis://HOST.
    """


for command in (gateway, submit, contract_job, queue_status):
    redis.add_command(command)


@click.group(cls=CommandGroup)
def ingest() -> None:
    """Send files to a gateway, in the words of the contract. The same as `penstock redis`."""


def _with_job_option(command: click.Command) -> click.Command:
    """The same command with its argument as the option ``--job``."""
    made = copy.copy(command)
    made.params = [
        click.Option(["--job", "job_id"], metavar="ID", required=True, help="Job id printed by `submit`.")
        if isinstance(param, click.Argument)
        else param
        for param in command.params
    ]
    return made


ingest.add_command(submit)
ingest.add_command(_with_job_option(contract_job), "status")
