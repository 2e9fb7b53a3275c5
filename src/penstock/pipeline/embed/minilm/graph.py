"""The layers of MiniLM (a BERT encoder with mean pooling) as an ONNX graph.

One text at a time: without padding there is no mask, and the vector of a text does not depend on the texts
beside it, although the scale of 8-bit numbers is taken from all numbers of a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.named_tuple import NamedTuple
from penstock.pipeline.embed.minilm.onnx_writer import FLOAT, INT64, MICROSOFT, GraphValue, GraphWriter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

INPUT, OUTPUT = "input_ids", "embedding"
_EPSILON = 1e-12
_WEIGHT_RANGE = 64
"""Largest weight as an integer: 7 bits. Without VNNI the sum of two products must fit into 16 bits."""
_TABLE_RANGE = 127
"""Largest number of the table of words, which is not multiplied."""


class EncoderShape(NamedTuple):
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
        seen = graph.node("MultiHeadAttention", split, MICROSOFT, num_heads=self._shape.heads)
        seen = self._dense(f"{name}attention.output.dense", seen)
        hidden = self._added(f"{name}attention.output", seen, hidden)
        wide = self._dense(f"{name}intermediate.dense", hidden)
        narrow = self._dense(f"{name}output.dense", graph.node("Gelu", [wide], MICROSOFT), exact=True)
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
        return self._graph.node("SkipLayerNormalization", inputs, MICROSOFT, epsilon=_EPSILON)

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
        return graph.node("DynamicQuantizeMatMul", inputs, MICROSOFT)

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
