"""The Redis floor: a hand-written Lua loop that changes the same columns of a job's hash and returns bodies.

No dedupe, turns, locks, pause, promotion, fence, counts, order of ids or decoding: a ready list by priority,
leases, and the hash of the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import redis

from bench.server_redis import queue_url
from penstock import clock
from penstock.queue.job import NewJob
from penstock.queue.redis import codec

_ADD = """
local P, ready = KEYS[1], {}
for i, job in ipairs(cmsgpack.unpack(ARGV[1])) do
  redis.call('HSET', P .. 'job:' .. job[1], 'id', job[2], 'row', job[3], 'body', job[4], 'status', 'pending')
  ready[2 * i - 1], ready[2 * i] = job[5], job[1]
end
redis.call('ZADD', P .. 'ready', unpack(ready))
redis.call('PUBLISH', P .. 'bell', '')
"""
_EXCHANGE = """
local P, now, till, held = KEYS[1], ARGV[3], ARGV[4], cmsgpack.unpack(ARGV[1])
for _, id in ipairs(held) do
  redis.call('HSET', P .. 'job:' .. id, 'status', 'done', 'lease', '', 'finished', now, 'updated', now)
end
if #held > 0 then redis.call('ZREM', P .. 'lease', unpack(held)) end
local found, answer, leases = redis.call('ZPOPMIN', P .. 'ready', ARGV[2]), {}, {}
for i = 1, #found, 2 do
  local id = found[i]
  local key = P .. 'job:' .. id
  local raw = redis.call('HMGET', key, 'id', 'row', 'body')
  redis.call('HSET', key, 'status', 'in_progress', 'worker', 'bench', 'lease', till, 'started', now,
    'updated', now)
  redis.call('HINCRBY', key, 'claim', 1)
  answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = id, raw[1], raw[2]
  answer[#answer + 1] = raw[3]
  leases[i], leases[i + 1] = till, id
end
if #leases > 0 then redis.call('ZADD', P .. 'lease', unpack(leases)) end
return answer
"""
_LEASE = timedelta(seconds=300)
_ROW = "x" * 90
"""The columns that neither a claim nor an end changes, as long as the engine packs them."""


class RedisFloor:
    def __init__(self, directory: Path) -> None:
        self._client: Any = redis.Redis.from_url(queue_url(directory).partition("?")[0], protocol=2)
        self._prefix = f"floor:{{{directory.name}}}:"
        self._add = self._client.script_load(_ADD)
        self._exchange = self._client.script_load(_EXCHANGE)
        self._bell: Any = None

    def prepare(self, new: Sequence[NewJob]) -> list[tuple[Any, ...]]:
        return [
            (each.queue_id, codec.new_job(each)[1], _ROW, each.payload_json, 10 - each.priority)
            for each in new
        ]

    def add(self, prepared: Sequence[tuple[Any, ...]]) -> None:
        self._client.execute_command("EVALSHA", self._add, 1, self._prefix, codec.encode(prepared))

    def exchange(self, held: Sequence[str], limit: int) -> list[str]:
        now = clock.now()
        times = (codec.micros(now), codec.micros(now + _LEASE))
        answer = self._client.execute_command(
            "EVALSHA", self._exchange, 1, self._prefix, codec.encode(held), limit, *times
        )
        return [queue_id.decode() for queue_id in answer[::4]]

    def settle(self, held: Sequence[str]) -> None:
        self.exchange(held, 0)

    def wait(self, timeout: float) -> None:
        if self._bell is None:
            # What rang before is not waited for: the caller looks once more first.
            self._bell = self._client.pubsub()
            self._bell.subscribe(self._prefix + "bell")
            self._bell.get_message(timeout=5)
        else:
            self._bell.get_message(timeout=timeout)

    def close(self) -> None:
        if self._bell is not None:
            self._bell.close()
        self._client.close()
