"""What is not on the disk any more: gone, or only away with its disk."""

from __future__ import annotations

import os
from collections.abc import Iterable

from penstock.handlers.move_detection import gone_for_sure

CAREFUL = "careful"
"""In a job's metadata: nobody said that the file is gone; it is removed only if it is for sure."""


def doubt(path: str, roots: Iterable[str]) -> str | None:
    """Why a file that cannot be found need not be gone, as a walk of the folders it was found in (``roots``)
    would see it; None: it is gone."""
    folders = sorted(set(roots))
    for root in folders:
        try:
            with os.scandir(root) as entries:
                if not any(True for _ in entries):
                    return f"{root} is empty, like the place of a disk that is not mounted"
        except (FileNotFoundError, NotADirectoryError):
            return f"{root} is not there, and may be on a disk that is not mounted"
        except OSError as error:
            return f"{root} cannot be looked into: {error.strerror}"
    if folders or gone_for_sure(path):
        return None
    return f"the folder of {path} is empty, away or closed to this user"
