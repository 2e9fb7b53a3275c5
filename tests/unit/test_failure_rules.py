"""Rules of remembered failures, as tables."""

from __future__ import annotations

import pytest

from penstock.catalog.rules.publication import (
    CONTENT_CODES,
    FailedReading,
    ReadFile,
    Verdict,
    becomes_document,
    failed_document,
    failed_generation,
    fails_again,
    kind_of,
    remedy_for,
    same_content_fails_again,
    verdict,
)
from penstock.catalog.values import Failure, FailureKind, Place, SourceFailure, TaskStatus
from penstock.clock import now
from penstock.errors import ComponentMissing, NoText, TimeBudgetExceeded

FAILURE = SourceFailure(10, 20, "abc", "parser 1", "ERR_PARSE: damaged")


@pytest.mark.parametrize(
    ("size", "mtime_ns", "read_with", "again"),
    [
        (10, 20, "parser 1", True),
        (11, 20, "parser 1", False),
        (10, 21, "parser 1", False),
        (10, 20, "parser 2", False),
    ],
)
def test_a_failure_holds_for_one_file_and_one_parser(size: int, mtime_ns: int, read_with: str, again: bool):
    assert again == fails_again(FAILURE, size, mtime_ns, read_with)
    assert not fails_again(SourceFailure(size, mtime_ns), size, mtime_ns, read_with)


@pytest.mark.parametrize(
    ("content_hash", "read_with", "again"),
    [("abc", "parser 1", True), ("abd", "parser 1", False), ("abc", "parser 2", False)],
)
def test_a_failure_holds_for_the_content_whatever_the_time(content_hash: str, read_with: str, again: bool):
    assert again == same_content_fails_again(FAILURE, content_hash, read_with)


def test_content_that_was_never_hashed_is_not_the_same():
    unread = SourceFailure(10, 20, "", "parser 1")

    assert not same_content_fails_again(unread, "", "parser 1")


@pytest.mark.parametrize(
    ("code", "kind", "new", "known"),
    [
        (NoText.code, FailureKind.CONTENT, True, True),
        (TimeBudgetExceeded.code, FailureKind.CONTENT, True, True),
        (ComponentMissing.code, FailureKind.CONTENT, True, True),
        ("ERR_PERMISSION", FailureKind.OUTAGE, True, False),
        ("ERR_IO", FailureKind.OUTAGE, True, False),
        ("ERR_FILE_NOT_FOUND", FailureKind.OUTAGE, False, False),
    ],
)
def test_which_failures_become_documents(code: str, kind: FailureKind, new: bool, known: bool):
    assert kind == kind_of(code)
    assert (new, known) == (becomes_document(code, known=False), becomes_document(code, known=True))


def test_every_failure_of_the_content_has_a_remedy():
    assert all(remedy_for(code) for code in CONTENT_CODES)
    assert "" == remedy_for("ERR_PERMISSION")


@pytest.mark.parametrize("fault", FailureKind)
def test_a_failed_document_is_settled_and_kept_back(fault: FailureKind):
    state = failed_document(Failure("ERR_PARSE", "damaged", fault))

    assert (TaskStatus.FAILED, TaskStatus.SKIPPED) == (state.facts.ocr, state.facts.vector)
    assert Verdict.KEEP_BACK == verdict(state.facts)[0]
    assert ("ERR_PARSE: damaged", 0, 1) == (state.error, state.pages, state.failed)


def test_a_failed_generation_has_no_pages_and_a_bounded_message():
    made = failed_generation(
        FailedReading(
            place=Place("acme", "docs"),
            path="/a.pdf",
            code="ERR_PARSE",
            message="x" * 5_000,
            file=ReadFile(10, 20, "parser 1", "abc"),
            asked_at=now(),
            read_at=now(),
        )
    )

    assert ((), 10, 20, "abc", "parser 1") == (
        made.pages,
        made.size,
        made.mtime_ns,
        made.content_hash,
        made.read_with,
    )
    assert made.failure == Failure("ERR_PARSE", "x" * 1_000, FailureKind.CONTENT)
