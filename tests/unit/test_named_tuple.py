"""Named tuples made without compiling source, beside those of ``typing``."""

from __future__ import annotations

import copy
import inspect
import typing
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
import pytest

from penstock.named_tuple import NamedTuple

T = TypeVar("T")


class Gate(NamedTuple):
    """A gate of a mill."""

    name: str
    width: int | None
    tags: tuple[str, ...] = ()

    @property
    def wide(self) -> bool:
        return (self.width or 0) > 10

    @classmethod
    def closed(cls) -> Gate:
        return cls("closed", 0)


class TypingGate(typing.NamedTuple):
    """A gate of a mill."""

    name: str
    width: int | None
    tags: tuple[str, ...] = ()


class Choice(NamedTuple, Generic[T]):
    chosen: T
    others: list[T]


@pytest.mark.parametrize(
    "of",
    [
        lambda gate: gate("north", 12),
        lambda gate: gate(width=1, name="north", tags=("old",)),
        lambda gate: gate("north", 12)._replace(width=2),
        lambda gate: gate("north", 12)._asdict(),
        lambda gate: gate._make(["north", 12, ()]),
        lambda gate: repr(gate("north", 12)).partition("(")[2],
        lambda gate: hash(gate("north", 12)),
        lambda gate: gate("north", 12) < gate("south", 1),
        lambda gate: (gate._fields, gate._field_defaults, gate.__match_args__, gate.__doc__),
        lambda gate: list(inspect.signature(gate).parameters),
        lambda gate: typing.get_type_hints(gate),
        lambda gate: msgspec.json.encode(gate("north", 12)),
        lambda gate: msgspec.convert(["north", 12], gate),
        lambda gate: copy.copy(gate("north", 12)),
    ],
)
def test_a_class_works_as_that_of_typing(of: Callable[[Any], Any]):
    assert of(TypingGate) == of(Gate)


@pytest.mark.parametrize(
    "call",
    [
        lambda gate: gate("north"),
        lambda gate: gate("north", 12, (), 4),
        lambda gate: gate("north", 12, height=4),
        lambda gate: gate._make(["north"]),
        lambda gate: gate("north", 12)._replace(height=4),
        lambda gate: gate("north", 12).height,
        lambda gate: setattr(gate("north", 12), "width", 4),
    ],
)
def test_a_mistake_is_reported_as_by_typing(call: Callable[[Any], Any]):
    with pytest.raises((TypeError, ValueError, AttributeError)) as expected:
        call(TypingGate)
    with pytest.raises(type(expected.value)) as found:
        call(Gate)

    assert str(expected.value).replace("TypingGate", "Gate") == str(found.value)


def test_values_are_copied_and_sent_to_processes_by_their_class_and_values():
    gate = Gate("north", 12, ("old",))

    kept = copy.deepcopy(gate)
    reduced = gate.__reduce_ex__(2)

    assert (Gate, gate) == (type(kept), kept)
    assert (Gate, *gate) == reduced[1]


def test_copies_with_other_values_are_made_as_by_copy_replace_of_python_3_13():
    replace = type(Gate("north", 12)).__replace__  # type: ignore[attr-defined]

    assert Gate("north", 2) == replace(Gate("north", 12), width=2)


def test_methods_and_type_parameters_are_kept():
    assert Gate("north", 12).wide
    assert "closed" == Gate.closed().name
    assert ("a", ["b"]) == Choice[str]("a", ["b"])
    assert (T,) == Choice.__parameters__  # type: ignore[attr-defined]


def test_values_have_no_dictionary():
    with pytest.raises(AttributeError):
        Gate("north", 12).height = 4  # type: ignore[attr-defined]

    assert not hasattr(Gate("north", 12), "__dict__")


def test_a_pattern_matches_the_fields_in_order():
    match Gate("north", 12):
        case Gate(name, width):
            assert ("north", 12) == (name, width)
