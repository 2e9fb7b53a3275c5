"""Names in a sentence, by capital letters and closed word lists, with the kind of thing they name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from penstock.named_tuple import NamedTuple
from penstock.pipeline.graph import words
from penstock.pipeline.graph.tokens import Token

PERSON, ORGANISATION, PLACE, NAME = "person", "organisation", "place", "name"
DATE, QUANTITY = "date", "quantity"

_MAX_TOKENS = 9
"""Tokens of a name. A longer run of capitalised words is a headline."""
_YEAR = re.compile(r"(?:1[5-9]|20)\d\ds?$")
_CODE = re.compile(r"\d{3}")
"""Reference numbers such as LD2304174694 are no names."""
_NUMBER = re.compile(r"\$?\d[\d.,:]*$")
_MONTHS = words.MONTHS | {"may"}


class Span(NamedTuple):
    """A name in a sentence: the positions of the tokens and the kind.

    ``kind`` is sure, since it is part of the identity of an entity. ``likely`` is a guess for weights.
    """

    first: int
    last: int
    kind: str
    likely: str


def spans(tokens: Sequence[Token], is_common: Callable[[str], bool]) -> list[Span]:
    """Names, dates and quantities in the order of the sentence.

    ``is_common``: whether a word, in lower case, stands in the text in lower case too.
    """
    found: list[Span] = []
    opening = next((at for at, token in enumerate(tokens) if token.is_word), 0)
    at = 0
    while at < len(tokens):
        letter = tokens[at].text[0]
        if not (letter.isupper() or letter.isdigit() or letter == "$"):
            at += 1
            continue
        number = _number_span(tokens, at)
        if number is not None:
            found.append(number)
            at = number.last + 1
            continue
        end = _run_end(tokens, at)
        if end == at:
            at += 1
            continue
        for first, last in _split(tokens, at, end - 1):
            span = _name_span(tokens, first, last, opening, is_common)
            if span is not None:
                found.append(span)
        at = end
    return found


# Dates and quantities.


def _number_span(tokens: Sequence[Token], at: int) -> Span | None:
    token = tokens[at]
    following = [token.lower for token in tokens[at + 1 : at + 3]] + ["", ""]
    if token.text.isdigit() and len(token.text) <= 2 and following[0] in _MONTHS:
        last = at + 2 if following[1].isdigit() else at + 1
        return Span(at, last, DATE, DATE)
    if token.is_capitalised and token.lower in _MONTHS and following[0].isdigit():
        return Span(at, at + 1, DATE, DATE)
    if _NUMBER.match(token.text) and following[0] in words.UNITS:
        return Span(at, at + 1, QUANTITY, QUANTITY)
    if _YEAR.match(token.text):
        return Span(at, at, DATE, DATE)
    return None


# Names.


def _is_name_token(token: Token) -> bool:
    return token.is_capitalised and token.text != "I" and not _CODE.search(token.text)


def _begins_name(token: Token) -> bool:
    return _is_name_token(token) and token.lower not in words.FUNCTION_WORDS


def _run_end(tokens: Sequence[Token], at: int) -> int:
    """The end of the run of capitalised words from here on, connectors inside included."""
    if not _is_name_token(tokens[at]):
        return at
    end = at + 1
    while end < len(tokens) and end - at < _MAX_TOKENS + 4:
        before = tokens[end - 1]
        if before.possessive or not _adjacent(before, tokens[end]):
            break
        if _is_name_token(tokens[end]):
            end += 1
            continue
        width = _connector(tokens, at, end)
        if not width:
            break
        end += width + 1
    return end


def _adjacent(before: Token, token: Token) -> bool:
    return token.is_word and token.start - before.end <= 1


def _connector(tokens: Sequence[Token], first: int, at: int) -> int:
    """The number of connecting words at this place, if a name goes on after them."""
    for width in (1, 2):
        inside = tokens[at : at + width]
        after = tokens[at + width : at + width + 1]
        if not after or not _is_name_token(after[0]):
            continue
        if after[0].lower in words.FUNCTION_WORDS or not _adjacent(inside[-1], after[0]):
            continue
        names = [token.lower for token in inside]
        if all(name in words.CONNECTORS for name in names) and _joins(names, tokens[first:at]):
            return width
    return 0


def _joins(connecting: Sequence[str], before: Sequence[Token]) -> bool:
    lower = [token.lower for token in before]
    if connecting[0] == "of":
        # "President of France" and "Ann Lee of Shell" are two names, "Department of Energy" is one.
        known = any(word in words.ORGANISATION_WORDS or word in words.PLACE_WORDS for word in lower)
        alone = len(lower) == 1 and lower[0] not in words.TITLES
        return (known or alone) and lower[-1] not in words.COMPANY_FORMS
    if connecting[0] in ("and", "for"):
        return (connecting == ["and"] and "of" in lower) or lower[-1] in words.ORGANISATION_WORDS
    return connecting[0] not in ("the", "'s", "a")


def _split(tokens: Sequence[Token], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Cut a run at a title inside: ``Texas Gov. John Connally`` are two names."""
    start = first
    for at in range(first + 1, last):
        if tokens[at].lower in words.INNER_TITLES:
            yield start, at - 1
            start = at
    yield start, last


def _name_span(
    tokens: Sequence[Token], first: int, last: int, opening: int, is_common: Callable[[str], bool]
) -> Span | None:
    """The name in a run of words, without leading and trailing words and titles; None without a name."""
    titled = False
    while first <= last and (
        tokens[first].lower in words.FUNCTION_WORDS or not _is_name_token(tokens[first])
    ):
        first += 1
    while first < last and tokens[first].lower in words.TITLES:
        first += 1
        titled = True
    last = _without_tail(tokens, first, last)
    if first > last:
        return None
    if first == last and _is_no_name(tokens[first], first == opening, is_common):
        return None
    if last - first >= _MAX_TOKENS:
        return None
    kind = PERSON if titled else _kind(tokens, first, last)
    likely = kind if kind != NAME else _likely_kind(tokens, first, last)
    return Span(first, last, kind, likely)


def _without_tail(tokens: Sequence[Token], first: int, last: int) -> int:
    while last >= first and (
        tokens[last].lower in words.MONTHS
        or tokens[last].lower in words.WEEKDAYS
        or tokens[last].lower in words.FUNCTION_WORDS
        or tokens[last].lower in words.CONNECTORS
    ):
        last -= 1
    return last


def _is_no_name(token: Token, opening: bool, is_common: Callable[[str], bool]) -> bool:
    lower = token.lower
    if (
        lower in words.NATIONALITIES
        or lower in words.TITLES
        or lower in words.WEEKDAYS
        or lower in words.MONTHS
    ):
        return True
    if len(token.text) == 1 or ("-" in token.text and lower.split("-")[0] in words.NATIONALITIES):
        return True
    if is_common(lower):
        return True
    return opening and (
        lower in words.COMMON_OPENERS
        or lower.endswith(("ly", "ing"))
        or lower.split("-")[0] in words.FUNCTION_WORDS
        or lower.split("'")[0] in words.FUNCTION_WORDS
    )


# Kinds.


def _kind(tokens: Sequence[Token], first: int, last: int) -> str:
    lower = [token.lower for token in tokens[first : last + 1]]
    after = [token.lower for token in tokens[last + 1 : last + 4]] + ["", "", ""]
    if lower[0] in words.KEPT_TITLES or lower[-1] in words.NAME_PARTS:
        return PERSON
    if lower[-1] in words.US_STATES or lower[-1] in ("u.s.", "d.c."):
        return PLACE
    if any(word in words.ORGANISATION_WORDS for word in lower):
        return ORGANISATION
    if lower[0] in words.PLACE_WORDS or lower[-1] in words.PLACE_WORDS:
        return PLACE
    if after[0] == "," and after[1].isdigit() and len(after[1]) <= 2:
        return PERSON
    return PLACE if after[0] == "," and after[1] in words.US_STATES else NAME


def _likely_kind(tokens: Sequence[Token], first: int, last: int) -> str:
    name = tokens[first : last + 1]
    before = tokens[first - 1].lower if first else ""
    after = tokens[last + 1].lower if last + 1 < len(tokens) else ""
    if len(name) == 1 and name[0].text.isupper() and 2 <= len(name[0].text) <= 6:
        return ORGANISATION
    if before in words.PLACE_PREPOSITIONS:
        return PLACE
    if after in words.PERSON_VERBS:
        return PERSON
    if 2 <= len(name) <= 3 and not any(token.lower in words.CONNECTORS for token in name):
        return PERSON
    return NAME
