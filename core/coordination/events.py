"""Hints from workers to the executor that runs their job, through a Redis stream. Task results are the truth."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import redis.asyncio as aioredis
import structlog
from redis.exceptions import RedisError

from core.coordination.breaker import Breaker, connect

_log = structlog.get_logger(__name__)
_MAX_LENGTH = 10_000


def stream_key(job_id: str) -> str:
    """Redis key of a job's stream."""
    return f"leman:events:{job_id}"


class SilentSink:
    """Without Redis nobody listens before the results are in."""

    def send(self, payload: bytes) -> None:
        """Does nothing."""


class RedisEventSink:
    """Appends hints to a job's stream; drops them while Redis cannot be reached."""

    def __init__(self, url: str, job_id: str, timeout_seconds: float = 0.25) -> None:
        self._client = connect(url, timeout_seconds)
        self._key = stream_key(job_id)
        self._breaker = Breaker()

    def send(self, payload: bytes) -> None:
        def add() -> None:
            self._client.xadd(self._key, {b"p": payload}, maxlen=_MAX_LENGTH, approximate=True)

        self._breaker.call(add, lambda: None)


class EventReader:
    """Reads one job's stream, in order, until closed. Goes on after Redis was away."""

    def __init__(self, url: str, job_id: str) -> None:
        self._client = aioredis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=0.25)
        self._key = stream_key(job_id)

    async def batches(self) -> AsyncIterator[list[bytes]]:
        """Payloads as they arrive. Ends where Redis cannot be reached: the caller may begin again."""
        last = b"0"
        while True:
            try:
                answer: Any = await self._client.xread({self._key: last}, count=1000, block=1000)
            except (RedisError, OSError) as error:
                _log.debug("no progress hints for now", error=str(error))
                return
            for _key, entries in answer or []:
                last = entries[-1][0]
                yield [fields[b"p"] for _id, fields in entries]

    async def close(self) -> None:
        """Drops the stream and the connection."""
        try:
            await self._client.delete(self._key)
        except (RedisError, OSError) as error:
            _log.debug("stream not dropped", error=str(error))
        await self._client.aclose()
