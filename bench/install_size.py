"""``python -m bench.install_size``: size of a plain installation, and of each extra on top of it.

Builds the wheel, installs it into an empty virtual environment without pip, and adds up the files of each
installed package, as listed in its RECORD; compiled modules included. Needs a package index. ``--write``
renews the tables in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import page_section
from penstock.extensions import EXTRAS

ROOT = Path(__file__).resolve().parent.parent
SHOWN = 12
"""Packages with a line of their own."""


def build(place: Path) -> Path:
    """Build the wheel, with the tools of this environment."""
    _pip("wheel", "--no-deps", "--no-build-isolation", "-w", str(place), str(ROOT))
    (wheel,) = place.glob("penstock-*.whl")
    return wheel


def installed(wheel: Path, place: Path, extra: str = "") -> dict[str, int]:
    """Bytes of each package in a new environment."""
    environment = place / (extra or "plain")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    wanted = f"{wheel}[{extra}]" if extra else str(wheel)
    constraints = ["-c", str(ROOT / "constraints.txt")]
    _pip("--python", str(environment / "bin" / "python"), "install", *constraints, wanted)
    (packages,) = environment.glob("lib/python*/site-packages")
    return {path.name.partition("-")[0]: _listed_bytes(path) for path in packages.glob("*.dist-info")}


def _pip(*arguments: str) -> None:
    quiet = ["-qq", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", *quiet, *arguments], check=True)


def _listed_bytes(dist_info: Path) -> int:
    listed = (line.split(",")[0] for line in (dist_info / "RECORD").read_text().splitlines())
    files = (dist_info.parent / name for name in listed)
    return sum(file.stat().st_size for file in files if file.is_file())


def rendered(plain: dict[str, int], extras: dict[str, int]) -> str:
    largest = sorted(plain.items(), key=lambda item: -item[1])
    shown = [[f"`{name}`", _megabytes(size)] for name, size in largest[:SHOWN]]
    rest = largest[SHOWN:]
    if rest:
        shown.append([f"{len(rest)} more", _megabytes(sum(size for _, size in rest))])
    shown.append(["**plain installation**", f"**{_megabytes(sum(plain.values()))}**"])
    more = [[f"`penstock[{name}]`", f"+{_megabytes(size)}"] for name, size in extras.items()]
    header = ["package", "MB"]
    tables = [page_section.table(header, shown)]
    if more:
        tables.append(page_section.table(["extra", "MB"], more))
    return "\n\n".join(tables)


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.1f}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.install_size", description=__doc__)
    parser.add_argument("--plain", action="store_true", help="leave out the extras")
    parser.add_argument("--write", action="store_true", help="renew the tables in docs/benchmarks.md")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as below:
        place = Path(below)
        wheel = build(place)
        plain = installed(wheel, place)
        total = sum(plain.values())
        extras = {
            extra: sum(installed(wheel, place, extra).values()) - total
            for extra in (each.name for each in EXTRAS)
            if not options.plain
        }
    tables = rendered(plain, extras)
    print(tables)
    if options.write:
        version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
        page_section.renew("install size", f"{datetime.now(UTC).date()}, {version}:\n\n{tables}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
