"""Cost estimate for HTML: finds pages with quadratic parsing time from their tags alone.

A block tag searches all open elements for a paragraph to end, and an end tag for the element to close. Each
attribute is compared with all attributes before it. Formatting that is never closed is repeated in every
block. The estimate follows the open elements roughly; where HTML has finer rules, it is too high.
"""

from __future__ import annotations

import re
from itertools import islice

_FEW = 4_000
_SMALL = 512 * 1024
_LONG_TAG = 8_000
"""A page with fewer tags, a shorter text and no longer tag is always cheap."""
_MANY_ATTRIBUTES = 2_000
"""From this length of a tag on, its attributes are counted."""

_ATTRIBUTE = r"""[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"?+|'[^']*+'?+|[^\s>"'][^\s>]*+)?+)?+"""
_ATTRIBUTES = re.compile(_ATTRIBUTE)
_TAG = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))"
    r"|<(script|style|textarea|title|xmp|iframe|noembed|noframes)\b.*?(?:</\1|\Z)"
    rf"|<(/?[a-z][^\s/>]*+)((?:{_ATTRIBUTE})*+)",
    re.IGNORECASE | re.DOTALL,
)
_LOOKED_BACK = 32
"""Open elements that are searched for the one that an end tag closes."""

_SCOPES = frozenset("applet button marquee object table template".split())
"""Blocks that only their own end tag closes."""
_BLOCKS = _SCOPES | frozenset(
    "address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer "
    "form header hgroup main menu nav ol pre search section select summary ul".split()
)
_CLOSED_BY_OTHERS = frozenset(
    "body caption colgroup dd dt h1 h2 h3 h4 h5 h6 head html li optgroup option p tbody td tfoot th thead "
    "tr".split()
)
"""Blocks with an optional end tag, which hardly nest without other blocks between them."""
_NEVER_OPEN = frozenset("a area base br col embed hr img input link meta nobr param source track wbr".split())

_NESTING = {
    **dict.fromkeys(_BLOCKS, "block"),
    **dict.fromkeys(_CLOSED_BY_OTHERS, "closed by others"),
    **dict.fromkeys(_NEVER_OPEN, "never open"),
    **{f"/{name}": "never open" for name in _CLOSED_BY_OTHERS | _NEVER_OPEN},
}

_FORMATTING = "(?:b|big|code|em|font|i|s|small|strike|strong|tt|u)"
_REPEATED = re.compile(rf"<(?=[bcefistu]){_FORMATTING}(?:[\s/][^<>]*)?>", re.I)
_REPEATED_OR_END = re.compile(rf"</?{_FORMATTING}(?:[\s/](?![^<>]*(?:hidden|display))[^<>]*)?>", re.I)
_MAX_REPEATED = 3
_MANY_TAGS = 1_000
_OPTION = re.compile(r"</?(?:select|optgroup|option)\b", re.I)
_MAX_OPTIONS = 5_000


def steps_of(markup: str, most: int) -> int:
    """Estimated steps to build the tree; stops counting above ``most``."""
    if _is_harmless(markup):
        return 0
    steps = 0
    still_open: list[str] = []
    for tag in _TAG.finditer(markup):
        name, attributes = tag.group(2, 3)
        if name is not None:
            steps += _steps(still_open, name if name.islower() else name.lower(), attributes)
        if steps > most:
            break
    return steps


def _is_harmless(markup: str) -> bool:
    if len(markup) >= _SMALL or markup.count("<") >= _FEW:
        return False
    return len(markup) < _LONG_TAG or max(map(len, markup.split(">"))) < _LONG_TAG


def _steps(still_open: list[str], name: str, attributes: str) -> int:
    steps = 0
    if len(attributes) > _MANY_ATTRIBUTES:
        steps = sum(1 for _ in _ATTRIBUTES.finditer(attributes)) ** 2
    nesting = _NESTING.get(name)
    if nesting == "never open":
        return steps
    if name[0] == "/":
        return steps + _ended(still_open, name[1:])
    if nesting:
        steps += len(still_open)
    if nesting != "closed by others":
        still_open.append(name)
    return steps


def _ended(still_open: list[str], name: str) -> int:
    if still_open and still_open[-1] == name:
        still_open.pop()
        return 1
    barriers = _SCOPES if name in _BLOCKS else _BLOCKS
    for back, other in enumerate(islice(reversed(still_open), _LOOKED_BACK), 1):
        if other == name:
            del still_open[-back:]
            return back
        if other in barriers:
            break
    return len(still_open)


def simplified(markup: str) -> str:
    """Remove costly tags without meaning for the text: formatting, and options of select lists."""
    tags = markup.count("<")
    if tags > _MANY_TAGS:
        repeated = _MAX_REPEATED * len(set(_REPEATED.findall(markup)))
        # In the worst case, each is open before every tag and is repeated after it.
        if repeated * tags > 300_000 + len(markup):
            markup = _REPEATED_OR_END.sub("", markup)
    if tags > _MAX_OPTIONS and len(_OPTION.findall(markup)) > _MAX_OPTIONS:
        # Each option would be counted again at the next one. An ``hr`` separates the texts as well.
        markup = _OPTION.sub("<hr", markup)
    return markup
