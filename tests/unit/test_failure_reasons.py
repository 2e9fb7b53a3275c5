"""Reasons of failures: what counts as the same."""

import pytest

from penstock.queue.job import failure_reason


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/srv/a/1.pdf: the file is damaged", "/srv/my great docs/2.pdf: the file is damaged"),
        ("page 3 of 12 is empty", "page 4,001 of 9 is empty"),
        ("cannot open 'a.pdf'", "cannot open 'quite another.pdf'"),
        ("no such job job_0660f5b1a2", "no such  job job_0660f5b1a3"),
        ("Timeout after 30s", "Timeout after 7200s"),
        ("C:\\x\\a.pdf cannot be read", "C:\\y\\b.pdf cannot be read"),
    ],
)
def test_paths_names_and_numbers_do_not_tell_reasons_apart(one: str, other: str):
    assert failure_reason("ERR_PARSE", one) == failure_reason("ERR_PARSE", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ERR_PARSE", "the file is damaged"), ("ERR_PARSE", "the file is encrypted")),
        (("ERR_PARSE", "x"), ("ERR_NETWORK", "x")),
        (("ERR_PARSE", "/a: damaged"), ("ERR_PARSE", "/a: encrypted")),
    ],
)
def test_codes_and_words_do(one: tuple[str, str], other: tuple[str, str]):
    assert failure_reason(*one) != failure_reason(*other)


def test_a_parent_has_no_reason_of_its_own_and_any_text_has_one():
    assert failure_reason("ERR_CHILDREN_FAILED", "1 of 3 files failed") is None
    assert "ERR_UNKNOWN-e3b0c44298" == failure_reason(None, None)
    assert failure_reason("ERR_PARSE", "\ud800 x" * 1_000) is not None
