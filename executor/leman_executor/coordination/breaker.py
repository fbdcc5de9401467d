"""A circuit breaker: a Redis that hangs costs one short timeout now and then, instead of one for every call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import redis
import structlog

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


class Breaker:
    """Answers calls with the fallback after a failure, until `pause_seconds` have passed."""

    def __init__(self, pause_seconds: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause = pause_seconds
        self._clock = clock
        #: When Redis is asked again.
        self._asked_from = 0.0
        self._away = False

    def call(self, operation: Callable[[], _T], fallback: Callable[[], _T]) -> _T:
        """Return `operation()`, or `fallback()` where Redis cannot be reached or could not be a moment ago."""
        if self._clock() < self._asked_from:
            return fallback()
        try:
            answer = operation()
        except (redis.RedisError, OSError) as error:
            if not self._away:
                _log.warning("redis cannot be reached, going on without it", error=str(error))
            self._away, self._asked_from = True, self._clock() + self._pause
            return fallback()
        if self._away:
            _log.info("redis can be reached again")
        self._away = False
        return answer
