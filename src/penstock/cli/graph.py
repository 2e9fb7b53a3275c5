"""``penstock graph``: entities found in documents, and relations between them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.hit_page import relative
from penstock.cli.output import emit, emit_json, printable, record_fields, table
from penstock.cli.session import CommandGroup, Session
from penstock.errors import InvalidRequest
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.catalog.graph import Mention, Node


_TENANT = click.option("--tenant", metavar="NAME", help="Tenant who owns the documents.")
_KIND = click.option("--kind", metavar="KIND", help="Only entities of this kind, such as person or class.")


@click.group(cls=CommandGroup)
def graph() -> None:
    """Show entities of documents and their relations.

    They are extracted by `penstock index --graph`, or for all documents with PENSTOCK_GRAPH=true. A name is
    whole, or the last part of it: `Command` finds `click.core.Command`.
    """


@graph.command()
@click.argument("name")
@_KIND
@_TENANT
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    metavar="N",
    help="Maximum number of mentions.",
)
@click.pass_obj
def entity(session: Session, name: str, kind: str | None, tenant: str | None, limit: int) -> None:
    """Show the entities with a name, and where they are mentioned."""
    found = session.readers.graph_entity(
        name, kind=kind, tenant_id=session.place(tenant=tenant).tenant_id, mentions=limit
    )
    if session.as_json:
        emit_json({"entities": [one.as_dict() for one in found]})
        return
    for number, one in enumerate(found):
        emit(("\n" if number else "") + _shown(one.node))
        emit(_places(one.mentions))


@graph.command()
@click.argument("name")
@click.option(
    "--hops",
    type=click.IntRange(1, 5),
    default=1,
    show_default=True,
    metavar="N",
    help="Maximum distance, in relations.",
)
@_KIND
@_TENANT
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 1000),
    default=50,
    show_default=True,
    metavar="N",
    help="Maximum number of entities.",
)
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write an SVG picture of the entities and relations to FILE.",
)
@click.pass_obj
def neighbours(
    session: Session,
    name: str,
    hops: int,
    kind: str | None,
    tenant: str | None,
    limit: int,
    svg: Path | None,
) -> None:
    """Show the entities around those with a name.

    The nearest come first. What documents only use, such as a module of the language, comes last.
    """
    from penstock.service.graph import edge_hop, neighbourhood_svg

    found = session.readers.graph_neighbours(
        name, hops=hops, kind=kind, tenant_id=session.place(tenant=tenant).tenant_id, limit=limit
    )
    if svg is not None:
        _write_picture(svg, neighbourhood_svg(found))
    if session.as_json:
        nodes = [record_fields(node) | {"hops": far} for node, far in found.nodes]
        emit_json({"nodes": nodes, "edges": [record_fields(edge) for edge in found.edges]})
        return
    named = {node.id: _shown(node) for node, _ in found.nodes}
    distances = {node.id: far for node, far in found.nodes}
    rows = [
        (
            *([edge_hop(edge, distances)] if hops > 1 else []),
            named[edge.source],
            edge.kind,
            named[edge.target],
            f"{edge.weight:g}",
        )
        for edge in found.edges
    ]
    headings = ["from", "relation", "to", "weight"]
    emit(table(["hop", *headings] if hops > 1 else headings, rows) if rows else "No relations.")


@graph.command()
@click.argument("source")
@click.argument("target")
@_TENANT
@click.pass_obj
def path(session: Session, source: str, target: str, tenant: str | None) -> None:
    """Show a shortest way between two names. Exit code 1: there is none."""
    found = session.readers.graph_path(source, target, tenant_id=session.place(tenant=tenant).tenant_id)
    if session.as_json:
        nodes, edges = found or ([], [])
        emit_json(
            {
                "nodes": [record_fields(one) for one in nodes],
                "edges": [record_fields(one) for one in edges],
            }
        )
    elif found is None:
        emit("No relations lead from one to the other.")
    else:
        nodes, edges = found
        emit(_shown(nodes[0]))
        for node, edge in zip(nodes[1:], edges, strict=True):
            arrow = f"-- {edge.kind} -->" if edge.target == node.id else f"<-- {edge.kind} --"
            emit(f"  {arrow} {_shown(node)}")
    if found is None:
        raise SystemExit(1)


@graph.command()
@_TENANT
@click.pass_obj
def stats(session: Session, tenant: str | None) -> None:
    """Count entities and relations by kind."""
    counts = session.readers.graph_counts(session.place(tenant=tenant).tenant_id)
    if session.as_json:
        emit_json(record_fields(counts))
        return
    if not counts.chunks:
        emit("No entities. Extract them with: penstock index --graph PATH")
        return
    rows: list[tuple[object, ...]] = [("entity", kind, count) for kind, count in counts.entities.items()]
    rows += [("relation", kind, count) for kind, count in counts.relations.items()]
    emit(table(["", "kind", "count"], rows))
    emit(f"From {how_many(counts.chunks, 'chunk')}.")


@graph.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "graphml"]),
    default="json",
    show_default=True,
    help="Format of the export.",
)
@_TENANT
@click.pass_obj
def export(session: Session, form: str, tenant: str | None) -> None:
    """Print all entities and relations with their mentions."""
    for part in session.assembly.graph.export(form, session.place(tenant=tenant).tenant_id):
        emit(part.removesuffix("\n")) if part.endswith("\n") else click.echo(part, nl=False)


def _write_picture(target: Path, picture: str) -> None:
    try:
        target.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(
            f"cannot write {target}: {error.strerror}", remedy="Name a file in a folder you may write to."
        ) from None


def _shown(node: Node) -> str:
    return f"{printable(node.name)} ({node.kind})"


def _places(mentions: Sequence[Mention]) -> str:
    """A table of mentions, without the columns that are empty for all of them."""
    columns: dict[str, list[object]] = {
        "path": [relative(mention.path) for mention in mentions],
        "page": [mention.page or "" for mention in mentions],
        "line": [mention.first_line or "" for mention in mentions],
    }
    shown = {name: values for name, values in columns.items() if any(values)}
    return table(list(shown), list(zip(*shown.values(), strict=True)), paths=0)
