"""Vector spaces of the catalog: a number and a dimension for each name."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.catalog.sql.statements import Statements
from penstock.errors import InvalidRequest, InvalidVector

FLOAT32 = 4
MOST_SPACES = 255


class Spaces:
    """Vector spaces by name; made when first seen."""

    def __init__(self, rows: Statements) -> None:
        self._rows = rows
        self._known: dict[str, tuple[int, int | None]] = {}
        self.outside = False
        """True if a store outside the catalog holds a copy of each vector. Known once a space was."""

    def number(self, name: str | None, vectors: Iterable[bytes | None] = ()) -> int | None:
        """The number of a space, after checking the lengths of all vectors."""
        if name is None:
            return None
        lengths = {len(vector) for vector in vectors if vector}
        number, dimension = self._known.get(name) or self._look_up(name)
        if dimension is None and lengths:
            self._rows.hold("space", name)
            number, dimension = self._look_up(name)
        if dimension is None and lengths:
            dimension = max(lengths) // FLOAT32
            self._rows.send("set_dimension", dimension, number)
        if lengths and lengths != {(dimension or 0) * FLOAT32}:
            raise InvalidVector(
                f"space {name[:100]} holds vectors of {dimension} float32, got {sorted(lengths)} bytes"
            )
        self._known[name] = (number, dimension)
        return number

    def _look_up(self, name: str) -> tuple[int, int | None]:
        found = self._rows.one("space", name)
        if found is not None:
            number, dimension, outside = found
            self.outside = bool(outside)
            return number, dimension
        number = int(self._rows.value("free_space"))
        if number > MOST_SPACES:
            raise InvalidRequest(
                f"there are {MOST_SPACES} vector spaces already",
                remedy="Remove or rebuild what is in spaces no longer used; upkeep then frees them.",
            )
        self._rows.send("add_space", number, name, None)
        return self._look_up(name)
