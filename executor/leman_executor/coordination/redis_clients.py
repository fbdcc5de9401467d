"""Redis clients with short timeouts and metrics, and a circuit breaker.

A client does not retry. With the breaker, an unresponsive Redis costs one short timeout every second, not one for each
call.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import redis
import redis.asyncio as aioredis
import structlog
from redis.exceptions import NoScriptError, RedisError

from leman_core.telemetry import instruments
from leman_core.telemetry.instruments import Attributes

_ASYNC_TIMEOUT_SECONDS = 0.5
_LOOK_TIMEOUT_SECONDS = 0.25


class _Client(redis.Redis):
    def execute_command(self, *args: Any, **options: Any) -> Any:
        with _measured(str(args[0])):
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


class _AsyncClient(aioredis.Redis):
    async def execute_command(self, *args: Any, **options: Any) -> Any:
        with _measured(str(args[0])):
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


def connect(url: str, timeout_seconds: float) -> redis.Redis:
    """Return a client that gives up after `timeout_seconds` and does not retry."""
    return _Client.from_url(url, socket_timeout=timeout_seconds, socket_connect_timeout=timeout_seconds, retry=None)


def connect_async(url: str) -> aioredis.Redis:
    """Return a client for an event loop that gives up after half a second."""
    seconds = _ASYNC_TIMEOUT_SECONDS
    return _AsyncClient.from_url(url, socket_timeout=seconds, socket_connect_timeout=seconds)


def show_memory(url: str) -> None:
    """Export Redis's memory use as a metric of this process, queried at each scrape.

    While Redis is unreachable, or if its user may not call INFO, no value is exported.

    Args:
        url: The URL of Redis. If empty, nothing is exported.
    """
    if not url:
        return
    timeout = _LOOK_TIMEOUT_SECONDS
    # This client is not measured, because a scrape is not a call of a job.
    client = redis.Redis.from_url(url, socket_timeout=timeout, socket_connect_timeout=timeout, retry=None)

    def look() -> list[tuple[float, Attributes]]:
        try:
            known: Any = client.info("memory")
        except (RedisError, OSError):
            return []
        shown = {"used": known["used_memory"], "limit": known.get("maxmemory", 0)}
        return [(float(size), {instruments.MEMORY: kind}) for kind, size in shown.items()]

    instruments.REDIS_MEMORY.show(look)


@contextlib.contextmanager
def _measured(command: str) -> Iterator[None]:
    begun, failure = time.perf_counter(), ""
    try:
        yield
    except NoScriptError:  # the client then sends the script
        raise
    except (RedisError, OSError) as error:
        failure = type(error).__name__
        instruments.REDIS_FAILURES.add(1)
        raise
    finally:
        told = {instruments.DB_SYSTEM: "redis", instruments.DB_OPERATION: command}
        told |= {instruments.ERROR_TYPE: failure} if failure else {}
        instruments.REDIS_DURATION.record(time.perf_counter() - begun, told)


_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


class Breaker:
    """After a failed call, answer all calls with their fallback for `pause_seconds`."""

    def __init__(self, pause_seconds: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause = pause_seconds
        self._clock = clock
        #: The time from which calls try Redis again.
        self._asked_from = 0.0
        self._away = False

    def call(self, operation: Callable[[], _T], fallback: Callable[[], _T]) -> _T:
        """Return the result of `operation` or, if Redis is or recently was unreachable, of `fallback`."""
        if self._clock() < self._asked_from:
            return fallback()
        try:
            answer = operation()
        except (redis.RedisError, OSError) as error:
            if not self._away:
                _log.warning("redis cannot be reached, continuing without it", error=str(error))
            self._away, self._asked_from = True, self._clock() + self._pause
            return fallback()
        if self._away:
            _log.info("redis can be reached again")
        self._away = False
        return answer
