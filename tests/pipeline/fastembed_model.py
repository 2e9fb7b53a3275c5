"""A small model for fastembed: a table of words as an ONNX graph, and a tokenizer, in a directory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from penstock.pipeline.embed.minilm.model_files import FLOAT, INT64, GraphValue, GraphWriter

WIDTH, CONTEXT = 48, 64
WORDS = (
    "[UNK] [PAD] the mill grinds corn at river ground by a parliament passed tax law wheel gate größer 水車 "
    "def parsehttp self 3 14 2718 and automobiles fill streets of town traffic bread is baked in oven kitchen"
).split()
"""Words of the tests of embedders, each with a vector of its own. All others have the first one."""


def write_model(directory: Path, *, graph: str = "model.onnx", pooled: bool = False, seed: int = 1) -> Path:
    """Write the files of a model whose vectors are means of random ones, one for each word.

    ``pooled``: the graph itself takes the mean, so that it has one vector for each text.
    """
    table = np.random.default_rng(seed).normal(0, 1, (len(WORDS), WIDTH)).astype(np.float32)
    writer = GraphWriter()
    rows = writer.node("Gather", [writer.constant(table), "input_ids"])
    shape: tuple[int | str, ...] = ("texts", "tokens", WIDTH)
    if pooled:
        writer.node("ReduceMean", [rows], axes=[1], keepdims=0)
        shape = ("texts", WIDTH)
    writer.rename_last("found")
    file = writer.file(
        [GraphValue("input_ids", INT64, ("texts", "tokens"))], [GraphValue("found", FLOAT, shape)]
    )
    (directory / graph).parent.mkdir(parents=True, exist_ok=True)
    (directory / graph).write_bytes(file)
    (directory / "tokenizer.json").write_text(_tokenizer())
    (directory / "tokenizer_config.json").write_text(
        json.dumps({"model_max_length": CONTEXT, "pad_token": "[PAD]", "unk_token": "[UNK]"})
    )
    return directory


def _tokenizer() -> str:
    from tokenizers import Regex, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.normalizers import Lowercase
    from tokenizers.pre_tokenizers import Split

    made = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer = Lowercase()
    made.pre_tokenizer = Split(Regex(r"[^\p{L}\p{N}]+"), "removed")
    return str(made.to_str())
