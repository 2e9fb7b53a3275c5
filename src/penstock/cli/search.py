"""``penstock search``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.filter_options import filter_options
from penstock.cli.hit_page import HitPage
from penstock.cli.output import emit, emit_json
from penstock.cli.session import Session

if TYPE_CHECKING:
    from penstock.service.hits import Hit

MARKS = ("\x02", "\x03")
"""Marks around the query's words, replaced by styles or asterisks when printed."""


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
@filter_options("Search")
@click.option("--exact", is_flag=True, help="Do not correct misspelt words.")
@click.option("--weak", is_flag=True, help="Show weak matches, too: few of the words, and far in meaning.")
@click.option("--explain", is_flag=True, help="Show the score of each hit, and where it comes from.")
@click.pass_obj
def search(session: Session, /, query: tuple[str, ...], weak: bool, explain: bool, **given: Any) -> None:
    """Search indexed documents.

    \b
    penstock search how does the mill take in water
    penstock search '"penstock gate"' --type md --json
    penstock search turbines --author curie --created-after 1900
    """
    answer = session.assembly.search.ask(" ".join(query), marks=MARKS, **given)
    if session.as_json:
        hits = [_as_json(hit) for hit in answer.hits]
        corrected = [{"word": each.word, "searched": each.searched} for each in answer.corrections]
        emit_json({"hits": hits, "words": answer.words, "corrections": corrected, "notes": answer.notes})
        return
    page = HitPage(answer, MARKS, explain=explain)
    emit(page.shown(weak=weak))
    for note in answer.notes:
        session.hint(f"Note: {note}")


def _as_json(hit: Hit) -> dict[str, Any]:
    start, end = MARKS
    return {name: getattr(hit, name) for name in hit.__struct_fields__} | {
        "snippet": hit.snippet.replace(start, "**").replace(end, "**")
    }
