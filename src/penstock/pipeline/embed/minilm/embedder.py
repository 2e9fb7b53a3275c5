"""The embedder MiniLM: better vectors than the default, at about a hundred times its cost."""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidSetting
from penstock.extensions import install_remedy
from penstock.pipeline.embed.minilm import model_files
from penstock.pipeline.embed.minilm.model_files import INPUT, OUTPUT
from penstock.strict_json import fingerprint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


UNKNOWN, BEGIN, END = "[UNK]", "[CLS]", "[SEP]"
_MAX_WORD = 100
_MAX_CACHED_WORDS = 50_000
_CJK = (
    "\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b920-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f"
)
_IDEOGRAPH = re.compile(f"([{_CJK}])")
_ASCII_SIGNS = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


class MiniLmTokens:
    """Splits texts into the numbers of their word pieces, as ``tokenizers`` does with the same vocabulary.

    Own code, because that library requires a client of a model hub. For one thread at a time.
    """

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._numbers = {piece: number for number, piece in enumerate(vocabulary)}
        self._unknown = self._numbers[UNKNOWN]
        self._ends = self._numbers[BEGIN], self._numbers[END]
        self._known: dict[str, list[int]] = {}

    def split(self, text: str, most: int) -> list[int]:
        """Numbers of the pieces with those of begin and end, ``most`` altogether; empty without a word."""
        found: list[int] = []
        for word in _words(text):
            found += self._pieces(word)
            if len(found) >= most - 2:
                break
        begin, end = self._ends
        return [begin, *found[: most - 2], end] if found else []

    def _pieces(self, word: str) -> list[int]:
        pieces = self._known.get(word)
        if pieces is None:
            if len(self._known) >= _MAX_CACHED_WORDS:
                self._known.clear()
            pieces = self._known[word] = self._longest(word)
        return pieces

    def _longest(self, word: str) -> list[int]:
        """Split by the longest match first; a word without a complete split is one unknown piece."""
        if len(word) > _MAX_WORD:
            return [self._unknown]
        pieces: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                number = self._numbers.get(word[start:end] if start == 0 else f"##{word[start:end]}")
                if number is not None:
                    break
            else:
                return [self._unknown]
            pieces.append(number)
            start = end
        return pieces


def _words(text: str) -> list[str]:
    """Words in lower case and without accents; signs and ideographs are words of their own."""
    if not text.isascii():
        text = _IDEOGRAPH.sub(r" \1 ", "".join(map(_cleaned, text)))
        decomposed = unicodedata.normalize("NFD", text)
        text = "".join(char for char in decomposed if unicodedata.category(char) != "Mn")
        # Python writes a sigma at the end of a word in another way than the vocabulary.
        text = text.replace("Σ", "σ")
    else:
        text = "".join(map(_cleaned, text)) if not text.isprintable() else text
    words: list[str] = []
    for word in text.lower().split():
        words += _without_signs(word)
    return words


def _cleaned(char: str) -> str:
    if char.isspace():
        return " "
    return "" if char == "\ufffd" or unicodedata.category(char)[0] == "C" else char


def _without_signs(word: str) -> list[str]:
    if word.isalnum():
        return [word]
    parts: list[str] = []
    start = 0
    for place, char in enumerate(word):
        if char in _ASCII_SIGNS or (not char.isascii() and unicodedata.category(char)[0] == "P"):
            parts += [word[start:place], char]
            start = place + 1
    return [part for part in (*parts, word[start:]) if part]


_DIMENSION = 384
MAX_TOKENS = 256
"""Length with which the model was trained. Of a longer text the beginning is embedded."""


class MiniLmEmbedder:
    """One text at a time, on one thread: a worker has several processes."""

    name = model_files.NAME
    dimension = _DIMENSION

    def __init__(self, directory: Path) -> None:
        """Raises InvalidSetting if the model or onnxruntime is not installed. Nothing is loaded yet."""
        if find_spec("onnxruntime") is None:
            raise InvalidSetting(
                "embedder = 'minilm': onnxruntime is not installed", remedy=install_remedy("minilm")
            )
        if not model_files.is_installed(directory):
            raise InvalidSetting(
                f"embedder = 'minilm': the model is not installed in {directory}", remedy=model_files.INSTALL
            )
        self._directory = directory
        self._lock = threading.Lock()
        self._loaded: tuple[MiniLmTokens, Any] | None = None

    @property
    def fingerprint(self) -> str:
        return fingerprint({"graph": model_files.GRAPH_SHA256, "tokens": MAX_TOKENS})

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        import numpy as np

        vectors = np.zeros((len(texts), _DIMENSION), dtype=np.float32)
        if not texts:
            return vectors
        with self._lock:
            tokens, session = self._loaded or self._load()
            for row, text in enumerate(texts):
                numbers = tokens.split(text, MAX_TOKENS)
                if numbers:
                    given = {INPUT: np.array([numbers], dtype=np.int64)}
                    vectors[row] = session.run([OUTPUT], given)[0][0]
        return vectors

    def _load(self) -> tuple[MiniLmTokens, Any]:
        import onnxruntime

        onnxruntime.disable_telemetry_events()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        graph = model_files.read_graph(self._directory)
        session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        tokens = MiniLmTokens(model_files.read_vocabulary(self._directory))
        self._loaded = tokens, session
        return self._loaded
