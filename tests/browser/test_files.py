"""The files of the dashboard, without a browser: size, safety and the contrast of its colours."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import pytest

from penstock.http import pages
from tests.http.live_server import LiveServer

FOLDER = pages.FOLDER
LIMIT = 123 * 1024
STATUSES = ("pending", "running", "done", "failed", "cancelled", "skipped", "held")


def texts(*suffixes: str) -> dict[Path, str]:
    return {path: path.read_text() for path in sorted(FOLDER.rglob("*.*")) if path.suffix in suffixes}


def test_html_css_and_scripts_are_small():
    found = {path.name: path.stat().st_size for path in texts(".html", ".css", ".js")}
    assert sum(found.values()) <= LIMIT, found


def test_nothing_is_inline_and_nothing_comes_from_elsewhere():
    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            names = dict(attributes)
            assert tag != "style"
            assert "style" not in names
            assert tag != "script" or names.get("src")
            assert not any(name.startswith("on") for name in names)
            for name in ("src", "href"):
                assert (names.get(name) or "/").startswith(("/", "#"))

    for text in texts(".html").values():
        Reader().feed(text)
    for path, text in texts(".css", ".js", ".svg").items():
        kept = text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.[a-z]|innerHTML|outerHTML|insertAdjacent|\beval\b", kept), (
            path
        )


def test_the_page_forbids_scripts_of_others(server: LiveServer):
    connection_headers = server_headers(server, "/")
    policy = connection_headers["content-security-policy"]
    for part in ("default-src 'self'", "object-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"):
        assert part in policy
    assert "unsafe" not in policy
    assert "nosniff" == connection_headers["x-content-type-options"]


def server_headers(server: LiveServer, path: str) -> dict[str, str]:
    from urllib.request import urlopen

    with urlopen(f"{server.url}{path}") as answer:
        return {name.lower(): value for name, value in answer.headers.items()}


def colours() -> dict[str, dict[str, str]]:
    """Each token in both themes."""
    text = (FOLDER / "css" / "tokens.css").read_text()
    found: dict[str, dict[str, str]] = {"light": {}, "dark": {}}
    for name, light, dark in re.findall(r"--([\w-]+):light-dark\((#\w{6}),(#\w{6})\)", text):
        found["light"][name], found["dark"][name] = light, dark
    for name, both in re.findall(r"--([\w-]+):(#\w{6})[;}]", text):
        found["light"][name] = found["dark"][name] = both
    return found


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_can_be_told_apart(theme: str):
    token = colours()[theme]
    grounds = ("bg", "surface", "raised", "hover", "select")
    pairs = [
        *product(("text", "muted", "faint", "accent"), grounds, [4.5]),
        ("on-accent", "accent-fill", 4.5),
    ]
    pairs += [("on-danger", "danger-fill", 4.5), ("control", "surface", 3.0), ("text", "mark", 4.5)]
    pairs += [(f"{status}-ink", f"{status}-tint", 4.5) for status in STATUSES]
    pairs += [(status, ground, 3.0) for status in STATUSES for ground in ("bg", "surface")]
    pairs += [(name, ground, 4.5) for name in ("band-text", "band-muted") for ground in ("band", "band-2")]
    low = [
        (one, other, contrast(token[one], token[other]))
        for one, other, least in pairs
        if contrast(token[one], token[other]) < least
    ]
    assert [] == low
