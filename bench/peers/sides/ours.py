"""Penstock, with its defaults on every store."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from bench.peers import contract, work
from bench.peers.contract import Command, Payload, Side
from penstock import Penstock, config


def _url(url: str) -> str:
    scheme = urlsplit(url).scheme
    return {"redis": f"{url}?name=bench", "postgresql": url}.get(scheme, f"sqlite:///{url}/queue.db")


app = Penstock(
    settings=config.load(
        {
            "PENSTOCK_URL": _url(contract.store_url()),
            "PENSTOCK_STATE": str(contract.place() / "state"),
        }
    )
)
app.function("run")(work.run)


class Ours(Side):
    async def one(self, payload: Payload) -> None:
        app.call("run", payload)

    async def many(self, payloads: Sequence[Payload]) -> None:
        app.call_many([{"name": "run", "payload": payload} for payload in payloads])

    async def close(self) -> None:
        app.close()

    def workers(self, count: int) -> list[Command]:
        return [contract.module("penstock", "worker", "--app", f"{__name__}:app", "--processes", str(count))]


SIDE = Ours
