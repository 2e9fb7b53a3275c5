"""Named tuples as in ``typing``, whose classes are made without compiling source.

``typing.NamedTuple`` compiles the annotation of each field and the constructor from text. That is 62 us for a
class of five fields, not 7, and a short command imports 150 classes.
"""

from __future__ import annotations

import sys
from collections import namedtuple
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NamedTuple as NamedTuple
    from typing import Self
else:
    # As the standard library raises it.
    _UNEXPECTED = TypeError if sys.version_info >= (3, 13) else ValueError

    class _NamedTuple(tuple):
        """Methods that all named tuples share."""

        __slots__ = ()

        @classmethod
        def _make(cls, values: Iterable[Any]) -> Self:
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **values: Any) -> Self:
            made = self._make(map(values.pop, self._fields, self))
            if values:
                raise _UNEXPECTED(f"Got unexpected field names: {list(values)!r}")
            return made

        # For copy.replace of Python 3.13.
        __replace__ = _replace

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            values = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({values})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    class _Maker(type):
        """Makes a subclass of ``tuple`` from the annotations of a class body."""

        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, namespace)
            annotations = namespace.get("__annotations__", {})
            fields = tuple(annotations)
            defaults = {field: namespace[field] for field in fields if field in namespace}
            own = {
                "__slots__": (),
                "__match_args__": fields,
                "_fields": fields,
                "_field_defaults": defaults,
                "__new__": _constructor(name, annotations, tuple(defaults.values())),
            }
            template = _template(len(fields))
            getters = {
                field: getattr(template, at) for field, at in zip(fields, template._fields, strict=True)
            }
            return type(name, (_NamedTuple, *bases[1:]), namespace | own | getters)

    class NamedTuple(metaclass=_Maker):
        """The base of a class with annotated fields, which may have methods and be generic."""


@cache
def _template(count: int) -> Any:
    """A named tuple of so many fields, with constructor and descriptors for all classes of this size."""
    return namedtuple("_template", [f"field_{index}" for index in range(count)])


def _constructor(cls: str, annotations: dict[str, Any], defaults: tuple[Any, ...]) -> FunctionType:
    given = _template(len(annotations)).__new__
    code = given.__code__.replace(co_varnames=("_cls", *annotations))
    made = FunctionType(code, given.__globals__, "__new__", defaults)
    made.__qualname__, made.__annotations__ = f"{cls}.__new__", annotations
    return made
