"""Real pages, markup and data files: all that is visible is kept, and nothing else."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from xml.etree import ElementTree

from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.draft import chunk_page
from penstock.pipeline.extract.charset import clean, decode
from penstock.pipeline.extract.factory import extract
from penstock.pipeline.extract.protocol import ExtractedText
from tests.pipeline.test_corpus import Entry, content, joined, of, words

INVISIBLE = frozenset("script style template noscript iframe object canvas audio video svg head".split())
INLINE = frozenset("a abbr b code del em font i ins kbd mark q s small span strong sub sup tt u".split())
VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())


class _Visible(HTMLParser):
    """Words outside invisible elements, as another parser sees them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[tuple[str, bool]] = []
        self.visible: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in INLINE:
            self.visible.append(" ")
        if tag in VOID:
            return
        named = dict(attributes)
        style = (named.get("style") or "").replace(" ", "").lower()
        hidden = tag in INVISIBLE or "hidden" in named or "display:none" in style
        self._open.append((tag, hidden or any(above for _, above in self._open[-1:])))

    def handle_endtag(self, tag: str) -> None:
        if tag not in INLINE:
            self.visible.append(" ")
        if any(tag == name for name, _ in self._open):
            while self._open.pop()[0] != tag:
                continue

    def handle_data(self, text: str) -> None:
        if not (self._open and self._open[-1][1]):
            self.visible.append(text)


def recall(expected: list[str], found: list[str]) -> float:
    wanted, there = Counter(expected), Counter(found)
    return sum((wanted & there).values()) / max(1, sum(wanted.values()))


@of("html")
def test_visible_words_of_a_page_are_kept_and_only_those(entry: Entry):
    file = content(entry)
    page = _Visible()
    page.feed(clean(decode(file.data).text))
    extracted = extract(file)
    found = words(re.sub(r"^ *\d+\. ", "", joined(extracted), flags=re.M))

    visible = words("".join(page.visible))
    assert recall(visible, found) >= 0.99
    assert recall(found, visible) >= 0.98
    assert not re.search(r"&(?:amp|nbsp|lt|gt|#\d+);", joined(extracted))
    assert extracted.pages[0].positions is not None


@of("html")
def test_headings_of_every_page_are_kept(entry: Entry):
    extracted = extract(content(entry))
    written = re.findall(r"<h[1-6][^>]*>(.*?)</h[1-6]>", decode(content(entry).data).text, re.S | re.I)
    plain = {" ".join(words(re.sub(r"<[^>]*>", "", heading))) for heading in written if "&" not in heading}

    kept = {" ".join(words(line)) for line in joined(extracted).split("\n") if line.startswith("#")}
    assert plain - {""} <= kept


@of("markup")
def test_markup_is_kept_with_its_headings_and_whole_code(entry: Entry):
    file = content(entry)
    extracted = extract(file)
    text = joined(extracted)
    assert clean(decode(file.data).text) == text

    chunks = chunk_page(text, extracted.shape)
    fences = list(re.finditer(r"^```[^`\n]*\n.*?^```[ \t]*$", text, re.S | re.M))
    for fence in fences:
        assert any(chunk.start <= fence.start() and fence.end() <= chunk.end for chunk in chunks)
    outside = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    headings = re.findall(r"^#{1,6} +(.*?)[ #]*$", outside, re.M) if entry["file"].endswith(".md") else []
    kept = {heading for chunk in chunks for heading in chunk.headings}
    # The last heading before the start of a chunk is among its headings; one inside a chunk is in its text.
    assert all(title in kept or any(title in chunk.text for chunk in chunks) for title in headings)


def _values(file: str, text: str) -> Iterator[str]:
    if file.endswith(".xml"):
        root = ElementTree.fromstring(text)
        for element in root.iter():
            yield from (" ".join(value.split()) for value in (*element.attrib.values(), element.text or ""))
    elif file.endswith(".json"):
        open_values = [json.loads(text)]
        while open_values:
            value = open_values.pop()
            if isinstance(value, dict):
                open_values += [*value, *value.values()]
            elif isinstance(value, list):
                open_values += value
            else:
                yield str(value)
    else:
        for cell in json.loads(text)["cells"]:
            yield "".join(cell["source"]).rstrip()


@of("data")
def test_every_value_is_present_and_no_row_is_cut(entry: Entry):
    file = content(entry)
    extracted = extract(file)
    written = clean(decode(file.data).text)
    if entry["file"].endswith(".csv"):
        _check_rows(entry["file"], written, extracted)
        return

    values = [value for value in _values(entry["file"], written) if value]
    assert len(values) > 2
    assert [] == [value for value in values if value not in joined(extracted)]


def _check_rows(file: str, written: str, extracted: ExtractedText) -> None:
    delimiter = {"pipe": "|", "semicolon": ";", "tab": "\t"}.get(file.rpartition("-")[2][:-4], ",")
    rows = [row for row in csv.reader(written.splitlines(keepends=True), delimiter=delimiter) if row]
    found = [" | ".join(" ".join(cell.split()) for cell in row) for row in rows]

    assert found == joined(extracted).split("\n")
    for size in (max(64, *map(len, found)), 2_000):
        lines = [
            line
            for chunk in chunk_page(joined(extracted), extracted.shape, sizes=ChunkSizes(size))
            for line in chunk.text.split("\n")
        ]
        assert found == lines
