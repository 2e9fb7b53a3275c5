"""Hits of a search as text for people: good matches first, weak ones apart."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.output import printable
from penstock.cli.text_grid import Screen
from penstock.cli.text_layout import strip_control, wrap
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.service.hits import Hit, HitLocation
    from penstock.service.search import SearchResult

INDENT = "    "
NARROWEST = 20
"""Width of the narrowest lines; on a terminal with fewer columns they run over."""
WIDEST = 1_000_000
"""Width where the output is no terminal: programs want whole lines."""
WEAK_SHOWN = 3
"""Weak matches shown where there is no better one."""
OTHERS_SHOWN = 3
WEAK = "they share few words with the query and are far from it in meaning"


class HitPage:
    """The hits of one search. ``marks`` stand around the words of the query in snippets."""

    def __init__(self, answer: SearchResult, marks: tuple[str, str], *, explain: bool = False) -> None:
        self._answer = answer
        self._marks = marks
        self._explain = explain
        width = Screen.of(sys.stdout).width
        self._width = WIDEST if width is None else max(width, NARROWEST)

    def plain(self, hits: Sequence[Hit]) -> str:
        """Hits alone, without a query to judge them by."""
        return "\n".join(self._hits(hits)).rstrip("\n") or "Nothing found."

    def shown(self, *, weak: bool) -> str:
        """Text of the page. ``weak``: with all weak matches, not only the first where there is no better."""
        good = [hit for hit in self._answer.hits if not hit.weak]
        others = [hit for hit in self._answer.hits if hit.weak]
        if not self._answer.hits:
            return "Nothing found."
        parts = [*self._corrections(), *self._hits(good)]
        if others and (weak or not good):
            shown = others if weak else others[:WEAK_SHOWN]
            parts.append(self._wrapped(f"{'Weak' if good else 'Only weak'} matches: {WEAK}.\n"))
            parts += self._hits(shown, len(good) + 1)
            others = others[len(shown) :]
        if others:
            more = "more " if not good else ""
            matches = how_many(len(others), f"{more}weak match", f"{more}weak matches")
            them = "it" if len(others) == 1 else "them"
            parts.append(self._wrapped(f"{matches} not shown; --weak shows {them}."))
        return "\n".join(parts).rstrip("\n")

    def _corrections(self) -> Iterator[str]:
        fixed = self._answer.corrections
        if fixed:
            changed = ", ".join(
                f'"{strip_control(each.searched)}" instead of "{strip_control(each.word)}"' for each in fixed
            )
            yield self._wrapped(f"Searched for {changed}. --exact searches for the words as given.\n")

    def _hits(self, hits: Sequence[Hit], first: int = 1) -> Iterator[str]:
        for number, hit in enumerate(hits, first):
            yield "\n".join(self._lines(number, hit)) + "\n"

    def _lines(self, number: int, hit: Hit) -> Iterator[str]:
        # A path is not wrapped: broken in two it cannot be copied.
        where = _where(hit)
        head, *more = self._indented(where) if hit.path.startswith("note:") else [where]
        yield f"{number:2}. {click.style(head, bold=True)}"
        yield from (INDENT + click.style(line, bold=True) for line in more)
        about = " > ".join(part for part in (strip_control(hit.heading), strip_control(hit.symbols)) if part)
        for line in self._indented(about):
            yield INDENT + click.style(line, dim=True)
        for line in self._highlighted(hit.snippet):
            yield INDENT + line
        if hit.also_in:
            yield from (INDENT + line for line in self._indented(f"also in {_places(hit, self._explain)}"))
        if self._explain:
            yield from (INDENT + line for line in self._indented(_explained(hit, self._answer.words)))

    def _wrapped(self, text: str) -> str:
        return "\n".join(wrap(text, self._width)) + ("\n" if text.endswith("\n") else "")

    def _indented(self, text: str) -> list[str]:
        return wrap(text, self._width - len(INDENT))

    def _highlighted(self, snippet: str) -> Iterator[str]:
        start, end = self._marks
        inside = False
        for line in self._indented(strip_control(snippet, keep=start + end)):
            # A phrase may begin on one line and end on the next.
            parts = []
            for piece in line.replace(end, start).split(start):
                parts.append(click.style(piece, fg="yellow", bold=True) if inside and piece else piece)
                inside = not inside
            inside = not inside
            yield "".join(parts)


def relative(path: str) -> str:
    """A path below the current directory, from there; any other as it is."""
    try:
        here = str(Path.cwd())
    except OSError:
        return path
    below = path.removeprefix(here.rstrip("/") + "/")
    # A name that begins with a hyphen would be an option of the next command.
    return f"./{below}" if below.startswith("-") else below


def _where(hit: Hit) -> str:
    if hit.path.startswith("note:"):
        tags = f" ({', '.join(hit.tags)})" if hit.tags else ""
        return f"note: {printable(hit.title)}{printable(tags)}"
    return _located(hit)


def _located(place: Hit | HitLocation) -> str:
    where = printable(relative(place.path))
    if place.first_line is not None and place.position_unit == "line" and place.page is None:
        return f"{where}:{place.first_line}"
    page = "" if place.page is None else f", {place.page_unit} {place.page}"
    position = "" if place.first_line is None else f", {place.position_unit} {place.first_line}"
    return where + page + position


def _places(hit: Hit, every: bool) -> str:
    """Other places of a hit: the first few, or every one. Collection and branch where they differ."""
    names = []
    for place in hit.also_in if every else hit.also_in[:OTHERS_SHOWN]:
        apart = [
            f"{name} {printable(theirs)}"
            for name, theirs, ours in (
                ("collection", place.collection, hit.collection),
                ("branch", place.branch, hit.branch),
            )
            if theirs != ours
        ]
        names.append(_located(place) + (f" ({', '.join(apart)})" if apart else ""))
    left = len(hit.also_in) - len(names)
    if left:
        return f"{', '.join(names)} and {left:,} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _explained(hit: Hit, words: Sequence[str]) -> str:
    parts = []
    if hit.rerank_score is not None:
        parts.append(f"re-ranked by {hit.rerank_score:.4g}")
    if hit.keyword_rank is not None:
        parts.append(f"keyword rank {hit.keyword_rank}")
    if hit.vector_rank is not None:
        parts.append(f"vector rank {hit.vector_rank}, similarity {hit.similarity:.2f}")
    if hit.graph_rank is not None:
        parts.append(f"graph rank {hit.graph_rank} ({strip_control(hit.relation)})")
    if words:
        named = f" ({', '.join(map(strip_control, hit.words))})" if hit.words else ""
        parts.append(f"{len(hit.words)} of {how_many(len(words), 'word')}{named}")
    return f"score {hit.score:.4f}: {'; '.join(parts)}" + ("; weak" if hit.weak else "")
