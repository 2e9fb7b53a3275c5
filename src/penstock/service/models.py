"""Embedding models: available ones, their installation, and the tokens of paid services."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import msgspec

from penstock import clock
from penstock.catalog.protocol import Catalog
from penstock.catalog.values import TokenUse
from penstock.config import Settings
from penstock.errors import InvalidRequest, InvalidSetting
from penstock.extras import install_remedy, is_installed, refuse_missing
from penstock.pipeline.embed import fastembed
from penstock.pipeline.embed.fastembed import FastembedOptions
from penstock.pipeline.embed.minilm import download, model_files

INSTALLABLE = (model_files.NAME, fastembed.NAME)


class ModelState(msgspec.Struct, frozen=True, kw_only=True):
    """An embedder: usable here or not, and the missing parts."""

    name: str
    description: str
    usable: bool
    in_use: bool
    missing: str = ""


class Models:
    """Use cases about embedding models. The catalog is opened only for tokens."""

    def __init__(self, settings: Settings, open_catalog: Callable[[], Catalog]) -> None:
        self._settings = settings
        self._open_catalog = open_catalog

    @property
    def directory(self) -> Path:
        return self._settings.models_dir

    def states(self) -> list[ModelState]:
        """All embedders, the default first."""
        chosen = self._settings.embedder
        url = self._settings.embed_endpoint_url
        found = [
            ("static", "table of word pieces, the default", ""),
            ("minilm", "all-MiniLM-L6-v2 in 8 bits, on onnxruntime", self._missing_of_minilm()),
            (
                "fastembed",
                f"ONNX model of fastembed: {self._settings.fastembed_model}",
                self._missing_of_fastembed(),
            ),
            (
                "endpoint",
                "endpoint compatible with OpenAI's",
                "" if url else "Set PENSTOCK_EMBED_ENDPOINT_URL.",
            ),
            ("hashing", "hashed words, for tests", ""),
        ]
        return [
            ModelState(
                name=name, description=what, usable=not missing, in_use=name == chosen, missing=missing
            )
            for name, what, missing in found
        ]

    def install(self, name: str, source: Path | None, tell: Callable[[str], None]) -> Path:
        """Install a model, from a file or folder if one is given, else from the network.

        Returns the directory. Raises ModelDamaged if the content is not the published one; nothing is
        installed then.
        """
        if name not in INSTALLABLE:
            raise InvalidRequest(f"no model {name!r} to install; there is {', '.join(INSTALLABLE)}")
        if name == fastembed.NAME:
            return self._install_fastembed(source, tell)
        parts = download.read_archive(source) if source else download.download(download.ModelSources(), tell)
        model_files.install(self.directory, parts.weights, parts.vocabulary)
        return self.directory

    def _install_fastembed(self, source: Path | None, tell: Callable[[str], None]) -> Path:
        if source is not None:
            raise InvalidRequest(
                "fastembed: a model in a directory is used from there, and not installed",
                remedy=f"Set PENSTOCK_FASTEMBED_MODEL={source.resolve()}.",
            )
        refuse_missing(fastembed.NAME, "embedder = 'fastembed'")
        options = self._fastembed()
        tell(f"Downloading {options.model} from the model hub")
        return fastembed.download(options, self.directory)

    def token_uses(self, tenant_id: str | None = None, month: str | None = None) -> list[TokenUse]:
        """Tokens of a month (by default this one), by tenant, service and job."""
        with self._open_catalog().snapshot() as snapshot:
            return snapshot.token_uses(tenant_id, month or clock.format_time(clock.now())[:7])

    def _fastembed(self) -> FastembedOptions:
        return FastembedOptions(self._settings.fastembed_model, self._settings.fastembed_pooling)

    def _missing_of_fastembed(self) -> str:
        if not is_installed(fastembed.NAME):
            return install_remedy(fastembed.NAME)
        try:
            fastembed.find_files(self._fastembed(), self.directory)
        except InvalidSetting as error:
            return error.remedy
        return ""

    def _missing_of_minilm(self) -> str:
        if find_spec("onnxruntime") is None:
            return install_remedy("minilm")
        return "" if model_files.is_installed(self.directory) else model_files.INSTALL
