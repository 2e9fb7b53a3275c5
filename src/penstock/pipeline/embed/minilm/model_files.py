"""Files of MiniLM: the graph and the vocabulary in the directory of models, both with known checksums."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import InvalidSetting, ModelDamaged, ModelUnavailable
from penstock.pipeline.embed.minilm.graph import EncoderShape, build_graph

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

NAME = "minilm"
GRAPH, VOCABULARY = "minilm-int8.onnx", "minilm-vocab.txt"
GRAPH_SHA256 = "249faeade66fd2727cd5446625b72335e262f2e3bcf3ef6df31ee9f0dc940985"
"""The graph is made by exact arithmetic, so that every machine builds the same file."""
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
WEIGHTS_BYTES, VOCABULARY_BYTES = 90_868_376, 231_508
INSTALL = "Run `penstock models install minilm`."


class _Entry(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def is_installed(directory: Path) -> bool:
    """Check whether the files are there. Their content is checked when they are read."""
    return all((directory / name).is_file() for name in (GRAPH, VOCABULARY))


def read_graph(directory: Path) -> bytes:
    """Read the graph. Raises InvalidSetting if it is not installed, ModelDamaged if it is another file."""
    return _read(directory / GRAPH, GRAPH_SHA256)


def read_vocabulary(directory: Path) -> list[str]:
    """Read the pieces of the vocabulary, in the order of their numbers. Raises as ``read_graph``."""
    return _read(directory / VOCABULARY, VOCABULARY_SHA256).decode().splitlines()


def install(directory: Path, weights: bytes, vocabulary: bytes) -> None:
    """Build the graph of these weights and put the files into a directory.

    Raises ModelDamaged if the content is not that of the published model, ModelUnavailable if the directory
    cannot be written.
    """
    check("the weights of MiniLM", weights, WEIGHTS_SHA256)
    check("the vocabulary of MiniLM", vocabulary, VOCABULARY_SHA256)
    graph = build_graph(read_weights(weights), EncoderShape(), quantized=True)
    check("the graph built of MiniLM", graph, GRAPH_SHA256)
    write_files(directory, vocabulary, graph)


def write_files(directory: Path, vocabulary: bytes, graph: bytes) -> None:
    """Write the files of the model, each at once."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # The graph comes last: with it the model is installed.
        for name, data in ((VOCABULARY, vocabulary), (GRAPH, graph)):
            _write(directory / name, data)
    except OSError as error:
        raise ModelUnavailable(
            f"MiniLM cannot be installed in {directory}: {error.strerror or error}",
            remedy="Make the directory writable, free space, or set PENSTOCK_MODELS_DIR to another one.",
        ) from None


def read_weights(data: bytes) -> dict[str, npt.NDArray[np.float32]]:
    """The arrays of 32-bit numbers in a safetensors file, by name.

    The format: the length of the header in 8 bytes, the header as JSON, then the numbers.
    """
    import numpy as np

    length = int.from_bytes(data[:8], "little")
    header: dict[str, msgspec.Raw] = msgspec.json.decode(data[8 : 8 + length], type=dict[str, msgspec.Raw])
    header.pop("__metadata__", None)
    entries = {name: msgspec.json.decode(raw, type=_Entry) for name, raw in header.items()}
    return {
        name: np.frombuffer(
            data, "<f4", int(np.prod(entry.shape)), 8 + length + entry.data_offsets[0]
        ).reshape(entry.shape)
        for name, entry in entries.items()
        if entry.dtype == "F32"
    }


def check(what: str, data: bytes, expected: str) -> None:
    """Raise ModelDamaged unless the data has this SHA-256."""
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise ModelDamaged(f"{what}: SHA-256 is {found[:16]}…, expected {expected[:16]}…")


def _read(path: Path, expected: str) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InvalidSetting(
            f"embedder = 'minilm': the model is not installed in {path.parent}", remedy=INSTALL
        ) from None
    check(str(path), data, expected)
    return data


def _write(path: Path, data: bytes) -> None:
    """Replace a file at once: a reader sees the old one or the new one."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
        temporary = Path(file.name)
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
