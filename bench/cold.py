"""``python -m bench.cold``: CPU time of short commands, next to ``python -c "import numpy"``.

User and system time of the command and everything it started. The commands run in turns, so that other load
on the machine meets all of them alike; the ratio is the result. Modules are compiled beforehand, as an
installation has them. ``--write`` renews the table in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import page_section

UNIT = 'python -c "import numpy"'
GOALS: Mapping[str, float] = {
    "penstock status": 0.20 / 0.11,
    'penstock search "water"': 0.35 / 0.11,
    'penstock note "…"': 0.45 / 0.11,
    "penstock index FILE, unchanged": 0.60 / 0.11,
}
"""Highest ratio of each command: the seconds wanted on a machine where the import takes 0.11 s."""


def measure(rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each command in each round, in one order. The first round is not counted."""
    with tempfile.TemporaryDirectory() as below:
        place = Path(below)
        environment = _environment(place)
        file = place / "mill.md"
        file.write_text("# Mill\n\nThe mill takes in water through the gate.\n")
        spent: dict[str, list[float]] = {UNIT: [], **{name: [] for name in GOALS}}
        for number in range(rounds + 1):
            ours = ["status"], ["search", "water"], ["note", f"Note {number} on the gate."], ["index", file]
            commands = [["-c", "import numpy"], *(["-m", "penstock", *map(str, each)] for each in ours)]
            for name, command in zip(spent, commands, strict=True):
                seconds = _cpu([sys.executable, *command], environment)
                if number:
                    spent[name].append(seconds)
    return spent


def _environment(place: Path) -> dict[str, str]:
    dropped = ("PENSTOCK_", "AGENT_BRAIN_", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"PENSTOCK_STATE": str(place / "state"), "PYTHONPYCACHEPREFIX": str(place / "compiled")}


def _cpu(command: Sequence[str], environment: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rendered(spent: Mapping[str, Sequence[float]]) -> str:
    unit = spent[UNIT]
    rows = [[f"`{UNIT}`", f"{statistics.median(unit):.3f}", "1.0", "", ""]]
    for name, goal in GOALS.items():
        ratios = sorted(ours / one for ours, one in zip(spent[name], unit, strict=True))
        rows.append(
            [
                f"`{name}`",
                f"{statistics.median(spent[name]):.3f}",
                f"{statistics.median(ratios):.1f}",
                f"{ratios[0]:.1f} to {ratios[-1]:.1f}",
                f"{goal:.1f}",
            ]
        )
    header = ["command", "CPU seconds, median", "ratio, median", "ratios", "goal, at most"]
    return page_section.table(header, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cold", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="rounds that count (15)")
    parser.add_argument("--write", action="store_true", help="renew the table in docs/benchmarks.md")
    options = parser.parse_args(arguments)
    spent = measure(options.rounds)
    table = rendered(spent)
    print(table)
    if options.write:
        day = datetime.now(UTC).date()
        page_section.renew("cold commands", f"{day}, {options.rounds} rounds:\n\n{table}")
    unit = spent[UNIT]
    ratios = {name: [a / b for a, b in zip(spent[name], unit, strict=True)] for name in GOALS}
    return int(any(statistics.median(ratios[name]) > goal for name, goal in GOALS.items()))


if __name__ == "__main__":
    raise SystemExit(main())
