"""Values of jobs' environment variables in a real Redis: kept until the job ends, and not to be read from its data."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis
from cryptography.fernet import Fernet

from leman_core.model.keys import job_key
from leman_core.model.service_errors import Unavailable
from leman_executor.coordination.env_values import EnvFolder, EnvValues, env_values_key
from leman_executor.coordination.leases import JobLeases
from tests.redis_process import RedisProcess

ENV = {"API_KEY": "a-canary-of-the-environment", "EMPTY": ""}
DAY_SECONDS = 86_400


@pytest.fixture
def server(tmp_path):
    with RedisProcess(tmp_path) as running:
        yield running


def use(values: EnvValues, work: Callable[[], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        try:
            return await work()
        finally:
            await values.close()

    return asyncio.run(run())


def test_another_executor_finds_them_until_the_job_ends(server):
    values = EnvValues(server.url)
    leases, client = JobLeases(server.url, "me"), redis.Redis.from_url(server.url)

    async def work() -> None:
        await leases.acquire("j", "/lake")
        await values.keep("j", ENV)
        assert await values.find("j") == ENV
        assert await values.find("k") is None
        assert 0 < client.ttl(env_values_key("j")) <= DAY_SECONDS
        client.expire(env_values_key("j"), 5)
        await values.renew("j", ENV)
        assert client.ttl(env_values_key("j")) > DAY_SECONDS / 2
        client.flushall()
        await values.renew("j", ENV)
        assert await values.find("j") == ENV, "Redis forgot them, and is told again"
        await leases.release("j")
        assert await values.find("j") == ENV, "anyone who takes the job over needs them"
        await leases.release("j", ended=True)
        assert client.keys() == []
        await leases.close()

    use(values, work)
    client.close()


def test_they_are_not_to_be_read_from_what_redis_stores_nor_with_another_password(server):
    values = EnvValues(server.url)
    client = redis.Redis.from_url(server.url)

    async def work() -> None:
        await values.keep("j", ENV)
        assert b"canary" not in client.dump(env_values_key("j"))

    use(values, work)
    client.config_set("requirepass", "another")
    client.close()
    other = EnvValues(server.url.replace("unix://", "unix://:another@"))
    assert use(other, lambda: other.find("j")) is None


def test_without_redis_nothing_is_kept_and_nothing_found(tmp_path):
    none = EnvValues("")

    async def work() -> None:
        await none.keep("j", ENV)
        await none.renew("j", ENV)
        assert await none.find("j") is None

    use(none, work)


def test_a_redis_that_is_away_holds_up_no_job_and_proves_nothing(tmp_path):
    with RedisProcess(tmp_path) as running:
        gone = EnvValues(running.url)

    async def work() -> None:
        await gone.keep("j", ENV)
        await gone.renew("j", ENV)
        with pytest.raises(Unavailable):
            await gone.find("j")

    use(gone, work)


def test_jobs_of_a_copied_database_have_no_values_and_those_kept_by_an_earlier_release_have_one_job(tmp_path):
    EnvFolder(str(tmp_path)).keep("j", ENV)
    values = EnvValues("", str(tmp_path))

    async def work() -> None:
        assert [await values.find(job_key(path, "j")) for path in ("/lake", "/copy", "/lake")] == [ENV, None, ENV]

    use(values, work)


def test_a_folder_keeps_them_although_redis_and_all_services_have_gone(tmp_path):
    """Sealed, and readable by the services' user alone, until the job ends."""
    folder = tmp_path / "state" / "env"

    async def work() -> None:
        assert await values.keep("j", ENV)
        next(folder.glob("*.env")).unlink()
        await values.renew("j", ENV)
        later = EnvValues("", str(folder))
        assert (await later.find("j"), await later.find("k")) == (ENV, None)
        kept = sorted(folder.iterdir())
        assert {oct(path.stat().st_mode & 0o777) for path in kept} == {"0o600"}
        assert folder.stat().st_mode & 0o077 == 0
        assert all(ENV["API_KEY"].encode() not in path.read_bytes() for path in kept)
        await later.forget("j")
        assert await later.find("j") is None
        assert [path.name for path in folder.iterdir()] == ["key"]

    values = EnvValues("", str(folder))
    use(values, work)


def test_values_that_a_folder_does_not_take_are_not_said_to_outlive_the_services(tmp_path):
    """Also where the key of the folder is not a secret."""

    async def work() -> None:
        assert not await EnvValues("").keep("j", ENV)
        (tmp_path / "file").touch()
        assert not await EnvValues("", str(tmp_path / "file")).keep("j", ENV)
        assert await values.keep("j", ENV)
        (tmp_path / "key").chmod(0o644)
        assert not await values.keep("j", ENV)

    values = EnvValues("", str(tmp_path))
    use(values, work)


@pytest.mark.parametrize("damage", ["another key", "another job's", "cut off"])
def test_values_of_a_folder_that_the_key_does_not_open_are_lost(tmp_path, damage):
    async def work() -> None:
        await values.keep("j", ENV)
        (path,) = tmp_path.glob("*.env")
        if damage == "another key":
            (tmp_path / "key").write_bytes(Fernet.generate_key())
        elif damage == "cut off":
            path.write_bytes(path.read_bytes()[:-1])
        else:
            await values.keep("k", {"API_KEY": "of k"})
            (other,) = set(tmp_path.glob("*.env")) - {path}
            other.replace(path)
        assert await values.find("j") is None

    values = EnvValues("", str(tmp_path))
    use(values, work)


def test_a_key_that_others_can_read_seals_nothing(tmp_path):
    async def work() -> None:
        await values.keep("j", ENV)
        (tmp_path / "key").chmod(0o644)
        await values.keep("k", ENV)
        assert await values.find("k") is None

    values = EnvValues("", str(tmp_path))
    use(values, work)
