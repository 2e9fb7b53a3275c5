"""``penstock gateway``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

from penstock.cli.output import emit, emit_json
from penstock.cli.session import Session, json_option
from penstock.log_output import log_to_stderr

if TYPE_CHECKING:
    from penstock.cli.session import Command

SHOWN = 8


def config_option(command: Command) -> Command:
    return click.option(
        "--config",
        "rag_config",
        metavar="FILE",
        help="The YAML file that says which RAGs there are, instead of PENSTOCK_RAG_CONFIG.",
    )(command)


@click.command()
@click.argument("redis_url", metavar="[URL]", required=False)
@config_option
@json_option
@click.pass_obj
def gateway(session: Session, redis_url: str | None, rag_config: str | None) -> None:
    """Take messages of the Redis contract into the queue, and tell Redis what becomes of them.

    URL is the Redis server with the lists; the jobs go to the queue of --url, where `penstock worker` does
    them. Several gateways may run at once. SIGTERM or Ctrl-C ends it; nothing is lost however it ends.

    \b
    penstock gateway redis://broker:6379/0 --config rags.yaml
    """
    log_to_stderr(logging.INFO)
    session.overrides.update(contract_url=redis_url, rag_config=rag_config)
    made = session.assembly.gateway

    store = session.settings.store.masked

    def tell() -> None:
        if session.as_json:
            emit_json({"rags": made.serves, "redis": made.where, "store": store})
            return
        named = ", ".join(made.serves[:SHOWN]) + (", …" if len(made.serves) > SHOWN else "")
        emit(f"Taking messages for {named} from {made.where} into {store}.")

    made.run(tell)
