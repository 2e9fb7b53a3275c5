"""Places with a queue and a catalog of some engine, for tests of backups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock import config
from penstock.assembly import Assembly
from penstock.config import Settings
from tests.documents.index_contents import IndexContents, read_index
from tests.servers.stores import given_back, store_url


def settings_of(engine: str, place: Path) -> Settings:
    """Settings of a store below a place."""
    place.mkdir(parents=True, exist_ok=True)
    return config.load({}, url=store_url(engine, place), state_dir=place / "state", embedder="hashing")


@contextmanager
def assembled(settings: Settings) -> Iterator[Assembly]:
    made = Assembly(settings, door="cli")
    try:
        yield made
    finally:
        made.close()


def index_of(settings: Settings, root: Path) -> IndexContents:
    with assembled(settings) as made:
        assert [] == made.catalog.audit()
        return read_index(made.catalog, root)


def give_all_back(place: Path) -> None:
    for each in place.iterdir():
        given_back(each)
