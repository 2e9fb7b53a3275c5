"""``penstock search``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import emit, emit_json, printable
from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.service.search import Hit

MARKS = ("\x02", "\x03")
"""Marks around the query's words, replaced by colours or asterisks when printed."""


@click.command()
@click.argument("query", nargs=-1, required=True)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    metavar="N",
    help="Maximum number of hits.",
)
@click.option(
    "--mode",
    type=click.Choice(["hybrid", "keyword", "vector"]),
    default="hybrid",
    show_default=True,
    help="Search by words, by meaning, or both.",
)
@click.option("--collection", metavar="NAME", help="Search only this collection.")
@click.option("--tenant", metavar="NAME", help="Tenant who owns the documents.")
@click.option("--branch", metavar="NAME", help="Search only this branch.")
@click.option("--path", metavar="GLOB", help="Search only matching paths, such as '*/guides/*'.")
@click.option(
    "--type", "file_type", metavar="SUFFIX", help="Search only files with this suffix, such as pdf."
)
@click.option("--tag", metavar="TAG", help="Search only this tag and tags below it.")
@click.pass_obj
def search(session: Session, /, query: tuple[str, ...], **given: Any) -> None:
    """Search indexed documents.

    \b
    penstock search how does the mill take in water
    penstock search '"penstock gate"' --type md --json
    """
    given["tenant_id"] = given.pop("tenant")
    answer = session.assembly.search.ask(" ".join(query), marks=MARKS, **given)
    if session.as_json:
        emit_json({"hits": [_as_json(hit) for hit in answer.hits], "notes": answer.notes})
        return
    if not answer.hits:
        emit("Nothing found.")
    for number, hit in enumerate(answer.hits, 1):
        emit(_shown(number, hit))
    for note in answer.notes:
        session.hint(f"Note: {note}")


def _shown(number: int, hit: Hit) -> str:
    where = printable(hit.path)
    if hit.path.startswith("note:"):
        tags = f" ({', '.join(hit.tags)})" if hit.tags else ""
        where = f"note: {printable(hit.title)}{printable(tags)}"
    elif hit.first_line is not None:
        where += f":{hit.first_line}"
    elif hit.page is not None:
        where += f", page {hit.page}"
    about = " > ".join(part for part in (printable(hit.heading), printable(hit.symbols)) if part)
    lines = [f"{number:2}. {click.style(where, bold=True)}"]
    if about:
        lines.append(f"    {click.style(about, dim=True)}")
    lines.append(f"    {_highlighted(hit.snippet)}")
    return "\n".join(lines) + "\n"


def _highlighted(snippet: str) -> str:
    text = " ".join(snippet.split())
    start, end = MARKS
    if not sys.stdout.isatty():
        return printable(text.replace(start, "").replace(end, ""))
    parts = []
    for piece in text.split(start):
        word, mark, rest = piece.partition(end)
        parts.append(
            click.style(printable(word), fg="yellow", bold=True) + printable(rest)
            if mark
            else printable(piece)
        )
    return "".join(parts)


def _as_json(hit: Hit) -> dict[str, Any]:
    start, end = MARKS
    return {name: getattr(hit, name) for name in hit.__struct_fields__} | {
        "snippet": hit.snippet.replace(start, "**").replace(end, "**")
    }
