"""The site of the documentation: its navigation, and links in their new places. MkDocs is not needed here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import docs_site

ROOT = Path(__file__).resolve().parent.parent
CONFIGURATION = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
KNOWN = {
    "docs/index.md": "index.md",
    "docs/guides/http.md": "guides/http.md",
    "SECURITY.md": "security.md",
    "CONTRIBUTING.md": "contributing/rules.md",
    ".github/images/overview.png": "images/overview.png",
}


def navigation() -> list[str]:
    return re.findall(r": (\S+\.md)$", CONFIGURATION.partition("\nnav:\n")[2], re.MULTILINE)


def test_the_navigation_has_every_page_once():
    notes = re.compile(r"decisions/0\d+-")  # reached from their list
    pages = [place for place in docs_site.places().values() if place.endswith(".md")]

    assert sorted(place for place in pages if not notes.match(place)) == sorted(navigation())


def test_the_navigation_has_the_parts_that_readers_look_for():
    parts = re.findall(r"^  - ([^:]+):", CONFIGURATION.partition("\nnav:\n")[2], re.MULTILINE)

    wanted = ["Tutorial", "How-tos", "Concepts", "Reference", "Operations", "Security model", "Architecture"]
    assert ["Home", *wanted] == parts


def test_no_two_files_have_one_place():
    places = list(docs_site.places().values())

    assert len(places) == len(set(places))


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("docs/index.md", "[a](guides/http.md#keys)", "[a](guides/http.md#keys)"),
        ("docs/guides/http.md", "[a](../../SECURITY.md)", "[a](../security.md)"),
        ("SECURITY.md", "[a](docs/guides/http.md)", "[a](guides/http.md)"),
        ("CONTRIBUTING.md", "[a](docs/index.md), [b](#start)", "[a](../index.md), [b](#start)"),
        (
            "docs/guides/http.md",
            "![a](../../.github/images/overview.png)",
            "![a](../images/overview.png)",
        ),
        ("CONTRIBUTING.md", "[the licence](LICENSE)", "the licence"),
        ("docs/index.md", "[gone](guides/none.md)", "[gone](guides/none.md)"),
        ("docs/index.md", "[web](https://example.org/a.md)", "[web](https://example.org/a.md)"),
        ("SECURITY.md", "```\n[a](docs/index.md)\n```\n", "```\n[a](docs/index.md)\n```\n"),
    ],
)
def test_links_lead_to_the_places_of_the_site(source: str, text: str, expected: str):
    assert expected == docs_site.with_links(text, source, KNOWN)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.html", '<a href="https://example.org">out</a>', 0),
        ("a.html", '<script src="https://cdn.example.org/a.js"></script>', 1),
        ("a.html", '<link rel="preconnect" href="//fonts.example.org">', 1),
        ("a.html", '<img src="images/a.png">', 0),
        ("a.css", "@font-face { src: url(https://fonts.example.org/a) }", 1),
        ("a.css", "a { background: url(data:image/png;base64,AA==) }", 0),
    ],
)
def test_what_a_page_loads_from_elsewhere_is_found(tmp_path: Path, name: str, text: str, found: int):
    (tmp_path / name).write_text(text)

    assert found == len(list(docs_site.outside_requests(tmp_path)))
