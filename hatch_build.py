"""Build hook: puts the embedding table into the package, taken from the package ``wordllama``.

Penstock needs two files of ``wordllama``, but neither its code nor its dependencies (a model hub's client,
pydantic, a tokenizer library: 70 MB). So the files are copied when Penstock is built, and ``wordllama`` is a
requirement of the build alone. A source distribution contains the files and needs no more.
"""

import hashlib
import importlib.util
import shutil
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

REQUIREMENT = "wordllama==0.4.0.post1"
TABLE = Path("src", "penstock", "pipeline", "embed", "table")
FILES = {
    "weights.safetensors": (
        "weights/l2_supercat_256.safetensors",
        "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
    ),
    "pieces.json": (
        "tokenizers/l2_supercat_tokenizer_config.json",
        "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
    ),
}
"""Names here, names in ``wordllama``, and SHA-256 of the contents."""
LICENSE = "LICENSE"


class CustomBuildHook(BuildHookInterface):
    def dependencies(self) -> list[str]:
        return [] if _is_complete(Path(self.root, TABLE)) else [REQUIREMENT]

    def initialize(self, version: str, build_data: dict[str, object]) -> None:  # noqa: ARG002 - given by hatchling
        table = Path(self.root, TABLE)
        if not _is_complete(table):
            _copy_from_package(table)


def _copy_from_package(table: Path) -> None:
    # find_spec finds the package without running it: its dependencies need not be installed.
    spec = importlib.util.find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        remedy = f"pip install --no-deps {REQUIREMENT}"
        raise SystemExit(f"a build of Penstock without build isolation needs a package more: {remedy}")
    package = Path(spec.submodule_search_locations[0])
    table.mkdir(exist_ok=True)
    for name, (source, checksum) in FILES.items():
        copied = table / f"{name}.new"
        shutil.copyfile(package / source, copied)
        if _sha256(copied) != checksum:
            copied.unlink()
            raise SystemExit(f"{package / source} is not the file of {REQUIREMENT}")
        copied.replace(table / name)
    for notice in package.parent.glob(f"wordllama-*.dist-info/**/{LICENSE}"):
        shutil.copyfile(notice, table / LICENSE)


def _is_complete(table: Path) -> bool:
    present = all((table / name).is_file() for name in (*FILES, LICENSE))
    return present and all(_sha256(table / name) == checksum for name, (_, checksum) in FILES.items())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
