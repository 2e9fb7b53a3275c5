"""Writer of ONNX files: the few messages of the format that a graph of one model needs.

The format is protocol buffers. Own code, because the package ``onnx`` is larger than the model.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.named_tuple import NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Attribute: TypeAlias = int | float | Sequence[int]

FLOAT, INT64 = 1, 7
_DATA_TYPES = {"float32": FLOAT, "int8": 3, "int64": INT64}
_IR_VERSION, _OPSET = 8, 17
MICROSOFT = "com.microsoft"
"""Domain of operators that only onnxruntime has."""


class GraphValue(NamedTuple):
    """An input or output: name, type of its numbers, and dimensions. A dimension may be a name."""

    name: str
    data_type: int
    shape: Sequence[int | str]


class GraphWriter:
    """Nodes and constants of a graph, in order. Names of results are numbered."""

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
        opsets = _bytes(8, _number(2, _OPSET)) + _bytes(8, _text(1, MICROSOFT) + _number(2, 1))
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
