"""``python scripts/install.py ARGUMENTS``: ``pip install`` with one line of progress.

On a terminal the line changes with each step of pip; elsewhere there is one line at the end. If pip fails,
all of its output is printed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time

PIP = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-color")
STEP = re.compile(r"\b(?:Collecting|Downloading|Using cached|Building|Preparing|Installing)\b.*")


def main(arguments: list[str]) -> int:
    began = time.monotonic()
    lines: list[str] = []
    with subprocess.Popen(
        [*PIP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            lines.append(line)
            show(line, time.monotonic() - began)
    if sys.stdout.isatty():
        print("\r\x1b[K", end="")
    if pip.returncode:
        sys.stderr.write("".join(lines))
        return pip.returncode
    installed = sum(len(line.split()) - 2 for line in lines if line.startswith("Successfully installed"))
    number = f"{installed} package{'' if installed == 1 else 's'}" if installed else "nothing new"
    print(f"  {number} installed in {time.monotonic() - began:.0f} s", flush=True)
    return 0


def show(line: str, seconds: float) -> None:
    """Show a step of pip in the last line of the terminal."""
    step = STEP.search(line)
    if step is not None and sys.stdout.isatty():
        text = f"  {seconds:3.0f} s  {step[0].rstrip()}"
        print(f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
