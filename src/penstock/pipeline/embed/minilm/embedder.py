"""The embedder MiniLM: better vectors than the default, at about a hundred times its cost."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import InvalidSetting
from penstock.extras import install_remedy
from penstock.pipeline.embed.minilm import model_files
from penstock.pipeline.embed.minilm.graph import INPUT, OUTPUT
from penstock.pipeline.embed.minilm.tokens import MiniLmTokens
from penstock.pipeline.fingerprints import fingerprint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

DIMENSION = 384
MAX_TOKENS = 256
"""Length with which the model was trained. Of a longer text the beginning is embedded."""


class MiniLmEmbedder:
    """One text at a time, on one thread: a worker has several processes."""

    name = model_files.NAME
    dimension = DIMENSION

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

        vectors = np.zeros((len(texts), DIMENSION), dtype=np.float32)
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
