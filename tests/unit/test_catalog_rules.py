"""The catalog's pure rules as tables of cases."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.catalog.rules import publication
from penstock.catalog.rules.identity import NAMESPACE, ChunkIds, text_hash, text_key
from penstock.catalog.rules.paths import at_and_above, below, covers, moved, span
from penstock.catalog.rules.phases import (
    CHUNK_PHASES,
    FOLLOWERS,
    LATER_PHASES,
    PHASES,
    Fingerprints,
    turns,
    wanted_phases,
)
from penstock.catalog.rules.publication import NO_VECTORS, NOTHING_USABLE, GenerationFacts, Verdict, verdict
from penstock.catalog.values import Failure, FailureKind, HeldTask, Phase, Place, Removal, TaskStatus
from penstock.clock import new_uuids
from penstock.queue.retry import Classification

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
C, F, P, S, X = (
    TaskStatus.COMPLETED,
    TaskStatus.FAILED,
    TaskStatus.PENDING,
    TaskStatus.SKIPPED,
    TaskStatus.PROCESSING,
)


def test_every_phase_has_a_rule_a_fingerprint_and_a_phase_before_it():
    assert list(Phase) == list(PHASES)
    assert list(Phase) == list(Fingerprints.__struct_fields__)
    order = list(Phase)
    for phase in LATER_PHASES:
        before = PHASES[phase].after
        assert before in CHUNK_PHASES
        assert order.index(before) < order.index(phase)
        assert phase in FOLLOWERS[before]
        assert phase in FOLLOWERS[Phase.VECTOR]


@pytest.mark.parametrize(
    ("fingerprints", "vectors", "wanted"),
    [
        (Fingerprints("o", "v", ""), True, {Phase.VECTOR}),
        (Fingerprints("o", "v", "g"), True, {Phase.VECTOR, Phase.GRAPHRAG}),
        # Its tasks could never begin.
        (Fingerprints("o", "", "g"), False, set()),
    ],
)
def test_a_later_phase_is_wanted_by_its_fingerprint(
    fingerprints: Fingerprints, vectors: bool, wanted: set[Phase]
):
    found = wanted_phases(fingerprints, vectors=vectors)
    assert wanted == {phase for phase, is_wanted in zip(CHUNK_PHASES, found, strict=True) if is_wanted}


@pytest.mark.parametrize(
    ("folder", "path", "inside"),
    [
        ("/a", "/a", True),
        ("/a", "/a/b", True),
        ("/a/", "/a/b", True),
        ("/a", "/ab", False),
        ("/a", "/", False),
        ("/", "/x", True),
        ("/a b", "/a b/c%_*", True),
    ],
)
def test_what_lies_below_a_folder(folder: str, path: str, inside: bool):
    assert inside == below(folder, path)


@given(
    st.text(alphabet="ab/0.~\u00e9\U0001f600", max_size=8),
    st.text(alphabet="ab/0.~\u00e9\U0001f600", max_size=8),
)
def test_the_span_of_a_folder_holds_what_is_in_it(folder: str, rest: str):
    first, last = span(folder)

    for path in (folder.rstrip("/") + "/" + rest, folder + rest, rest):
        # Code points and UTF-8 sort alike, which is how SQLite compares.
        inside = first <= path < last
        assert inside == path.startswith(first)
        assert (first.encode() <= path.encode() < last.encode()) == inside


@given(st.text("/ab", max_size=8), st.text("/ab", max_size=8))
def test_a_delete_is_looked_for_where_it_can_stand(folder: str, path: str):
    """Stores look up deletes by these paths alone, so every covering path must be among them."""
    kept_as = folder.rstrip("/") or "/"
    if folder and below(kept_as, path):
        assert kept_as in at_and_above(path)
    assert all(below(found, path) for found in at_and_above(path))


@pytest.mark.parametrize(
    ("old", "new", "path", "expected"),
    [("/a", "/b", "/a", "/b"), ("/a", "/b", "/a/x/y", "/b/x/y"), ("/a/", "/b/", "/a/x", "/b/x")],
)
def test_a_path_moves_with_its_folder(old: str, new: str, path: str, expected: str):
    assert expected == moved(old, new, path)


@pytest.mark.parametrize(
    ("narrowed", "seconds", "covered"),
    [
        ({}, 0, True),
        ({}, -1, False),
        ({}, 1, True),
        ({"collection": "docs"}, 0, True),
        ({"collection": "notes"}, 0, False),
        ({"branch": "dev"}, 0, False),
        ({"path": "/a"}, 0, True),
        ({"path": "/b"}, 0, False),
        ({"path": "/a", "below": False}, 0, False),
        ({"path": "/a/x.md", "below": False}, 0, True),
        ({"source_id": "s1"}, 0, True),
        ({"source_id": "s2"}, 0, False),
        ({"collection": "docs", "branch": "main", "path": "/a", "source_id": "s1"}, 5, True),
    ],
)
def test_a_delete_covers_what_was_asked_for_not_later(narrowed: dict[str, Any], seconds: int, covered: bool):
    removal = Removal(tenant_id="acme", asked_at=NOON + timedelta(seconds=seconds), **narrowed)

    assert covered == covers(removal, Place("acme", "docs"), "/a/x.md", "s1", NOON)
    assert not covers(removal, Place("other", "docs"), "/a/x.md", "s1", NOON)


def facts(**changed: Any) -> GenerationFacts:
    whole = GenerationFacts(ocr=C, vector=C, pages=3, pages_read=3, chunks_embedded=9, outages=0)
    return msgspec.structs.replace(whole, **changed)


@pytest.mark.parametrize(
    ("standing", "decision"),
    [
        (facts(), (Verdict.PUBLISH, None)),
        (facts(vector=S, chunks_embedded=0), (Verdict.PUBLISH, None)),
        (facts(pages=0, pages_read=0, ocr=S, vector=S, chunks_embedded=0), (Verdict.PUBLISH, None)),
        (facts(ocr=F, pages_read=2), (Verdict.PUBLISH, None)),
        (facts(vector=F), (Verdict.PUBLISH, None)),
        (facts(ocr=P), (Verdict.WAIT, None)),
        (facts(ocr=X), (Verdict.WAIT, None)),
        (facts(vector=P), (Verdict.WAIT, None)),
        (facts(vector=X, outages=1), (Verdict.WAIT, None)),
        (facts(ocr=F, vector=S, pages_read=0, chunks_embedded=0), (Verdict.KEEP_BACK, NOTHING_USABLE)),
        (facts(vector=F, chunks_embedded=0), (Verdict.KEEP_BACK, NO_VECTORS)),
        (
            facts(vector=F, outages=2),
            (Verdict.KEEP_BACK, "2 of its parts failed for reasons outside the document"),
        ),
    ],
)
def test_when_a_generation_is_published(standing: GenerationFacts, decision: tuple[Verdict, str | None]):
    assert decision == verdict(standing)


@pytest.mark.parametrize(
    ("first", "given_before", "head", "count", "expected"),
    [
        (0, 0, None, 2, (0, [0, 0])),
        (0, 0, 7, 1, (7, [7])),
        (0, 31, 0, 2, (0, [0, 1])),
        (5, 64, 7, 1, (5, [7])),
        (0, 64, 9, 1, (7, [9])),
        (3, 0, 1, 1, (3, [3])),
    ],
)
def test_turns_of_a_documents_tasks(first, given_before, head, count, expected):
    assert expected == turns(first, given_before, head, count)


def chunk_id(text: str, occurrence: int) -> str:
    """The id of a chunk whose text its source had so many times before."""
    hash_of_text = text_hash(text)
    return ChunkIds("acme", "s1", {hash_of_text: occurrence}).next(hash_of_text)


def test_chunk_ids_are_uuids_of_version_5():
    name = f"acme\0s1\0{text_hash('x')}\0{2}"

    assert str(uuid.uuid5(uuid.UUID(bytes=NAMESPACE), name)) == chunk_id("x", 2)


def test_equal_texts_are_told_apart_by_their_occurrence():
    ids = ChunkIds("acme", "s1", seen={text_hash("x"): 1})

    assert chunk_id("x", 1) == ids.next(text_hash("x"))
    assert chunk_id("y", 0) == ids.next(text_hash("y"))
    assert chunk_id("x", 2) == ids.next(text_hash("x"))


@given(st.text())
def test_a_text_key_fits_every_databases_integer(text: str):
    try:
        assert 0 <= text_key(text_hash(text)) < 2**60
    except UnicodeEncodeError:
        assert any("\ud800" <= character <= "\udfff" for character in text)


def claimed(retry_count: int = 0) -> HeldTask:
    return HeldTask(Phase.VECTOR, 1, 1, retry_count, 3)


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (publication.released(claimed()), (P, 0, None, None)),
        (publication.released(claimed(2)), (F, 1, 0, None)),
        (publication.lost(claimed()), (F, 0, 0, None)),
        (publication.lost(claimed(3)), (F, 3, None, FailureKind.CONTENT)),
        (publication.failed(claimed(1), Failure("E", "m")), (F, 3, None, FailureKind.CONTENT)),
        (publication.failed_attempt(claimed(), Classification("transient", "E"), "m"), (F, 0, 5, None)),
        (publication.failed_attempt(claimed(1), Classification("transient", "E"), "m"), (F, 1, 10, None)),
        (
            publication.failed_attempt(claimed(3), Classification("transient", "E"), "m"),
            (F, 3, None, FailureKind.OUTAGE),
        ),
        (
            publication.failed_attempt(claimed(), Classification("permanent", "E"), "m"),
            (F, 3, None, FailureKind.CONTENT),
        ),
        (
            publication.failed_attempt(
                claimed(), Classification("transient", "E", timedelta(seconds=77)), "m"
            ),
            (F, 0, 77, None),
        ),
        (publication.skipped(claimed(), "why"), (S, 0, None, None)),
    ],
)
def test_how_a_task_ends(outcome, expected):
    after = outcome.retry_after
    seconds = None if after is None else after.total_seconds()

    assert expected == (outcome.status, outcome.retry_count, seconds, outcome.fault)


def test_source_ids_are_uuids_of_version_7_in_order_of_time():
    made = [uuid.UUID(text) for text in new_uuids(100)]

    assert {7} == {one.version for one in made}
    assert {uuid.RFC_4122} == {one.variant for one in made}
    assert 100 == len(set(made))
    assert new_uuids(1)[0][:13] >= str(made[0])[:13]
