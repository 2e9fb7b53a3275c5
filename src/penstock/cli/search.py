"""``penstock search``, ``context`` and ``similar``."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.hit_page import HitPage, covered_by, hint_branch, hint_covered, in_project, scope
from penstock.cli.options import filter_options
from penstock.cli.output import emit, emit_document_text, emit_json, printable
from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.service.hits import Hit

_MARKS = ("\x02", "\x03")
"""Marks around the query's words, replaced by styles or asterisks when printed."""


_LIMIT = click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    metavar="N",
    help="Maximum number of hits.",
)
_MODE = click.option(
    "--mode",
    type=click.Choice(["hybrid", "keyword", "vector"]),
    default="hybrid",
    show_default=True,
    help="Search by words, by meaning, or both.",
)
_EXACT = click.option("--exact", is_flag=True, help="Do not correct misspelt words.")
_GRAPH = click.option(
    "--graph", is_flag=True, help="Follow relations, too: of entities in the query and in its best hits."
)
_ALL = click.option(
    "--all", "every", is_flag=True, help="Search all tenants: every project, and documents outside of them."
)
_AT_LINE = re.compile(r"(.+):([0-9]{1,9})")


@click.command()
@click.argument("query", nargs=-1, required=True)
@_LIMIT
@_MODE
@filter_options("Search")
@_ALL
@_EXACT
@_GRAPH
@click.option("--weak", is_flag=True, help="Show weak matches, too: few of the words, and far in meaning.")
@click.option("--explain", is_flag=True, help="Show the score of each hit, and where it comes from.")
@click.pass_obj
def search(session: Session, /, query: tuple[str, ...], weak: bool, explain: bool, **given: Any) -> None:
    """Search indexed documents.

    \b
    penstock search how does the mill take in water
    penstock search '"penstock gate"' --type md --json
    penstock search turbines --author curie --created-after 1900
    penstock search --graph who calls open_gate
    """
    services, place, scoped = scope(session, given)
    answer = services.ask(" ".join(query), marks=_MARKS, **scoped)
    if session.as_json:
        hits = [_as_json(hit) for hit in answer.hits]
        facts = {"words": answer.words, "corrections": answer.corrections, "notes": answer.notes}
        emit_json({"hits": hits} | facts | {"covered": covered_by(answer, place)})
        return
    page = HitPage(answer, _MARKS, explain=explain)
    emit(page.shown(weak=weak) if answer.hits else f"Nothing found{in_project(place)}.")
    if not answer.hits and not given["every"]:
        hint_branch(session, place)
    for note in answer.notes:
        session.hint(f"Note: {note}")
    hint_covered(session, covered_by(answer, place), found=bool(answer.hits))


@click.command()
@click.argument("query", nargs=-1, required=True)
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 1_000_000),
    default=2_000,
    show_default=True,
    metavar="N",
    help="Maximum number of tokens, counted as for Llama; most models count fewer.",
)
@_MODE
@filter_options("Search")
@_ALL
@_EXACT
@_GRAPH
@click.pass_obj
def context(session: Session, /, query: tuple[str, ...], **given: Any) -> None:
    """Print the best passages for a language model's prompt.

    Each has a number to cite it by. Neighbouring chunks are one passage, and weak matches are left out.

    \b
    penstock context how does the mill take in water --max-tokens 1000
    """
    services, place, scoped = scope(session, given)
    found = services.context(" ".join(query), **scoped)
    if session.as_json:
        fields = {name: getattr(found, name) for name in found.__struct_fields__}
        emit_json(fields | {"covered": covered_by(found, place)})
        return
    emit_document_text(found.text or f"Nothing found{in_project(place)}.")
    for each in found.corrections:
        session.hint(f'Searched for "{printable(each.searched)}" instead of "{printable(each.word)}".')
    for note in found.notes:
        session.hint(f"Note: {note}")
    hint_covered(session, covered_by(found, place), found=bool(found.passages))


@click.command()
@click.argument("place", metavar="PATH[:LINE]")
@_LIMIT
@click.option("--collection", metavar="NAME", help="Collection of the document.")
@click.option("--tenant", "tenant_id", metavar="NAME", help="Tenant who owns the documents.")
@click.option("--branch", metavar="NAME", help="Branch of the document.")
@click.pass_obj
def similar(session: Session, /, place: str, limit: int, **where: Any) -> None:
    """Find chunks of other documents that are like a given one.

    LINE chooses a chunk of the document; in a document without lines it is the page. Without LINE the
    document is compared as a whole. PATH may be the id of a document.

    \b
    penstock similar docs/mill.md
    penstock similar docs/mill.md:12 --limit 3
    """
    from penstock.service.hits import SearchResult

    at_line = None if os.path.exists(place) else _AT_LINE.fullmatch(place)  # noqa: PTH110 - it never raises
    path, line = (at_line[1], int(at_line[2])) if at_line else (place, None)
    services, found = (
        session.readers,
        session.place_of(path, tenant=where["tenant_id"], branch=where["branch"]),
    )
    where |= {"tenant_id": found.tenant_id, "branch": found.branch}
    hits = services.similar(session.path_or_id(path), line, limit=limit, **where)
    if session.as_json:
        emit_json({"hits": hits})
        return
    emit(HitPage(SearchResult(hits=hits), _MARKS, explain=True).plain(hits))


def _as_json(hit: Hit) -> dict[str, Any]:
    start, end = _MARKS
    return {name: getattr(hit, name) for name in hit.__struct_fields__} | {
        "snippet": hit.snippet.replace(start, "**").replace(end, "**")
    }
