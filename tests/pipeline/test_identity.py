"""Who a chunk is, and when a phase has to run again."""

from __future__ import annotations

import subprocess
import sys
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.pipeline.identity import chunk_id, identify, text_hash
from penstock.pipeline.phases import Fingerprints, Phase, fingerprint

from penstock.pipeline.chunk.protocol import ChunkSizes
from penstock.pipeline.embed.hashing import HashingEmbedder
from penstock.pipeline.plan import fingerprints

NAMES = st.text(max_size=5)


def test_an_id_never_changes():
    """Ids stand in every store: whoever changes the rule orphans them all."""
    assert "8abb9a6f-ff8b-5f9a-a49f-3022f7313f9e" == chunk_id("t", "s", text_hash("words"), 0)
    assert 5 == uuid.UUID(chunk_id("t", "s", text_hash("words"), 0)).version


def test_equal_texts_are_told_apart_by_their_occurrence():
    found = identify("t", "s", ["a", "b", "a", "a"])

    assert [0, 0, 1, 2] == [chunk.occurrence for chunk in found]
    assert 4 == len({chunk.chunk_id for chunk in found})


def test_ids_survive_an_edit_elsewhere():
    before = {chunk.chunk_id for chunk in identify("t", "s", ["a", "b", "a", "c"])}
    after = {chunk.chunk_id for chunk in identify("t", "s", ["a", "new", "a", "c"])}

    assert 3 == len(before & after)


@given(
    st.lists(st.text(max_size=5), min_size=2, max_size=2),
    st.lists(st.text(max_size=5), min_size=2, max_size=2),
)
def test_tenant_and_source_cannot_be_mixed_up(one: tuple[str, str], other: tuple[str, str]):
    first, second = (chunk_id(tenant, source, "0" * 64, 0) for tenant, source in (one, other))

    assert (one == other) == (first == second)


def test_any_text_has_a_hash():
    assert text_hash("\ud800") != text_hash("\ufffd")


def test_phases_run_in_order():
    assert (Phase.VECTOR, Phase.GRAPHRAG) == Phase.OCR.later
    assert () == Phase.GRAPHRAG.later


@pytest.mark.parametrize(
    ("now", "again"),
    [
        (Fingerprints("o", "v", "g"), ()),
        (Fingerprints("x", "v", "g"), tuple(Phase)),
        (Fingerprints("o", "x", "g"), (Phase.VECTOR, Phase.GRAPHRAG)),
        (Fingerprints("o", "v", "x"), (Phase.GRAPHRAG,)),
    ],
)
def test_a_change_runs_its_phase_and_the_later_ones(now: Fingerprints, again: tuple[Phase, ...]):
    assert again == Fingerprints("o", "v", "g").changed(now)


def test_a_fingerprint_is_of_names_and_values():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": "1"})


def test_settings_and_model_are_part_of_the_fingerprint():
    plain = fingerprints(ChunkSizes(), HashingEmbedder())

    assert plain == fingerprints(ChunkSizes(), HashingEmbedder())
    assert tuple(Phase) == plain.changed(fingerprints(ChunkSizes(overlap=8), HashingEmbedder()))
    assert Phase.VECTOR is plain.changed(fingerprints(ChunkSizes(), HashingEmbedder(128)))[0]
    assert plain.ocr != fingerprints(ChunkSizes(), HashingEmbedder(), reader="pdf").ocr


def test_values_and_rules_load_no_library():
    program = (
        "import sys, penstock, penstock.pipeline.plan, penstock.pipeline.chunk.opening;"
        "import penstock.pipeline.extract.boxed, penstock.pipeline.embed.opening;"
        "heavy = 'numpy tokenizers selectolax pypdfium2 kreuzberg tree_sitter charset_normalizer wordllama';"
        "print(sorted(set(heavy.split()) & sys.modules.keys()))"
    )

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "[]" == answer.stdout.strip()
