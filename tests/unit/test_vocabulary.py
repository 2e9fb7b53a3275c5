"""The words of every door, in both directions."""

from __future__ import annotations

import pytest

from penstock import errors, vocabulary
from penstock.queue.job import Status

SPOKEN = [
    ("job", "pending in_progress done failed cancelled"),
    ("task", "pending processing completed failed failed"),
    ("http", "pending running done failed cancelled"),
    ("cli", "pending running done failed cancelled"),
    ("redis", "queued processing done failed failed"),
    ("function", "PENDING IN_PROGRESS COMPLETED FAILED FAILED"),
]


@pytest.mark.parametrize(("door", "words"), SPOKEN)
def test_each_door_speaks_its_own_words(door, words):
    assert words.split() == [vocabulary.speak(status, door) for status in Status]


def test_every_door_has_a_row_here():
    assert vocabulary.DOORS == tuple(door for door, _ in SPOKEN)


@pytest.mark.parametrize("door", vocabulary.DOORS)
@pytest.mark.parametrize("status", [status for status in Status if status != "cancelled"])
def test_what_a_door_says_is_understood_as_what_was_meant(status, door):
    assert status == vocabulary.understand(vocabulary.speak(status, door))


@pytest.mark.parametrize(
    ("door", "expected"),
    [
        ("job", "cancelled"),
        ("http", "cancelled"),
        ("cli", "cancelled"),
        ("task", "failed"),
        ("redis", "failed"),
        ("function", "failed"),
    ],
)
def test_cancelled_is_heard_as_failed_where_no_word_for_it_exists(door, expected):
    assert expected == vocabulary.understand(vocabulary.speak("cancelled", door))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("pending PENDING Pending queued QUEUED submitted", "pending"),
        ("in_progress IN_PROGRESS running Running processing", "in_progress"),
        ("done DONE completed COMPLETED", "done"),
        ("failed FAILED", "failed"),
        ("cancelled canceled Cancelled CANCELED", "cancelled"),
        ("skipped SKIPPED", "skipped"),
    ],
)
def test_all_synonyms_are_understood_in_any_case(words, expected):
    assert {expected} == {vocabulary.understand(word) for word in [*words.split(), f" {words.split()[0]} "]}


@pytest.mark.parametrize("word", ["", "finished", "pendng", None, 3])
def test_other_words_are_refused_and_the_known_ones_named(word):
    with pytest.raises(errors.UnknownStatus, match=r"known are .*queued"):
        vocabulary.understand(word)


def test_a_near_miss_gets_a_hint():
    with pytest.raises(errors.UnknownStatus, match="did you mean 'pending'"):
        vocabulary.understand("pendng")


def test_only_phases_are_skipped():
    assert "skipped" == vocabulary.speak("skipped", "task")
    with pytest.raises(errors.UnknownStatus, match="http"):
        vocabulary.speak("skipped", "http")


def test_only_canonical_words_can_be_spoken():
    with pytest.raises(errors.UnknownStatus):
        vocabulary.speak("running", "cli")


@pytest.mark.parametrize(
    ("number", "words", "said"),
    [
        (0, ("page",), "0 pages"),
        (1, ("page",), "1 page"),
        (1200, ("page",), "1,200 pages"),
        (1, ("process", "processes"), "1 process"),
        (2, ("process", "processes"), "2 processes"),
    ],
)
def test_a_number_of_things_is_said_as_a_person_would(number, words, said):
    assert said == vocabulary.how_many(number, *words)
