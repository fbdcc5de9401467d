"""A Redis that is away: asked now and then, and each outage told once."""

from __future__ import annotations

import redis
from structlog.testing import capture_logs

from leman_executor.coordination.redis_clients import Breaker


class Store:
    """Answers, or fails, and counts how often it was asked."""

    def __init__(self) -> None:
        self.away = False
        self.asked = 0

    def ask(self) -> str:
        self.asked += 1
        if self.away:
            raise redis.ConnectionError("refused")
        return "answer"


def test_each_outage_is_told_once_and_its_end_too():
    now, store = [0.0], Store()
    breaker = Breaker(1.0, lambda: now[0])

    def call() -> str:
        return breaker.call(store.ask, lambda: "fallback")

    with capture_logs() as told:
        for outage in (1, 2):
            store.away = True
            assert [call(), call()] == ["fallback", "fallback"]
            now[0] += 2
            assert call() == "fallback"  # asked again, without success
            store.away = False
            assert call() == "fallback"  # not asked: it failed a moment ago
            now[0] += 2
            assert [call(), call()] == ["answer", "answer"]
            assert store.asked == 4 * outage
    assert [line["log_level"] for line in told] == ["warning", "info"] * 2
