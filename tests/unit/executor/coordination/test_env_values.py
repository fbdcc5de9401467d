"""The key that values in Redis are encrypted with: its password, wherever the url has it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest
from redis.exceptions import ConnectionError as RedisGone
from structlog.testing import capture_logs

from leman_core.model.service_errors import Unavailable
from leman_executor.coordination.env_values import EnvValues

ENV = {"API_KEY": "a-canary"}


def at(url: str, stored: dict[str, bytes]) -> EnvValues:
    """Values in a Redis that is a dict."""
    values = EnvValues(url)
    client: Any = values._client

    async def store(key: str, value: bytes, **_: Any) -> None:
        stored[key] = value

    client.set, client.get = store, AsyncMock(side_effect=stored.get)
    return values


def done(work: Callable[[], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        return await work()

    return asyncio.run(run())


@pytest.mark.parametrize("url", ["redis://:s%2Fcret@h", "redis://user:s%2Fcret@h", "redis://h?password=s%2Fcret"])
def test_the_key_is_made_of_the_password(url):
    stored: dict[str, bytes] = {}
    done(lambda: at("redis://h?password=s/cret", stored).keep("j", ENV))
    assert done(lambda: at(url, stored).find("j")) == ENV
    assert done(lambda: at("redis://h?password=another", stored).find("j")) is None
    assert done(lambda: at("redis://h", stored).find("j")) is None


@pytest.mark.parametrize(("url", "warnings"), [("redis://h", 1), ("redis://h?password=x", 0)])
def test_a_redis_without_a_password_is_warned_of_once_there_are_values(url, warnings):
    values = at(url, {})
    with capture_logs() as logs:
        done(lambda: values.keep("i", {}))
        assert not logs
        done(lambda: values.keep("j", ENV))
        done(lambda: values.keep("k", ENV))
    assert [entry["log_level"] for entry in logs] == ["warning"] * warnings


def test_a_redis_that_is_away_does_not_count_as_one_without_the_values():
    values = at("redis://h", {})
    client: Any = values._client
    client.get = AsyncMock(side_effect=RedisGone("refused"))
    with pytest.raises(Unavailable, match="Redis could not return the job's environment") as refused:
        done(lambda: values.find("j"))
    assert refused.value.reason == "STORE_UNAVAILABLE"
