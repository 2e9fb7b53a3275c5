"""Check of what a backup holds, before anything is written: its parts, columns and rows.

The checksums tell a damaged file. A file that was changed, and has new checksums, is refused here: with
``--replace`` the stores would be empty already when its rows turn out to be no rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from penstock.backup import stores
from penstock.backup.archive import Header, PartHeader, Row
from penstock.errors import BackupDamaged, PenstockError, StatementRefused

REQUIRED = (stores.JOBS, f"{stores.CATALOG}sources")
NUMBERS = ("row", "change")
_MOST = 2**63
_SCALARS = {str, bytes, float, int, bool, type(None)}


class ContentsCheck:
    """Checks a backup from the header to the last part. Raises ``BackupDamaged``."""

    def __init__(self, name: str, header: Header) -> None:
        self._name = name
        self.headers: list[PartHeader] = []
        """The parts so far."""
        for number in NUMBERS:
            value = header.numbers.get(number)
            if value is None or not 0 <= value < _MOST:
                raise self._damaged(f"its header has no usable number {number!r}")

    def add(self, header: PartHeader, rows: list[Row]) -> None:
        """Check the next rows. The first ones of a part begin it."""
        if not self.headers or self.headers[-1] != header:
            self._begin(header)
        if not _are_scalars(rows):
            raise self._damaged(f"a row of part {header.part} has a value that no column takes")
        if not header.part.startswith(stores.CATALOG):
            for row in rows:
                stores.check_row(header, row)

    def _begin(self, header: PartHeader) -> None:
        if any(header.part == known.part for known in self.headers):
            raise self._damaged(f"part {header.part} is in it twice")
        if not header.columns or len(set(header.columns)) != len(header.columns):
            raise self._damaged(f"part {header.part} has no columns, or one of them twice")
        self.headers.append(header)

    def end(self) -> None:
        """Refuse a backup without the required parts."""
        there = {header.part for header in self.headers}
        for part in REQUIRED:
            if part not in there:
                raise self._damaged(f"it has no part {part}")

    def _damaged(self, what: str) -> BackupDamaged:
        return BackupDamaged(f"{self._name} is damaged: {what}")


def _are_scalars(rows: list[Row]) -> bool:
    """Check all values at once: one by one, they would cost as much as all the rest of the check."""
    kinds = set(map(type, chain.from_iterable(rows)))
    if not kinds <= _SCALARS:
        return False
    numbers = [value for value in chain.from_iterable(rows) if type(value) is int] if int in kinds else [0]
    return min(numbers) >= -_MOST and max(numbers) < _MOST


@contextmanager
def foreign_rows(header: PartHeader) -> Iterator[None]:
    """Translate the refusal of a foreign row, such as one without a required value."""
    try:
        yield
    except Exception as error:  # each engine refuses wrong values in its own way
        if isinstance(error, PenstockError) and not isinstance(error, StatementRefused):
            raise
        raise BackupDamaged(
            f"a row of part {header.part} cannot be restored: {error}",
            remedy="The stores hold a part of this backup only. Restore another one into them.",
        ) from error
