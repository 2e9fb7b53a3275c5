"""Hits of a search as text for people, and the names of projects in commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.output import Screen, printable, strip_control, wrap
from penstock.vocabulary import how_many

if TYPE_CHECKING:
    from penstock.catalog.values import Place
    from penstock.cli.session import Services, Session
    from penstock.service.hits import Coverage, Hit, HitLocation, SearchResult
    from penstock.service.passages import PromptContext
    from penstock.service.projects import Placement


_INDENT = "    "
_NARROWEST = 20
"""Width of the narrowest lines; on a terminal with fewer columns they run over."""
_WIDEST = 1_000_000
"""Width where the output is no terminal: programs want whole lines."""
_WEAK_SHOWN = 3
"""Weak matches shown where there is no better one."""
_OTHERS_SHOWN = 3
_WEAK = "they share few words with the query and are far from it in meaning"


class HitPage:
    """The hits of one search. ``marks`` stand around the words of the query in snippets."""

    def __init__(self, answer: SearchResult, marks: tuple[str, str], *, explain: bool = False) -> None:
        self._answer = answer
        self._marks = marks
        self._explain = explain
        width = Screen.of(sys.stdout).width
        self._width = _WIDEST if width is None else max(width, _NARROWEST)

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
            shown = others if weak else others[:_WEAK_SHOWN]
            parts.append(self._wrapped(f"{'Weak' if good else 'Only weak'} matches: {_WEAK}.\n"))
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
        yield from (_INDENT + click.style(line, bold=True) for line in more)
        about = " > ".join(part for part in (strip_control(hit.heading), strip_control(hit.symbols)) if part)
        for line in self._indented(about):
            yield _INDENT + click.style(line, dim=True)
        for line in self._highlighted(hit.snippet):
            yield _INDENT + line
        if hit.also_in:
            yield from (_INDENT + line for line in self._indented(f"also in {_places(hit, self._explain)}"))
        if self._explain:
            yield from (_INDENT + line for line in self._indented(_explained(hit, self._answer.words)))

    def _wrapped(self, text: str) -> str:
        return "\n".join(wrap(text, self._width)) + ("\n" if text.endswith("\n") else "")

    def _indented(self, text: str) -> list[str]:
        return wrap(text, self._width - len(_INDENT))

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
    for place in hit.also_in if every else hit.also_in[:_OTHERS_SHOWN]:
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


def filtered_path(given: dict[str, Any]) -> str | None:
    """The path that filters narrow to, if it is one of libraries or web pages: these are of no project."""
    # Imported here: the help of all commands loads this module.
    from penstock.queue.payloads import LIBRARIES, is_off_disk

    if given.get("library") is not None:
        return LIBRARIES
    path = given.get("path")
    return path if path is not None and is_off_disk(path) else None


def scope(session: Session, given: dict[str, Any]) -> tuple[Services, Placement, dict[str, Any]]:
    """The services and options of a search: of the project around the folder of the command, or of all.

    A running server searches one part of the index at a time, so that this process searches several.
    """
    project, every = given["project"], given["every"]
    if every and (given["tenant_id"] or given["branch"] or project is not None):
        raise click.UsageError("Give --all, or else --tenant, --branch or --project.")
    place = session.place(
        filtered_path(given), tenant=given["tenant_id"], branch=given["branch"], project=project
    )
    asked = {
        name: value for name, value in given.items() if name not in ("project", "every", "weak", "explain")
    }
    placed = asked | {"tenant_id": place.tenant_id, "branch": place.branch}
    if session.server is not None:
        return session.services, place, asked | {"all": True} if every else placed
    if not every and place.project is None and session.readers is session._discovered:
        return session.readers, place, placed
    projects = session.assembly.documents.projects
    if every:
        return session.services, place, asked | {"within": projects.search_scope(every=True)}
    narrowed = asked["path"] is not None or asked["library"] is not None
    found = projects.scope_at(place)
    if len(found.filters) > 1 and (narrowed or not session.assembly.documents.notes.page(limit=1)):
        found = found.without_notes()
    if len(found.filters) > 1 or (session.client is None and session._discovered is None):
        return session.services, place, asked | {"within": found}
    return session.readers, place, placed


def covered_by(answer: SearchResult | PromptContext, place: Placement) -> Coverage:
    """The part of the index that a search covered; a server knows the tenant of a project, not the name."""
    import msgspec

    covered = answer.covered
    if place.project is None:
        return covered
    parts = tuple(
        msgspec.structs.replace(part, project=place.project.name)
        if part.tenant_id == place.tenant_id and part.project is None
        else part
        for part in covered.parts
    )
    return msgspec.structs.replace(covered, parts=parts)


def hint_covered(session: Session, covered: Coverage, *, found: bool) -> None:
    """Say what was searched, and how to search all; after no hit also that there are projects."""
    from penstock.service.hits import coverage_text

    text = printable(coverage_text(covered))
    if not covered.everything:
        in_project = any(part.project is not None for part in covered.parts)
        number = 0 if found or in_project or session.server is not None else len(session.project_names)
        there = f" {how_many(number, 'project is', 'projects are')} indexed." if number else ""
        text += f"{there} Search everything with: --all"
    session.hint(text)


def hint_branch(session: Session, place: Placement) -> None:
    """Say that the checked-out branch of a project is not indexed, when a search found nothing in it."""
    if session.server is not None or place.project is None:
        return
    if place.branch not in _indexed_branches(session, place):
        root = place.project.root
        folder = "." if root == str(Path.cwd()) else printable(relative(root))
        session.hint(f"Branch {printable(place.branch)} is not indexed. Index it: penstock index {folder}")


def _indexed_branches(session: Session, place: Placement) -> set[str]:
    counts = session.assembly.documents.tenant_counts(place.tenant_id)
    return {one.branch for one in counts if one.sources}


def in_project(place: Placement) -> str:
    """The words for the project that a command was about; empty outside of projects."""
    return "" if place.name is None else f" in project {printable(place.name)}"


def owner_word(session: Session, tenant_id: str) -> str:
    """The heading for ``Session.tenant_name``: Project, or else Tenant."""
    return "Project" if tenant_id in session.project_names else "Tenant"


def place_text(session: Session, place: Place) -> str:
    """Project or tenant, collection and branch of a document."""
    name = session.project_names.get(place.tenant_id)
    owner = f"tenant {place.tenant_id}" if name is None else f"project {name}"
    return f"{owner}, collection {place.collection}, branch {place.branch}"
