"""HTML whose tree would take the square of its length to build, told from its tags alone.

A tag of a block looks through all open elements for a paragraph to end, an end tag for what it ends; an
attribute is compared with all before it; formatting that was never closed is repeated in every block. The
estimate follows the open elements roughly: where the rules of HTML are finer, it is too high.
"""

from __future__ import annotations

import re
from itertools import islice

_SMALL = 32 * 1024
_FEW = 1_000
"""A page that is shorter and has fewer tags costs little, whatever it holds."""

_ATTRIBUTE = r"""[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"?+|'[^']*+'?+|[^\s>"'][^\s>]*+)?+)?+"""
_ATTRIBUTES = re.compile(_ATTRIBUTE)
_TAG = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))"
    r"|<(script|style|textarea|title|xmp|iframe|noembed|noframes)\b.*?(?:</\1|\Z)"
    rf"|<(/?)([a-z][^\s/>]*+)((?:{_ATTRIBUTE})*+)",
    re.IGNORECASE | re.DOTALL,
)
_LONG_TAG = 2_000
_LOOKED_BACK = 32
"""Open elements among which the one that an end tag ends is looked for."""

_SCOPES = frozenset("applet button marquee object table template".split())
"""Blocks that no end tag inside them ends, but their own."""
_BLOCKS = _SCOPES | frozenset(
    "address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer "
    "form header hgroup main menu nav ol pre search section select summary ul".split()
)
_CLOSED_BY_OTHERS = frozenset(
    "body caption colgroup dd dt h1 h2 h3 h4 h5 h6 head html li optgroup option p tbody td tfoot th thead "
    "tr".split()
)
"""Blocks whose end tag is often left out, and that hardly nest without others between them."""
_NEVER_OPEN = frozenset("a area base br col embed hr img input link meta nobr param source track wbr".split())

_REPEATED = re.compile(
    r"<(?:b|big|code|em|font|i|s|small|strike|strong|tt|u)(?:[\s/][^<>]*)?>", re.IGNORECASE
)
_REPEATED_OR_END = re.compile(
    r"</?(?:b|big|code|em|font|i|s|small|strike|strong|tt|u)(?:[\s/](?![^<>]*(?:hidden|display))[^<>]*)?>",
    re.IGNORECASE,
)
_REPEATED_AT_MOST = 3
_OPTION = re.compile(r"</?(?:select|optgroup|option)\b", re.IGNORECASE)
_MOST_OPTIONS = 5_000


def steps_of(markup: str, most: int) -> int:
    """The estimate, or any number above ``most``."""
    if len(markup) < _SMALL and markup.count("<") < _FEW:
        return 0
    steps = 0
    still_open: list[str] = []
    for tag in _TAG.finditer(markup):
        _, end, name, attributes = tag.groups()
        if name is None:
            continue
        if len(attributes) > _LONG_TAG:
            steps += sum(1 for _ in _ATTRIBUTES.finditer(attributes)) ** 2
        steps += _ended(still_open, name.lower()) if end else _begun(still_open, name.lower())
        if steps > most:
            break
    return steps


def _begun(still_open: list[str], name: str) -> int:
    if name in _NEVER_OPEN:
        return 0
    looked_at = len(still_open) if name in _BLOCKS or name in _CLOSED_BY_OTHERS else 0
    if name not in _CLOSED_BY_OTHERS:
        still_open.append(name)
    return looked_at


def _ended(still_open: list[str], name: str) -> int:
    if name in _NEVER_OPEN or name in _CLOSED_BY_OTHERS:
        return 0
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
    """The same text without what is costly and says nothing here: formatting, and lists to choose from."""
    tags = markup.count("<")
    if tags > _FEW:
        repeated = _REPEATED_AT_MOST * len(set(_REPEATED.findall(markup)))
        # In the worst case each stands open before each tag and is repeated after it.
        if repeated * tags > 300_000 + len(markup):
            markup = _REPEATED_OR_END.sub("", markup)
    if tags > _MOST_OPTIONS and len(_OPTION.findall(markup)) > _MOST_OPTIONS:
        # Each option would be counted again at the next one. A rule parts them as well.
        markup = _OPTION.sub("<hr", markup)
    return markup
