"""``python -m bench.small_folder``: CPU time of ``penstock index`` on a small folder, step by step.

The steps: first index, again without a change, with one file edited, with one file deleted. Counted is the
user and system time of the command and of every process it started, while no worker runs. ``--before
CHECKOUT`` runs another checkout in turns; the ratio of both is the result on a busy machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench import page_section
from bench.catalog import texts
from bench.pipeline import counted_run, index_command, small_files

STEPS = ("first", "unchanged", "one edited", "one deleted")
KINDS = ("markdown", "html")
UNIT = 'python -c "import numpy"'


def make_folder(place: Path, kind: str, number: int) -> Path:
    if kind == "html":
        return small_files(place, number)
    folder = place / "notes"
    folder.mkdir()
    for at, chunks in enumerate(texts(number, 2)):
        (folder / f"{at:04}.md").write_text(f"# Note {at}\n\n" + "\n\n".join(chunks) + "\n")
    return folder


def steps(kind: str, number: int, processes: int, environment: Mapping[str, str]) -> Iterator[float]:
    """CPU seconds of each step, with a new folder and a new store."""
    with tempfile.TemporaryDirectory() as below:
        place = Path(below)
        folder = make_folder(place, kind, number)
        command, own = index_command("sqlite", folder, place / "state", processes, "static")

        def indexed(added: int = 0, changed: int = 0, vanished: int = 0) -> float:
            spent = counted_run(command, {**own, **environment})
            result = spent.output["result"]
            assert isinstance(result, dict)
            seen = tuple(result.get(name, 0) for name in ("added", "changed", "vanished"))
            if seen != (added, changed, vanished):
                raise RuntimeError(f"another result than expected: {result}")
            return spent.cpu

        yield indexed(added=number)
        yield indexed()
        files = sorted(folder.iterdir())
        edited = files[number // 2]
        edited.write_text(edited.read_text().replace("a", "the gate of the mill a", 1))
        yield indexed(changed=1)
        files[number // 3].unlink()
        yield indexed(vanished=1)


def measure(options: argparse.Namespace) -> dict[str, list[list[float]]]:
    sides: dict[str, dict[str, str]] = {"Penstock": {}}
    if options.before:
        sides["before"] = {"PYTHONPATH": str(options.before.resolve() / "src")}
    spent: dict[str, list[list[float]]] = {side: [] for side in (*sides, UNIT)}
    for number in range(options.rounds + 1):
        unit = counted_run([sys.executable, "-c", "import numpy"], {}, decoded=False).cpu
        found = {
            side: list(steps(options.kind, options.files, options.processes, environment))
            for side, environment in sides.items()
        }
        if number:
            # The first round compiles modules.
            spent[UNIT].append([unit])
            for side, row in found.items():
                spent[side].append(row)
    return spent


def rendered(spent: Mapping[str, Sequence[Sequence[float]]]) -> str:
    header = ["step", f"`{UNIT}`, s"]
    unit = statistics.median(row[0] for row in spent[UNIT])
    sides = [side for side in spent if side != UNIT]
    header += [f"{side}, s" for side in sides] + (["ratio, median", "ratios"] if len(sides) > 1 else [])
    rows = []
    for at, step in enumerate(STEPS):
        columns = {side: [row[at] for row in spent[side]] for side in sides}
        row = [step, f"{unit:.2f}"] + [f"{statistics.median(columns[side]):.2f}" for side in sides]
        if len(sides) > 1:
            ratios = sorted(a / b for a, b in zip(columns["Penstock"], columns["before"], strict=True))
            row += [f"{statistics.median(ratios):.2f}", f"{ratios[0]:.2f} to {ratios[-1]:.2f}"]
        rows.append(row)
    return page_section.table(header, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.small_folder", description=__doc__)
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--kind", choices=KINDS, default="markdown")
    parser.add_argument("--processes", type=int, default=2, help="as the option of penstock index (2)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (5)")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="another checkout, run in turns")
    print(rendered(measure(parser.parse_args(arguments))))


if __name__ == "__main__":
    main()
