"""Fields of the settings: declaration of a setting, those of OCR, embedding endpoints and server."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from penstock import setting_types as types
from penstock.setting_types import ProjectRule

DERIVED = "(derived)"
"""Default of a setting that ``config.combine`` computes."""
_SECRET = frozenset([types.URL, types.CATALOG_URL, types.VECTOR_STORE, types.GRAPH_STORE, types.SECRET])
"""Types with values that may hold a password."""


@dataclasses.dataclass(frozen=True, init=False, repr=False, eq=False)
class SettingValues:
    """The methods of a dataclass of settings, written once.

    To generate them for a hundred fields takes each command 7 ms.
    """

    def __init__(self, **values: Any) -> None:
        fields = dataclasses.fields(self)
        if unknown := values.keys() - {field.name for field in fields}:
            raise TypeError(f"no such setting: {', '.join(sorted(unknown))}")
        for field in fields:
            if field.name not in values:
                if field.default_factory is dataclasses.MISSING:
                    raise TypeError(f"setting {field.name} has no value")
                values[field.name] = field.default_factory()
        self.__dict__.update(values)

    def __repr__(self) -> str:
        shown = (field.name for field in dataclasses.fields(self) if field.repr)
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        compared = (field.name for field in dataclasses.fields(self) if field.compare)
        return all(getattr(self, name) == getattr(other, name) for name in compared)

    __hash__ = None  # type: ignore[assignment]


def setting(
    setting_type: types.SettingType,
    default: object,
    doc: str,
    *,
    aliases: tuple[str, ...] = (),
    env: str = "",
    shown: str = "",
    project: ProjectRule = "trusted",
) -> Any:
    """Declare a setting. ``shown``: the default in words; ``project``: see ``Setting.project``."""
    metadata = {
        "type": setting_type,
        "doc": doc,
        "aliases": aliases,
        "env": env,
        "shown": shown or _shown(default),
        "project": project,
    }
    shown_in_repr = setting_type not in _SECRET
    if default is DERIVED:
        return dataclasses.field(metadata=metadata, repr=shown_in_repr)
    return dataclasses.field(default_factory=lambda: default, metadata=metadata, repr=shown_in_repr)


def _shown(default: object) -> str:
    if isinstance(default, float):
        return f"{default:g}"
    if isinstance(default, Mapping) or default is None:
        return "none"
    return str(default).lower() if isinstance(default, bool) else str(default)


OCR = setting(
    types.SWITCH,
    True,
    "When false, no text is recognized: pages that are pictures fail with `ERR_NO_TEXT`.",
)
OCR_LANGUAGES = setting(
    types.LANGUAGES, "eng", "Languages of pictures, as Tesseract calls them; the first one weighs most."
)
OCR_TESSDATA_DIR = setting(
    types.DIRECTORY, None, "Directory with models of further languages (`.traineddata` files)."
)
OCR_DPI = setting(types.whole(72, 600), 300, "Resolution at which pages are drawn to recognize their text.")
OCR_MIN_CONFIDENCE = setting(
    types.percent(),
    72.0,
    "Mean confidence below which rapidocr reads the page too, if it is installed.",
)
OCR_ENDPOINT_URL = setting(
    types.URL,
    None,
    "Vision endpoint, compatible with OpenAI's, that reads pictures instead of Tesseract.",
)
OCR_ENDPOINT_MODEL = setting(types.TEXT, "dots.ocr", "Model of the vision endpoint.")
OCR_ENDPOINT_KEY = setting(types.SECRET, None, "Key of the vision endpoint.")
OCR_ENDPOINT_TIMEOUT_S = setting(
    types.seconds(1, 3600), 120.0, "Maximum wait for the vision endpoint to read one page."
)
OCR_WORKERS = setting(
    types.whole_or_none(1, 256),
    None,
    "Processes of a worker that recognize text at the same time; the others read text meanwhile.",
    shown="half of the processes, at least one",
)
PAGES_DIR = setting(
    types.DIRECTORY,
    None,
    "Directory to which the Markdown of each page with recognized text is written, besides the catalog.",
)

EMBEDDER = setting(types.EMBEDDER, "static", "Embedding model.")
MODELS_DIR = setting(
    types.DIRECTORY,
    DERIVED,
    "Directory of installed models.",
    shown="$XDG_DATA_HOME/penstock/models, else ~/.local/share/penstock/models",
)
VECTOR_STORE = setting(
    types.VECTOR_STORE,
    "default",
    "Store in which vectors are searched: the catalog by default; others hold a copy of its vectors.",
)
VECTOR_STORE_TIMEOUT_S = setting(
    types.seconds(0.1, 600), 10.0, "Maximum wait for the answer of a vector store that is not the catalog."
)
USEARCH_FROM = setting(
    types.whole(1, 1_000_000_000),
    200_000,
    "Chunks of a tenant from which workers build a usearch index, if the extra is installed.",
)
FASTEMBED_MODEL = setting(
    types.TEXT,
    "BAAI/bge-small-en-v1.5",
    "Model of the embedder `fastembed`: a name of its list, or the absolute path of a model's directory.",
)
FASTEMBED_POOLING = setting(
    types.lower_word("auto", "mean", "cls", "last", "none"),
    "auto",
    "Pooling of a fastembed model in a directory; `auto` takes it from the files of the model.",
)
EMBED_ENDPOINT_URL = setting(
    types.URL, None, "Embedding endpoint, compatible with OpenAI's, for the embedder `endpoint`."
)
EMBED_ENDPOINT_MODEL = setting(types.TEXT, "text-embedding-3-small", "Model of the embedding endpoint.")
EMBED_ENDPOINT_KEY = setting(types.SECRET, None, "Key of the embedding endpoint.")
EMBED_ENDPOINT_DIMENSION = setting(types.whole(1, 16_384), 1536, "Length of the vectors of that model.")
EMBED_ENDPOINT_BATCH = setting(types.whole(1, 2048), 64, "Texts in one call to the embedding endpoint.")
EMBED_ENDPOINT_TIMEOUT_S = setting(
    types.seconds(0.1, 3600), 30.0, "Maximum wait for the answer of the embedding endpoint."
)
EMBED_ENDPOINT_CALLS = setting(
    types.whole(1, 256),
    4,
    "Calls to the embedding endpoint at the same time, by all processes on this machine.",
)
EMBED_ENDPOINT_PER_MINUTE = setting(
    types.whole_or_none(1, 1_000_000),
    None,
    "Calls to the embedding endpoint in a minute, by all processes on this machine.",
)
EMBED_ENDPOINT_TOKENS = setting(
    types.whole_or_none(1, 10**15),
    None,
    "Tokens of one tenant that are sent to the embedding endpoint in a calendar month; then its chunks fail.",
)
RERANK_ENDPOINT_URL = setting(
    types.URL, None, "Re-ranking endpoint, compatible with Cohere's, that orders the best hits of a search."
)
RERANK_ENDPOINT_MODEL = setting(types.TEXT, "BAAI/bge-reranker-v2-m3", "Model of the re-ranking endpoint.")
RERANK_ENDPOINT_KEY = setting(types.SECRET, None, "Key of the re-ranking endpoint.")
RERANK_ENDPOINT_TIMEOUT_S = setting(
    types.seconds(0.1, 3600), 5.0, "Maximum wait of a search for the re-ranking endpoint."
)

GRAPH = setting(
    types.SWITCH,
    False,
    "Extract entities and relations of documents, as `penstock index --graph` does.",
)
GRAPH_ENDPOINT_URL = setting(
    types.URL,
    None,
    "Chat endpoint, compatible with OpenAI's, whose model extracts the entities of prose instead of rules.",
)
GRAPH_ENDPOINT_MODEL = setting(types.TEXT, "gpt-4o-mini", "Model of the graph endpoint.")
GRAPH_ENDPOINT_KEY = setting(types.SECRET, None, "Key of the graph endpoint.")
GRAPH_ENDPOINT_TIMEOUT_S = setting(
    types.seconds(0.1, 3600), 120.0, "Maximum wait for the answer of the graph endpoint."
)
GRAPH_ENDPOINT_CALLS = setting(
    types.whole(1, 64), 4, "Calls to the graph endpoint at the same time, by all processes on this machine."
)
GRAPH_ENDPOINT_PER_MINUTE = setting(
    types.whole_or_none(1, 1_000_000),
    None,
    "Calls to the graph endpoint in a minute, by all processes on this machine.",
)
GRAPH_ENDPOINT_TOKENS = setting(
    types.whole_or_none(1, 10**15),
    None,
    "Tokens of one tenant that the graph endpoint may charge in a calendar month; then its chunks fail.",
)
GRAPH_STORE = setting(
    types.GRAPH_STORE,
    "default",
    "Store that `penstock graph` reads. With `default` it is the catalog; Neo4j holds a copy of its graph.",
)
GRAPH_STORE_TIMEOUT_S = setting(
    types.seconds(0.1, 600), 30.0, "Maximum wait for the answer of a graph store that is not the catalog."
)
POSTGRES_POOL_SIZE = setting(
    types.whole(1, 1000),
    4,
    "Maximum number of connections in each PostgreSQL pool of a process: queue, catalog reads and writes.",
)
POSTGRES_POOLER = setting(
    types.SWITCH,
    False,
    "True behind a pooler in transaction mode: no prepared statements, no LISTEN.",
)
POSTGRES_TIMEOUT_S = setting(
    types.seconds(0, 3600),
    60.0,
    "Timeout of one PostgreSQL statement, and of the wait for a connection; 0 is no limit.",
)
ROOTS = setting(
    types.DIRECTORIES,
    (),
    "Folders whose files the server may index.",
    shown="the folder in which the server was started",
)
ALLOW_EXTERNAL = setting(
    types.SWITCH, False, "When true, a request to the server with `allow_external` may name any path."
)
ALLOW_WEB = setting(
    types.SWITCH, False, "When true, requests to the server may name web pages, which its workers then fetch."
)
WEB_PRIVATE = setting(
    types.SWITCH,
    False,
    "When true, web pages of private, loopback and other reserved network addresses are fetched as well.",
)
WEB_DELAY_S = setting(
    types.seconds(0, 3600), 0.5, "Least time between two requests of this machine to one web server."
)
WEB_TIMEOUT_S = setting(
    types.seconds(0.1, 3600), 60.0, "Maximum time to fetch one web page, redirects included."
)
WEBHOOK_KEY = setting(
    types.SECRET, None, "Secret that signs webhooks: text of 16 bytes or more, or `whsec_` and base64."
)
WEBHOOK_KEY_FILE = setting(
    types.FILE,
    None,
    "File with that secret; instead of PENSTOCK_WEBHOOK_KEY. It is read for each webhook.",
)
WEBHOOK_PRIVATE = setting(
    types.SWITCH,
    False,
    "When true, webhooks are sent to private, loopback and other reserved network addresses as well.",
)
HOSTS = setting(
    types.HOSTS,
    (),
    "Names of the server, which requests may have in their Host header.",
    shown="localhost, and IP addresses",
)
PROXIES = setting(
    types.NETWORKS,
    (),
    "Addresses of reverse proxies, whose X-Forwarded-For names the sender of a request; this machine always.",
    shown="this machine",
)
RATE_LIMIT = setting(
    types.whole_or_none(1, 1_000_000_000), 6_000, "Requests in a minute that the server accepts from one key."
)
SERIAL = setting(
    types.SWITCH,
    False,
    "When true, jobs for paths run one at a time in each collection, in order. For submissions and workers.",
)
MAX_PAYLOAD_BYTES = setting(
    types.whole(1, 1_000_000_000), 4 * 1024 * 1024, "Maximum size of a payload, as JSON text."
)
RAG_AWAY_S = setting(
    types.seconds(0, 365 * 86_400),
    86_400.0,
    "Time that messages wait for a RAG no gateway serves; then they are refused.",
)
TIME_ZONE = setting(types.ZONE, "UTC", "Time zone of new schedules that name none.")
LOG_FORMAT = setting(
    types.lower_word("text", "json"), "text", "Form of the log of workers and servers: lines of text or JSON."
)
METRICS_PUBLIC = setting(types.SWITCH, False, "When true, `GET /metrics` of the server needs no key.")
SERVER = setting(types.SERVER, None, "URL of a server through which commands work, instead of the stores.")
API_KEY = setting(types.SECRET, None, "Key for the server that commands use.")
API_KEY_FILE = setting(
    types.FILE, None, "File with that key, which only its owner may read; instead of PENSTOCK_API_KEY."
)
UPLOADS_DIR = setting(
    types.DIRECTORY,
    None,
    "Directory for files uploaded to the server; by default in the state directory. Workers have to see it.",
)
UPLOAD_QUOTA_MB = setting(
    types.whole_or_none(1, 1_000_000_000),
    10_240,
    "Maximum size in MB of all files that one tenant has uploaded; more are refused until some are removed.",
)
BODY_LIMIT_MB = setting(
    types.whole(1, 1_000), 8, "Maximum size in MB of the body of a request to the server."
)
