"""Passages for a language model's prompt: the best chunks within a budget of tokens, numbered. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from penstock.service.corrections import Correction
from penstock.service.hits import Coverage, Hit
from penstock.service.page_texts import joined

CUT = "…"
BETWEEN = "\n\n"
_LAST_WORD = re.compile(r"\s\S{1,40}\Z")

Counter = Callable[[str], int]


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbouring chunks of a page as one text, with the number by which it is cited.

    ``cut``: the end is left out, because the whole did not fit. The other fields are those of a hit.
    """

    number: int
    path: str
    page: int | None
    page_unit: str
    first_line: int | None
    last_line: int | None
    position_unit: str
    heading: str
    score: float
    tokens: int
    text: str
    cut: bool
    source_id: str
    chunk_ids: tuple[str, ...]


class PromptContext(msgspec.Struct, frozen=True, kw_only=True):
    """Passages of a query, best first. ``text`` has all of them, each after a line with number and place.

    ``tokens`` are those of ``text``, at most ``max_tokens``.
    """

    text: str
    tokens: int
    max_tokens: int
    passages: tuple[Passage, ...]
    notes: tuple[str, ...] = ()
    corrections: tuple[Correction, ...] = ()
    covered: Coverage = Coverage()


class _Group:
    """Neighbouring hits of one page. ``rank``: of the best hit; ``tokens``: of the text."""

    def __init__(self, rank: int, hits: Sequence[Hit], count: Counter) -> None:
        self.rank = rank
        self.hits = sorted(hits, key=lambda hit: hit.start)
        self.text = joined(self.hits).strip()
        self.tokens = count(self.text)

    def touches(self, hit: Hit) -> bool:
        """Check whether a hit overlaps or adjoins this text."""
        return any(
            (each.source_id, each.page) == (hit.source_id, hit.page)
            and (
                abs(each.chunk_index - hit.chunk_index) <= 1
                or (each.start < hit.end and hit.start < each.end)
            )
            for each in self.hits
        )


def pack(hits: Iterable[Hit], max_tokens: int, count: Counter) -> list[Passage]:
    """Take hits, best first, as long as the text of all passages has at most ``max_tokens``.

    Neighbours become one passage. A hit that does not fit is left out, and a smaller one after it may be
    taken. If not even the best fits, its beginning is taken.
    """
    ranked = list(hits)
    groups: list[_Group] = []
    for rank, hit in enumerate(ranked):
        if any(hit.text.strip() in group.text for group in groups):
            continue
        beside = [group for group in groups if group.touches(hit)]
        merged = _Group(
            min([rank, *(group.rank for group in beside)]),
            [hit, *(each for group in beside for each in group.hits)],
            count,
        )
        others = sorted(
            [*(group for group in groups if group not in beside), merged], key=lambda group: group.rank
        )
        if sum(passage.tokens for passage in _passages(others, count)) <= max_tokens:
            groups = others
    if not groups and ranked:
        return _beginning(ranked[0], max_tokens, count)
    return _passages(groups, count)


def _beginning(hit: Hit, max_tokens: int, count: Counter) -> list[Passage]:
    """The longest fitting beginning of a hit; nothing if the place alone is too long."""
    (whole,) = _passages([_Group(0, [hit], count)], count)

    def cut(kept: int) -> Passage:
        # At the end of a word, unless the script has no spaces.
        text = _LAST_WORD.sub("", whole.text[: kept + 1]) if kept < len(whole.text) else whole.text
        shorter = msgspec.structs.replace(whole, text=text[:kept].rstrip() + CUT, cut=True)
        return msgspec.structs.replace(shorter, tokens=count(_rendered([shorter])))

    least, most = 0, len(whole.text)
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if cut(middle).tokens <= max_tokens else (least, middle - 1)
    return [cut(least)] if least else []


def _passages(groups: Sequence[_Group], count: Counter) -> list[Passage]:
    return [_passage(number, group, count) for number, group in enumerate(groups, 1)]


def _passage(number: int, group: _Group, count: Counter) -> Passage:
    first, last = group.hits[0], group.hits[-1]
    passage = Passage(
        number=number,
        path=first.path,
        page=first.page,
        page_unit=first.page_unit,
        first_line=first.first_line,
        last_line=last.last_line,
        position_unit=first.position_unit,
        heading=first.heading,
        score=max(hit.score for hit in group.hits),
        tokens=group.tokens,
        text=group.text,
        cut=False,
        source_id=first.source_id,
        chunk_ids=tuple(hit.chunk_id for hit in group.hits),
    )
    around = count(_head(passage)) + count(BETWEEN if number > 1 else "")
    return msgspec.structs.replace(passage, tokens=group.tokens + around)


def _rendered(passages: Sequence[Passage]) -> str:
    """Text of passages for a prompt: each after its number and place."""
    return BETWEEN.join(f"{_head(each)}{each.text}" for each in passages)


def _head(passage: Passage) -> str:
    return f"[{passage.number}] {place_text(passage)}\n"


def place_text(found: Passage | Hit) -> str:
    """Path, page, lines and heading of a passage or hit, on one line."""
    page = "" if found.page is None else f", {found.page_unit} {found.page}"
    first, last = found.first_line, found.last_line
    lines = ""
    if first is not None:
        span = f"{first}-{last}" if last is not None and last > first else f"{first}"
        joint = ":" if found.position_unit == "line" and not page else f", {found.position_unit} "
        lines = f"{joint}{span}"
    heading = f" ({found.heading})" if found.heading else ""
    return " ".join(f"{found.path}{page}{lines}{heading}".split())


def context_of(
    passages: Sequence[Passage],
    max_tokens: int,
    count: Counter,
    *,
    notes: tuple[str, ...] = (),
    corrections: tuple[Correction, ...] = (),
    covered: Coverage,
) -> PromptContext:
    """Put passages together to the text of a prompt."""
    text = _rendered(passages)
    return PromptContext(
        text=text,
        tokens=count(text),
        max_tokens=max_tokens,
        passages=tuple(passages),
        notes=notes,
        corrections=corrections,
        covered=covered,
    )
