"""Messages and status hashes of the Redis contract, read from the lists and hashes of another program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import redis

from penstock.errors import ImportRefused, InvalidMessage, StoreError, StoreUnavailable
from penstock.legacy.mappings import HASHES, IN_LIST, LegacyRow
from penstock.redis_contract.lists import GATEWAYS, QUEUE
from penstock.redis_contract.messages import decode
from penstock.store_url import StoreUrl

_READ_AT_ONCE = 500
_TIMEOUT_S = 10.0
_RETIRED_PREFIX = "retired:"
_HASH_PREFIX = f"{HASHES}:"


class RedisSource:
    """All lists below ``rag:ingest:queue`` and all hashes of jobs; those set aside have a prefix."""

    def __init__(self, url: str) -> None:
        store = StoreUrl(url)
        self.shown = store.masked
        self._store = store
        self._prefix = ""
        try:
            self._server: Any = redis.Redis.from_url(
                url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S
            )
        except ValueError as error:
            raise ImportRefused(
                f"{self.shown}: {store.mask_in(str(error))}", remedy="Write redis://HOST:PORT/DATABASE."
            ) from None
        address = self._server.connection_pool.connection_kwargs
        place = address.get("path") or f"{address.get('host')}:{address.get('port')}"
        self.identity = f"redis://{place}/{address.get('db') or 0}"
        with self._errors():
            self._lists, self._hashes = self._found()
            if not self._lists and not self._hashes:
                self._prefix = _RETIRED_PREFIX
                self._lists, self._hashes = self._found()
        if not self._lists and not self._hashes:
            raise ImportRefused(
                f"{self.shown} has no list {QUEUE} and no status of a job",
                remedy="Check the server and the number of the database at the end of its URL.",
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except redis.exceptions.ResponseError as error:
            raise StoreError(f"{self.shown}: {self._store.mask_in(str(error))}") from error
        except (redis.exceptions.RedisError, OSError) as error:
            text = self._store.mask_in(" ".join(str(error).split()))
            raise StoreUnavailable(f"{self.shown} cannot be reached ({text})") from error

    def _found(self) -> tuple[list[str], int]:
        lists = sorted(
            key.removeprefix(self._prefix)
            for key in self._keys(f"{self._prefix}{QUEUE}*")
            if self._server.type(key) == b"list"
        )
        return lists, sum(1 for _ in self._job_ids())

    def _keys(self, pattern: str) -> Iterator[str]:
        for key in self._server.scan_iter(match=pattern, count=_READ_AT_ONCE):
            yield key.decode("utf-8", "surrogateescape")

    def _job_ids(self) -> Iterator[str]:
        for key in self._keys(f"{self._prefix}{_HASH_PREFIX}*"):
            job_id = key.removeprefix(self._prefix).removeprefix(_HASH_PREFIX)
            if not job_id.endswith(":ttl"):
                yield job_id

    def count(self) -> int:
        with self._errors():
            return self._hashes + sum(int(self._server.llen(self._prefix + key)) for key in self._lists)

    def rows(self) -> Iterator[LegacyRow]:
        with self._errors():
            listed: dict[str, str] = {}
            for key in self._lists:
                yield from self._messages(key, listed)
            seen: set[str] = set()
            for job_id in self._job_ids():
                # A scan may return a key twice.
                if job_id not in seen:
                    seen.add(job_id)
                    yield self._status(job_id, listed.get(job_id))

    def _messages(self, key: str, listed: dict[str, str]) -> Iterator[LegacyRow]:
        """The messages of a list, oldest first: producers push to the left."""
        length = self._server.llen(self._prefix + key)
        taken = 0
        while taken < length:
            last = length - 1 - taken
            first = max(last - _READ_AT_ONCE + 1, 0)
            found = self._server.lrange(self._prefix + key, first, last)
            for raw in reversed(found):
                taken += 1
                yield _message(key, taken, raw, listed)
            if not found:
                return

    def _status(self, job_id: str, in_list: str | None) -> LegacyRow:
        key = f"{self._prefix}{_HASH_PREFIX}{job_id}"
        kind = self._server.type(key)
        if kind == b"string":
            return _json_status(job_id, self._server.get(key) or b"", in_list)
        if kind != b"hash":
            return LegacyRow(HASHES, job_id, fault=f"expected a hash, got a {kind.decode()}")
        found = {
            name.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape")
            for name, value in self._server.hgetall(key).items()
        }
        return LegacyRow(HASHES, job_id, found | ({IN_LIST: in_list} if in_list else {}))

    def retire(self) -> list[str]:
        if not self._prefix:
            with self._errors():
                for key in self._all_keys():
                    self._server.rename(key, _RETIRED_PREFIX + key)
            self._prefix = _RETIRED_PREFIX
        return self._names()

    def drop(self) -> list[str]:
        with self._errors():
            for key in self._all_keys():
                self._server.delete(key)
        return self._names()

    def _all_keys(self) -> list[str]:
        """The lists, the hashes and the markers beside them; refused while a gateway works on them."""
        if not self._prefix and self._server.exists(GATEWAYS):
            raise ImportRefused(
                f"a gateway of Penstock serves {self.shown}", remedy="Stop the gateway, then try again."
            )
        # Found before the first change: a scan may miss keys that are renamed meanwhile.
        return [*(self._prefix + key for key in self._lists), *self._keys(f"{self._prefix}{_HASH_PREFIX}*")]

    def _names(self) -> list[str]:
        shown = [self._prefix + key for key in self._lists]
        return shown + ([f"{self._prefix}{_HASH_PREFIX}*"] if self._hashes else [])

    def close(self) -> None:
        self._server.close()


def _message(key: str, number: int, raw: bytes, listed: dict[str, str]) -> LegacyRow:
    place = f"message {number}"
    try:
        found = decode(raw)
    except InvalidMessage as error:
        return LegacyRow(key, place, fault=error.message)
    job_id = found.get("job_id")
    if not isinstance(job_id, str) or not job_id:
        return LegacyRow(key, place, fault="field 'job_id' is missing")
    # The same id again: the first message stands for both.
    again = job_id in listed
    listed.setdefault(job_id, key)
    return LegacyRow(key, f"{job_id} ({place})" if again else job_id, found)


def _json_status(job_id: str, raw: bytes, in_list: str | None) -> LegacyRow:
    try:
        found = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return LegacyRow(HASHES, job_id, fault=f"not JSON: {error}")
    return LegacyRow(HASHES, job_id, found | ({IN_LIST: in_list} if in_list else {}))
