"""Files of MiniLM: the graph and the vocabulary in the directory of models, both with known checksums.

The graph is built of the published weights, as an ONNX file.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from penstock.errors import InvalidSetting, ModelDamaged, ModelUnavailable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


Attribute: TypeAlias = int | float | Sequence[int]

FLOAT, INT64 = 1, 7
_DATA_TYPES = {"float32": FLOAT, "int8": 3, "int64": INT64}
_IR_VERSION, _OPSET = 8, 17
_MICROSOFT = "com.microsoft"
"""Domain of operators that only onnxruntime has."""


class GraphValue(msgspec.Struct, frozen=True):
    """An input or output: name, type of its numbers, and dimensions. A dimension may be a name."""

    name: str
    data_type: int
    shape: Sequence[int | str]


class GraphWriter:
    """Nodes and constants of a graph, in order. Names of results are numbered.

    Writes the few messages of ONNX files (protocol buffers) that the graph of one model needs. Own code,
    because the package ``onnx`` is larger than the model.
    """

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []

    def constant(self, values: npt.NDArray[np.generic]) -> str:
        """Add a constant and return its name."""
        import numpy as np

        name = f"c{len(self._constants)}"
        little = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<"), copy=False))
        dimensions = b"".join(_number(1, size) for size in values.shape)
        data_type = _number(2, _DATA_TYPES[values.dtype.name])
        self._constants.append(dimensions + data_type + _text(8, name) + _bytes(9, little.tobytes()))
        return name

    def node(self, operator: str, inputs: Sequence[str], domain: str = "", **attributes: Attribute) -> str:
        """Add an operator with one result and return the name of the result."""
        return self.node_with(1, operator, inputs, domain, **attributes)[0]

    def node_with(
        self, results: int, operator: str, inputs: Sequence[str], domain: str = "", **attributes: Attribute
    ) -> list[str]:
        """Add an operator with several results and return their names."""
        names = [f"n{len(self._nodes)}_{number}" for number in range(results)]
        parts = [_text(1, name) for name in inputs] + [_text(2, name) for name in names]
        parts += [_text(4, operator), *_attributes(attributes)]
        if domain:
            parts.append(_text(7, domain))
        self._nodes.append(b"".join(parts))
        return names

    def rename_last(self, name: str) -> None:
        """Give the result of the last node this name, as an output of the graph."""
        last = f"n{len(self._nodes) - 1}_0"
        self._nodes[-1] = self._nodes[-1].replace(_text(2, last), _text(2, name))

    def file(self, inputs: Iterable[GraphValue], outputs: Iterable[GraphValue]) -> bytes:
        """The bytes of an ONNX file with this graph."""
        graph = b"".join(
            [
                *(_bytes(1, node) for node in self._nodes),
                _text(2, "graph"),
                *(_bytes(5, constant) for constant in self._constants),
                *(_bytes(11, _value(value)) for value in inputs),
                *(_bytes(12, _value(value)) for value in outputs),
            ]
        )
        opsets = _bytes(8, _number(2, _OPSET)) + _bytes(8, _text(1, _MICROSOFT) + _number(2, 1))
        return _number(1, _IR_VERSION) + _bytes(7, graph) + opsets


def _attributes(attributes: Mapping[str, Attribute]) -> list[bytes]:
    return [_bytes(5, _text(1, name) + _attribute(value)) for name, value in attributes.items()]


def _attribute(value: Any) -> bytes:
    if isinstance(value, float):
        return _key(2, 5) + struct.pack("<f", value) + _number(20, 1)
    if isinstance(value, int):
        return _number(3, value) + _number(20, 2)
    return b"".join(_number(8, one) for one in value) + _number(20, 7)


def _value(value: GraphValue) -> bytes:
    sizes = [_text(2, size) if isinstance(size, str) else _number(1, size) for size in value.shape]
    shape = b"".join(_bytes(1, size) for size in sizes)
    tensor = _number(1, value.data_type) + _bytes(2, shape)
    return _text(1, value.name) + _bytes(2, _bytes(1, tensor))


def _key(field: int, wire_type: int) -> bytes:
    return _varint(field << 3 | wire_type)


def _number(field: int, value: int) -> bytes:
    return _key(field, 0) + _varint(value % (1 << 64))


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


INPUT, OUTPUT = "input_ids", "embedding"
_EPSILON = 1e-12
_WEIGHT_RANGE = 64
"""Largest weight as an integer: 7 bits. Without VNNI the sum of two products must fit into 16 bits."""
_TABLE_RANGE = 127
"""Largest number of the table of words, which is not multiplied."""


class EncoderShape(msgspec.Struct, frozen=True):
    """Size of an encoder."""

    layers: int = 6
    heads: int = 12


Weights = Mapping[str, "npt.NDArray[np.float32]"]


def build_graph(weights: Weights, shape: EncoderShape, *, quantized: bool) -> bytes:
    """Build an ONNX file from the weights by their names in the published model.

    ``quantized``: matrices as 8-bit integers, each column with a scale of its own; else all in 32 bits. The
    last matrix of each layer stays in 32 bits: its inputs have a few very large numbers, and all others would
    be rounded coarsely (cosine to the model in 32 bits at least .992 instead of .983).
    """
    encoder = _Encoder(weights, shape, quantized)
    hidden = encoder.words()
    for layer in range(shape.layers):
        hidden = encoder.layer(hidden, f"encoder.layer.{layer}.")
    width = len(weights["embeddings.LayerNorm.weight"])
    return encoder.pooled(hidden, width)


class _Encoder:
    """The layers of MiniLM, a BERT encoder with mean pooling.

    One text at a time: without padding there is no mask, and the vector of a text does not depend on the
    texts beside it, although the scale of 8-bit numbers is taken from all numbers of a call.
    """

    def __init__(self, weights: Weights, shape: EncoderShape, quantized: bool) -> None:
        self._weights = weights
        self._shape = shape
        self._quantized = quantized
        self._graph = GraphWriter()

    def words(self) -> str:
        """Sum of the vectors of words and places, normalized."""
        import numpy as np

        graph, weights = self._graph, self._weights
        table = weights["embeddings.word_embeddings.weight"]
        if self._quantized:
            scale = _scales(table, 1, _TABLE_RANGE)
            rows = graph.node("Gather", [graph.constant(_integers(table, scale, _TABLE_RANGE)), INPUT])
            scales = graph.node("Gather", [graph.constant(scale), INPUT])
            words = graph.node("Mul", [graph.node("Cast", [rows], to=FLOAT), scales])
        else:
            words = graph.node("Gather", [graph.constant(table), INPUT])
        places = weights["embeddings.position_embeddings.weight"]
        places = places + weights["embeddings.token_type_embeddings.weight"][0]
        zero, one = (graph.constant(np.array([number], dtype=np.int64)) for number in (0, 1))
        length = graph.node("Gather", [graph.node("Shape", [INPUT]), one])
        used = graph.node("Slice", [graph.constant(places), zero, length, zero])
        summed = graph.node("Add", [words, used])
        norm = self._norm("embeddings.LayerNorm")
        return graph.node("LayerNormalization", [summed, *norm], axis=-1, epsilon=_EPSILON)

    def layer(self, hidden: str, name: str) -> str:
        import numpy as np

        graph, weights = self._graph, self._weights
        parts = [f"{name}attention.self.{part}" for part in ("query", "key", "value")]
        matrix = np.concatenate([weights[f"{part}.weight"] for part in parts])
        bias = np.concatenate([weights[f"{part}.bias"] for part in parts])
        both = self._product(hidden, matrix, bias)
        split = graph.node_with(3, "Split", [both], axis=-1)
        seen = graph.node("MultiHeadAttention", split, _MICROSOFT, num_heads=self._shape.heads)
        seen = self._dense(f"{name}attention.output.dense", seen)
        hidden = self._added(f"{name}attention.output", seen, hidden)
        wide = self._dense(f"{name}intermediate.dense", hidden)
        narrow = self._dense(f"{name}output.dense", graph.node("Gelu", [wide], _MICROSOFT), exact=True)
        return self._added(f"{name}output", narrow, hidden)

    def pooled(self, hidden: str, width: int) -> bytes:
        """The file of the graph, with mean pooling over all tokens and normalization at the end."""
        graph = self._graph
        mean = graph.node("ReduceMean", [hidden], axes=[1], keepdims=0)
        graph.node("LpNormalization", [mean], axis=-1, p=2)
        graph.rename_last(OUTPUT)
        inputs = [GraphValue(INPUT, INT64, [1, "tokens"])]
        return graph.file(inputs, [GraphValue(OUTPUT, FLOAT, [1, width])])

    def _added(self, name: str, result: str, hidden: str) -> str:
        inputs = [result, hidden, *self._norm(f"{name}.LayerNorm")]
        return self._graph.node("SkipLayerNormalization", inputs, _MICROSOFT, epsilon=_EPSILON)

    def _dense(self, name: str, value: str, *, exact: bool = False) -> str:
        matrix, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return self._product(value, matrix, bias, exact=exact)

    def _product(
        self,
        value: str,
        matrix: npt.NDArray[np.float32],
        bias: npt.NDArray[np.float32],
        *,
        exact: bool = False,
    ) -> str:
        graph, columns = self._graph, matrix.T
        if exact or not self._quantized:
            product = graph.node("MatMul", [value, graph.constant(columns)])
            return graph.node("Add", [product, graph.constant(bias)])
        scale = _scales(columns, 0, _WEIGHT_RANGE)
        integers = graph.constant(_integers(columns, scale, _WEIGHT_RANGE))
        # The fourth input, the zero of the integers, is 0.
        inputs = [value, integers, graph.constant(scale[0]), "", graph.constant(bias)]
        return graph.node("DynamicQuantizeMatMul", inputs, _MICROSOFT)

    def _norm(self, name: str) -> list[str]:
        return [self._graph.constant(self._weights[f"{name}.{part}"]) for part in ("weight", "bias")]


def _scales(values: npt.NDArray[np.float32], axis: int, most: int) -> npt.NDArray[np.float32]:
    """Quantization step of each row or column: the largest number becomes ``most``."""
    import numpy as np

    largest = np.abs(values).max(axis=axis, keepdims=True)
    return np.where(largest > 0, largest / np.float32(most), np.float32(1)).astype(np.float32)


def _integers(
    values: npt.NDArray[np.float32], scale: npt.NDArray[np.float32], most: int
) -> npt.NDArray[np.int8]:
    import numpy as np

    rounded: npt.NDArray[np.float32] = np.clip(np.rint(values / scale), -most, most)
    return rounded.astype(np.int8)


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
