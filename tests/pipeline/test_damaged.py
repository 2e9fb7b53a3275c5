"""Damaged documents in the sandbox: cut off, or with changed bytes, each is read or refused with a reason."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.errors import ParserFailed, UnreadableDocument
from penstock.pipeline.chunk.text import ChunkSizes
from penstock.pipeline.extract.protocol import Content
from penstock.pipeline.extract.sandbox.sandbox import Sandbox
from tests.pipeline.format_samples import DOCUMENTS, cut, flipped


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as made:
        yield made


@pytest.mark.parametrize("content", DOCUMENTS, ids=lambda content: content.name)
def test_damage_is_refused_with_a_reason_of_its_own(sandbox: Sandbox, content: Content):
    sandbox._end_child()
    sandbox.draft(content, ChunkSizes())
    child = sandbox._child
    refusals = [refused(sandbox, damaged) for damaged in (*cut(content), *flipped(content, 20))]
    named = [error for error in refusals if error is not None]

    assert all(error.message and error.remedy for error in named)
    assert not [error.message for error in named if isinstance(error, ParserFailed)]
    assert child is sandbox._child, "the parser has crashed"


def refused(sandbox: Sandbox, content: Content) -> UnreadableDocument | None:
    try:
        sandbox.draft(content, ChunkSizes())
    except UnreadableDocument as error:
        return error
    return None
