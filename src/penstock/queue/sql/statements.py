"""SQL lives in files: blocks that begin with ``-- name: xyz``, with the column lists filled in."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from penstock.job import Claim, Job

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)

JOB_COLUMNS = Job.__struct_fields__
CLAIM_COLUMNS = tuple(name for name in Claim.__struct_fields__ if name != "lease_until")

FIXED_COLUMNS = frozenset(
    "queue_id item_type tenant_id collection branch created_at idempotency_key dedupe submitted_by "
    "lock_key parent_id parent_run root_id".split()
)
"""Columns that say which row it is; no rule changes them."""

CHANGING_COLUMNS = tuple(name for name in JOB_COLUMNS if name not in FIXED_COLUMNS)


@cache
def load(dialect: str) -> dict[str, str]:
    """Every statement of a dialect by name."""
    lists = {
        "job": ", ".join(JOB_COLUMNS),
        "values": ", ".join("?" for _ in JOB_COLUMNS),
        # As it will be once taken.
        "claim": ", ".join(CLAIM_COLUMNS).replace("claim_number", "claim_number + 1"),
        "changing": ", ".join(f"{name} = ?" for name in CHANGING_COLUMNS),
    }
    statements: dict[str, str] = {}
    for file in sorted(files(__package__).joinpath("queries", dialect).iterdir(), key=lambda f: f.name):
        _, *blocks = _NAME.split(file.read_text(encoding="utf-8"))
        for name, text in zip(blocks[::2], blocks[1::2], strict=True):
            if name in statements:
                raise AssertionError(f"{dialect} has two statements named {name}")
            statements[name] = text.strip().format(**lists)
    return statements


def migrations(dialect: str) -> list[tuple[int, str]]:
    """Numbered schema changes, oldest first."""
    folder = files(__package__).joinpath("migrations", dialect)
    found = sorted(folder.iterdir(), key=lambda file: file.name)
    return [
        (int(file.name[:4]), file.read_text(encoding="utf-8")) for file in found if file.name[:4].isdigit()
    ]
