"""Files of the default embedder: the vectors of the word pieces, and the pieces.

A wheel of Penstock contains them; ``hatch_build.py`` takes them from the package ``wordllama``. In a checkout
without them, an installed ``wordllama`` serves as well. The code of that package is not used, and neither are
its many dependencies.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from penstock.errors import InvalidSetting
from penstock.named_tuple import NamedTuple

DIMENSION = 256

OWN_WEIGHTS, OWN_PIECES = "weights.safetensors", "pieces.json"
SHA256 = {
    OWN_WEIGHTS: "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
    OWN_PIECES: "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
}
"""Checksums of the files in the wheel, compared when the wheel is built."""

_OWN = Path(__file__).parent / "table"


class TableFiles(NamedTuple):
    """Paths of both files, and checksums of their contents."""

    weights: Path
    pieces: Path
    weights_sha256: str
    pieces_sha256: str


@cache
def find_table_files() -> TableFiles:
    """Find the files of this package, or else those of an installed ``wordllama``."""
    weights, pieces = _OWN / OWN_WEIGHTS, _OWN / OWN_PIECES
    if weights.is_file() and pieces.is_file():
        # 16 MB are not read to learn what is known since the build.
        return TableFiles(weights, pieces, SHA256[OWN_WEIGHTS], SHA256[OWN_PIECES])
    for weights, pieces in _installed_files():
        return TableFiles(weights, pieces, _digest(weights), _digest(pieces))
    raise InvalidSetting(
        "embedder = 'static': the table of vectors is not installed",
        remedy="Install Penstock again, or `pip install --no-deps wordllama`; or use the embedder 'hashing'.",
    )


def _installed_files() -> Iterator[tuple[Path, Path]]:
    # find_spec finds the package without running it.
    spec = importlib.util.find_spec("wordllama")
    for place in (spec and spec.submodule_search_locations) or ():
        weights = Path(place, "weights", f"l2_supercat_{DIMENSION}.safetensors")
        pieces = Path(place, "tokenizers", "l2_supercat_tokenizer_config.json")
        if weights.is_file() and pieces.is_file():
            yield weights, pieces


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
