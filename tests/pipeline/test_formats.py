"""The table of formats: every type is in it, and every extra with its size."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from penstock.extensions import EXTRAS
from penstock.pipeline.chunk.languages import GRAMMARS
from penstock.pipeline.extract.factory import READERS, formats, languages
from penstock.pipeline.extract.file_types import BY_SUFFIX, EXTRACTORS

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ROOT / "pyproject.toml"


def test_every_suffix_stands_in_the_table_once():
    listed = [suffix for one in formats() for suffix in one.suffixes]
    listed += [suffix for language in languages() for suffix in language.suffixes]

    assert sorted(BY_SUFFIX) == sorted(listed)


def test_every_extractor_is_described():
    assert set(EXTRACTORS) <= READERS.keys()


def test_pages_and_positions_have_their_units():
    by_name = {one.name: one for one in formats()}

    assert ("page", None) == (by_name["PDF"].page_unit, by_name["PDF"].position_unit)
    assert (None, "line") == (by_name["Markdown"].page_unit, by_name["Markdown"].position_unit)


def test_every_grammar_belongs_to_a_language_with_a_suffix():
    assert {one.name for one in languages() if one.structured} == GRAMMARS.keys()


def test_pages_name_the_size_of_each_extra_as_it_was_measured():
    sizes = {extra.name: extra.size_mb for extra in EXTRAS}
    readme, benchmarks = ((ROOT / name).read_text() for name in ("README.md", "docs/benchmarks.md"))
    listed = re.findall(r"^\| `([\w-]+)` \|.*\| (\d+) MB", readme, re.MULTILINE)
    in_bench = r"^\| `penstock\[([\w-]+)\]` \| \+([\d.]+) \|$"
    measured = re.findall(in_bench, benchmarks, re.MULTILINE)

    assert sizes == {name: int(size) for name, size in listed}
    assert len(measured) > 5
    assert sizes.items() >= {(name, round(float(size))) for name, size in measured}


def test_every_extra_of_the_package_is_listed():
    optional = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]

    assert optional.keys() - {"dev", "docs", "servers", "peers", "testing"} == {
        extra.name for extra in EXTRAS
    }
    needed = {one.extra for one in formats()} | {language.extra for language in languages()}
    assert needed - {None} <= {extra.name for extra in EXTRAS}
