"""Rules of a site for crawlers: robots.txt, as RFC 9309 says. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

from penstock.named_tuple import NamedTuple

AGENT = "penstock"
MAX_BYTES = 500 * 1024
"""Bytes of a robots.txt that are read."""
MAX_RULES = 2_000
LONGEST_DELAY_S = 30.0


class _Rule(NamedTuple):
    length: int
    allows: bool
    parts: tuple[str, ...]
    """Texts between the stars."""
    ends: bool
    """The last part is the end of the path."""

    def matches(self, path: str) -> bool:
        """Compare part by part, each at the first match: linear time for any number of stars."""
        if not path.startswith(self.parts[0]):
            return False
        at = len(self.parts[0])
        if len(self.parts) == 1:
            return not self.ends or at == len(path)
        for part in self.parts[1 : -1 if self.ends else None]:
            found = path.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        return not self.ends or (len(path) - len(self.parts[-1]) >= at and path.endswith(self.parts[-1]))


class Robots:
    """The rules for one crawler on one host. Without rules everything is allowed."""

    def __init__(self, text: str = "") -> None:
        groups, self.sitemaps = _groups(text)
        lines = groups.get(AGENT, groups.get("*", []))
        self.delay_s = next((_seconds(value) for name, value in lines if name == "crawl-delay"), 0.0)
        self._rules = sorted(
            (
                _rule(name, value)
                for name, value in lines[:MAX_RULES]
                if name in ("allow", "disallow") and value
            ),
            key=lambda rule: (-rule.length, not rule.allows),
        )

    def allows(self, url: str) -> bool:
        """Check whether a page may be read: the longest matching rule decides."""
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return next((rule.allows for rule in self._rules if rule.matches(path)), True)


def _groups(text: str) -> tuple[dict[str, list[tuple[str, str]]], list[str]]:
    """Lines for this crawler and for all, and the sitemaps. Consecutive names share the following lines.

    Lines for other crawlers are not kept: thousands of names would each get thousands of lines.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    sitemaps: list[str] = []
    names: set[str] = set()
    in_rules = False
    for line in text.splitlines():
        name, colon, value = line.partition("#")[0].partition(":")
        name, value = name.strip().lower(), value.strip()
        if not colon:
            continue
        if name == "sitemap":
            sitemaps.append(value)
        elif name == "user-agent":
            if in_rules:
                names, in_rules = set(), False
            if value.lower() in (AGENT, "*"):
                names.add(value.lower())
                groups.setdefault(value.lower(), [])
        else:
            in_rules = True
            for each in names:
                groups[each].append((name, value))
    return groups, sitemaps


def _rule(name: str, value: str) -> _Rule:
    return _Rule(len(value), name == "allow", tuple(value.removesuffix("$").split("*")), value.endswith("$"))


def _seconds(text: str) -> float:
    try:
        return min(max(float(text), 0.0), LONGEST_DELAY_S)
    except ValueError:
        return 0.0
