"""The embedder fastembed: ONNX models of the fastembed library, downloaded by name or from a directory."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import InvalidSetting, ModelDamaged, ModelUnavailable
from penstock.extensions import install_remedy
from penstock.strict_json import fingerprint

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


NAME = "fastembed"
_INSTALL = "Run `penstock models install fastembed`."
POOLINGS = {"mean": "MEAN", "cls": "CLS", "last": "LAST_TOKEN", "none": "DISABLED"}
"""Poolings of a model in a directory, with their names in fastembed."""
MAX_CHARACTERS = 100_000
"""Beginning of a text that is split into tokens. No model of fastembed has so long a context."""
_TOKEN_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_GRAPHS = ("onnx/model.onnx", "model.onnx", "model_optimized.onnx", "onnx/model_quantized.onnx")


class FastembedOptions(msgspec.Struct, frozen=True):
    """A model: the name in fastembed, or the path of a directory, with the pooling."""

    model: str = "BAAI/bge-small-en-v1.5"
    pooling: str = "auto"

    @property
    def directory(self) -> Path | None:
        path = Path(self.model).expanduser()
        return path if path.is_absolute() else None


class _PoolingFile(msgspec.Struct):
    """The file ``1_Pooling/config.json`` of sentence-transformers."""

    pooling_mode_cls_token: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_lasttoken: bool = False


class _Loaded(msgspec.Struct, frozen=True):
    model: Any
    dimension: int
    fingerprint: str


class FastembedEmbedder:
    """Embeds one text at a time, on one thread, so a text has the same vector alone and in a batch."""

    name = NAME

    def __init__(self, options: FastembedOptions, models_dir: Path) -> None:
        """Raises InvalidSetting if fastembed or the model is not installed. Nothing is loaded yet."""
        if find_spec("fastembed") is None:
            raise InvalidSetting(
                "embedder = 'fastembed': fastembed is not installed", remedy=install_remedy("fastembed")
            )
        self._options = options
        self._files = find_files(options, models_dir)
        self._lock = threading.Lock()
        self._cached: _Loaded | None = None

    @property
    def dimension(self) -> int:
        return self._loaded().dimension

    @property
    def fingerprint(self) -> str:
        return self._loaded().fingerprint

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        import numpy as np

        loaded = self._loaded()
        vectors = np.zeros((len(texts), loaded.dimension), dtype=np.float32)
        for row, text in enumerate(texts):
            text = re.sub("[\ud800-\udfff]", "\ufffd", text[:MAX_CHARACTERS])
            if re.search(r"[^\W_]", text):
                with self._lock:
                    vectors[row] = self._vector(loaded.model, text)
        return vectors

    def _vector(self, model: Any, text: str) -> npt.NDArray[np.float32]:
        import numpy as np

        try:
            (vector,) = model.embed([text], batch_size=1)
        except Exception as error:  # onnxruntime's and tokenizers' errors have no class in common
            raise self._damaged(error) from error
        found: npt.NDArray[np.float32] = np.array(vector, dtype=np.float32)
        length = np.linalg.norm(found)
        if not np.isfinite(length) or not length:
            return np.zeros_like(found)
        found /= length
        return found

    def _loaded(self) -> _Loaded:
        with self._lock:
            if self._cached is None:
                self._cached = self._load()
            return self._cached

    def _load(self) -> _Loaded:
        files = self._files
        try:
            pooling = self._pooling()
            model = _open(self._options, files, pooling)
            if pooling == "auto":
                # Without a word about pooling: the mean, unless the graph has one vector for each text.
                given = model.model.model.get_outputs()[0].shape
                pooling = "mean" if len(given) == 3 else "none"
                model = _open(self._options, files, pooling)
            (probe,) = model.embed(["a"], batch_size=1)
        except InvalidSetting:
            raise
        except Exception as error:  # onnxruntime's and tokenizers' errors have no class in common
            raise self._damaged(error) from error
        made = {
            "files": {name: _digest(path) for name, path in sorted(files.all().items())},
            # Named models are pooled by their class, which differs between versions of fastembed.
            "pooling": pooling or type(model.model).__name__,
            "dimension": len(probe),
        }
        return _Loaded(model, len(probe), fingerprint(made))

    def _pooling(self) -> str:
        """Pooling of a model in a directory: from settings or files. Empty for a named model."""
        if self._options.directory is None:
            return ""
        path = self._files.directory / "1_Pooling" / "config.json"
        if self._options.pooling != "auto" or not path.is_file():
            return self._options.pooling
        said = msgspec.json.decode(path.read_bytes(), type=_PoolingFile)
        modes = [said.pooling_mode_mean_tokens, said.pooling_mode_cls_token, said.pooling_mode_lasttoken]
        named = [name for name, on in zip(POOLINGS, modes, strict=False) if on]
        if len(named) != 1:
            raise InvalidSetting(
                f"embedder = 'fastembed': {path} names a pooling that fastembed does not have",
                remedy=f"Set PENSTOCK_FASTEMBED_POOLING to one of {', '.join(POOLINGS)}.",
            )
        return named[0]

    def _damaged(self, error: Exception) -> ModelDamaged:
        return ModelDamaged(
            f"{self._files.directory}: fastembed cannot use the model: {_cause(error)}",
            remedy="Install the model again, or set PENSTOCK_FASTEMBED_MODEL to another one.",
        )


class ModelFolder(msgspec.Struct, frozen=True):
    """A directory with a model: the graph, and the names of other files of the model."""

    directory: Path
    graph: str
    parts: tuple[str, ...] = ()

    def all(self) -> dict[str, Path]:
        """The files with an effect on the vectors, by name."""
        names = (self.graph, *self.parts, *_TOKEN_FILES)
        return {name: path for name in names if (path := self.directory / name).is_file()}


def find_files(options: FastembedOptions, models_dir: Path) -> ModelFolder:
    """Find the files of a model on this machine. Raises InvalidSetting if they are not here."""
    directory = options.directory
    if directory is None:
        return _downloaded(options, models_dir)
    graph = next((name for name in _GRAPHS if (directory / name).is_file()), None)
    if graph is None:
        others = sorted(path.relative_to(directory).as_posix() for path in directory.glob("**/*.onnx"))
        if len(others) != 1:
            raise InvalidSetting(
                f"embedder = 'fastembed': {directory} has {len(others) or 'no'} .onnx files, expected one",
                remedy="Set PENSTOCK_FASTEMBED_MODEL to a directory with model.onnx and tokenizer.json.",
            )
        (graph,) = others
    begun = (directory / graph).name
    data = (directory / graph).parent.glob(f"{begun}[_.]data*")
    return ModelFolder(directory, graph, tuple(path.relative_to(directory).as_posix() for path in data))


def download(options: FastembedOptions, models_dir: Path) -> Path:
    """Download a named model, unless already present, and return the directory.

    Raises ModelUnavailable with the cause if it cannot be downloaded.
    """
    if options.directory is not None:
        return find_files(options, models_dir).directory
    named = _named(options.model)
    try:
        return _fetch(named, models_dir, local=False)
    except Exception as error:  # errors of the network and of the disk have no class in common
        raise ModelUnavailable(
            f"the model {named.name} cannot be downloaded: {_cause(error)}",
            remedy="Check the network, or copy the model's directory from another machine and set "
            "PENSTOCK_FASTEMBED_MODEL to its absolute path.",
        ) from error


def _downloaded(options: FastembedOptions, models_dir: Path) -> ModelFolder:
    named = _named(options.model)
    try:
        folder = ModelFolder(_fetch(named, models_dir, local=True), named.files[0], named.files[1:])
        if not all((folder.directory / name).is_file() for name in named.files):
            raise FileNotFoundError(folder.directory)
    except Exception as error:  # not in the cache, or only a part of it
        raise InvalidSetting(
            f"embedder = 'fastembed': the model {named.name} is not installed in {models_dir / NAME}",
            remedy=_INSTALL,
        ) from error
    return folder


def _cause(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


class _NamedModel(msgspec.Struct, frozen=True):
    """A model of fastembed's list."""

    name: str
    repository: str
    files: tuple[str, ...]


def _named(name: str) -> _NamedModel:
    """Look a model up in fastembed's list. Raises InvalidSetting for an unknown name."""
    from fastembed import TextEmbedding

    for each in TextEmbedding.list_supported_models():
        if each["model"].lower() == name.lower() and each["sources"]["hf"]:
            files = (each["model_file"], *each["additional_files"])
            return _NamedModel(each["model"], each["sources"]["hf"], files)
    raise InvalidSetting(
        f"embedder = 'fastembed': fastembed has no model {name!r}",
        remedy="Set PENSTOCK_FASTEMBED_MODEL to a name of its list, such as BAAI/bge-small-en-v1.5, or to "
        "the absolute path of a directory.",
    )


def _fetch(named: _NamedModel, models_dir: Path, *, local: bool) -> Path:
    """Directory of a named model, downloaded unless ``local``. Raises errors of the network and the disk."""
    from fastembed import TextEmbedding
    from loguru import logger

    logger.disable("fastembed")  # it reports each file that is not there yet
    cache = models_dir / NAME
    if not local:
        cache.mkdir(parents=True, exist_ok=True)
    found = TextEmbedding.download_files_from_huggingface(
        named.repository, cache_dir=str(cache), extra_patterns=list(named.files), local_files_only=local
    )
    return Path(found)


def _open(options: FastembedOptions, files: ModelFolder, pooling: str) -> Any:
    """Open the model in fastembed. A directory is registered under a name derived from path and pooling."""
    import onnxruntime
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    onnxruntime.disable_telemetry_events()
    name = options.model
    if options.directory is not None:
        name = f"penstock/{pooling}:{files.directory}/{files.graph}"
        if all(name.lower() != each["model"].lower() for each in TextEmbedding.list_supported_models()):
            TextEmbedding.add_custom_model(
                model=name,
                pooling=PoolingType(POOLINGS.get(pooling, "MEAN")),
                normalization=True,
                sources=ModelSource(hf=str(files.directory)),
                dim=1,  # not used: the length of a vector is taken from one
                model_file=files.graph,
                additional_files=list(files.parts),
            )
    return TextEmbedding(
        model_name=name,
        specific_model_path=str(files.directory),
        providers=["CPUExecutionProvider"],
        threads=1,
    )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
