"""Whether a file that somebody wants to bring is what they say it is."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import PathNotFound
from penstock.pipeline.extract import file_types

HEAD = 4_096


def refuse_other_content(path: str, source_type: str) -> None:
    """Raises ``UnsupportedType`` when the beginning of the file is not of that type."""
    try:
        with Path(path).open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise PathNotFound(f"{path}: {error.strerror}") from None
    file_types.refuse_other_than(source_type, path, head)
