"""Optional parts of Penstock, and the commands that install them."""

from __future__ import annotations

import re
import sys

_REQUIREMENT = re.compile(r"(?P<needed>[^;]+);.*\bextra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")


def install_command(extra: str) -> str:
    """Return the command that installs what an extra needs.

    It names the packages: ``pip install 'penstock[extra]'`` works only where an index has Penstock, and
    ``pip install '.[extra]'`` only in a clone.
    """
    # Imported for the message: every command that opens a store loads this module.
    import importlib.metadata
    import shlex

    try:
        listed = importlib.metadata.requires("penstock") or ()
    except importlib.metadata.PackageNotFoundError:
        listed = ()
    found = map(_REQUIREMENT.fullmatch, listed)
    needed = [match["needed"].strip() for match in found if match and match["extra"] == extra]
    # Without metadata this is an unpacked source tree.
    return f"pip install {shlex.join(needed or [f'.[{extra}]'])}"


def install_remedy(extra: str) -> str:
    """Return a remedy that names the command and the Python environment it is meant for."""
    return f"Install it with `{install_command(extra)}`, in the environment {sys.prefix}."
