"""Who runs a job: leases, and a Redis that refuses this executor.

A Redis that is there and refuses this executor: its url is wrong, which is no reason to go on without it.

While Redis is away nobody has its leases, and work is done twice at the worst. Where it only refuses this executor,
others have theirs.

Who runs a job: one key with an expiry, so that another executor takes over when its holder dies.

A lease does not decide who has a job: that is written in the job's history (decision 16). Beside the leases lies a hash
of the jobs that have one, or had one until their executor died, with their databases: so an executor that nobody asks
finds a job that nobody has.

Jobs are named by their keys (`leman_core.model.keys.job_key`). Earlier releases named them by their ids alone: what
they noted counts for the job of the database that they noted with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any

import structlog
from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, RedisError

from leman_core.model.keys import id_in_key
from leman_core.model.service_errors import InvalidArgument
from leman_executor.coordination.env_values import env_values_key
from leman_executor.coordination.redis_clients import connect, connect_async
from leman_executor.coordination.reservations import RedisReservations

#: What Redis says to a wrong or missing password, and to a user who may not do this.
_REFUSALS = (AuthenticationError, AuthorizationError, NoPermissionError)
_TIMEOUT_SECONDS = 2.0


def is_refusal(error: Exception) -> bool:
    """Tell whether Redis is there, and refuses who asks."""
    return isinstance(error, _REFUSALS) or isinstance(error.__cause__, _REFUSALS)  # asyncio's client wraps them


def check_accepted(url: str) -> None:
    """Refuse an url that Redis refuses. One that is away says nothing: it may be there later.

    Args:
        url: empty: there is no Redis.

    Raises:
        InvalidArgument: BAD_SETTING.
    """
    if not url:
        return
    try:
        with connect(url, _TIMEOUT_SECONDS) as client:
            client.ping()
    except (RedisError, OSError) as error:
        if is_refusal(error):
            raise InvalidArgument(
                "BAD_SETTING",
                f"LEMAN_REDIS__URL: Redis refuses its user or password ({error}): give those that it knows",
            ) from None


def check_workers_accepted(url: str) -> None:
    """Refuse the workers' url where Redis refuses it, or its user may not reserve rows: workers would share no work.

    Args:
        url: empty: workers have that of the executor.

    Raises:
        InvalidArgument: BAD_SETTING.
    """
    if not url:
        return
    try:
        RedisReservations(url, _TIMEOUT_SECONDS, _TIMEOUT_SECONDS).check()
    except (RedisError, OSError) as error:
        if is_refusal(error) or "permission" in str(error):
            raise InvalidArgument(
                "BAD_SETTING",
                f"LEMAN_REDIS__WORKERS_URL: Redis does not let its user reserve rows ({error}); docs/security.md has "
                "the rights that it needs",
            ) from None


_log = structlog.get_logger(__name__)

#: Lifetimes after which a key that does not expire as a lease does is taken away and the lease is free.
_LIFETIMES = 3
#: Lifetimes for which Redis cannot be asked before a job is taken over all the same, the first time.
_LIFETIMES_UNKNOWN = 6
#: Jobs by key, with their databases.
_OPEN_JOBS = "leman:open-jobs"
#: Leases that are asked for in one round trip.
_ASKED = 500

_RENEW = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"
#: KEYS: lease, open jobs, values of the job's environment. ARGV: owner, the job where it has ended, else nothing.
_RELEASE = """
if ARGV[2] ~= '' then
  redis.pcall('HDEL', KEYS[2], ARGV[2])
  redis.pcall('DEL', KEYS[3])
end
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
#: KEYS: lease, open jobs, values of the job's environment; lease and values as an earlier release named them. ARGV:
#: owner, lifetime in ms, job, its database where it is to be noted, else nothing; its id.
#: Answer: 1 it is ours, 0 another one's, -1 one that does not expire within a lifetime.
_ACQUIRE = """
local earlier = ARGV[3] ~= ARGV[5] and ARGV[4] ~= '' and redis.pcall('HGET', KEYS[2], ARGV[5]) == ARGV[4]
if earlier and redis.call('EXISTS', KEYS[4]) == 1 then return 0 end
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  if earlier then
    redis.pcall('HDEL', KEYS[2], ARGV[5])
    redis.pcall('RENAMENX', KEYS[5], KEYS[3])
  end
  if ARGV[4] ~= '' then redis.pcall('HSET', KEYS[2], ARGV[3], ARGV[4]) end
  return 1
end
if redis.call('TYPE', KEYS[1]).ok == 'string' and redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 or left > tonumber(ARGV[2]) then return -1 end
return 0
"""


class LeaseOutcome(enum.Enum):
    """What is known of a lease."""

    #: This executor has it, and nobody else.
    OURS = "ours"
    #: Another executor has it, or may have it.
    HELD = "held"
    #: Redis cannot be asked.
    UNKNOWN = "unknown"


class JobLeases:
    """The leases of one executor.

    Args:
        url: Redis; empty: there is none.
        owner: The executor.
        lease_seconds: Lifetime of a lease that is not renewed.
        alone: Whether no other executor ever serves its database, so that a lease of which nothing is known is free.
        clock: Returns seconds.
    """

    def __init__(
        self,
        url: str,
        owner: str,
        lease_seconds: float = 10.0,
        *,
        alone: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = connect_async(url) if url else None
        #: What stands in its leases: who it is, and behind a blank where others reach it, once that is known.
        self._owner = owner
        self._clock = clock
        self._stuck_since: dict[str, float] = {}
        #: When each lease that this executor has was renewed last.
        self._renewed_at: dict[str, float] = {}
        self._database_of: dict[str, str] = {}
        self._alone = alone or not url
        self.lease_seconds = lease_seconds

    @property
    def is_alone(self) -> bool:
        """Whether no other executor ever serves its databases."""
        return self._alone

    def reached_at(self, address: str) -> None:
        """Have the leases that are taken from now on say where other executors reach this one."""
        self._owner = f"{self._owner.partition(' ')[0]} {address}"

    async def holder(self, key: str) -> str | None:
        """Return the address of the other executor that has a lease.

        None: no other one has it; empty: its address is not known, or Redis cannot be asked.
        """
        if self._client is None:
            return ""
        try:
            value: Any = await self._client.get(_lease_of(key))
        except (RedisError, OSError) as error:
            _log_failure("the holder of a lease is not known", error, job_id=id_in_key(key))
            return ""
        owner = None if value is None else value.decode(errors="replace")
        return None if owner in (None, self._owner) else str(owner).partition(" ")[2]

    def patience(self, attempt: int, *, lost: bool) -> float:
        """Return for how many seconds nothing has to be known of the lease before the job is taken over.

        Args:
            attempt: The number of attempts that the job had.
            lost: Whether this executor had the lease once, and another one took it over.
        """
        if self._alone and not lost:
            return 0.0
        return _LIFETIMES_UNKNOWN * self.lease_seconds * 2.0 ** (attempt - 1)

    async def acquire(self, key: str, database: str = "") -> LeaseOutcome:
        """Take the lease if it is free.

        With it the job is noted as one that is open, in its `database`; empty: as it was said before, if it was.

        A key that does not expire is no executor's: if it is still there after a few lifetimes of asking, it is deleted
        and the lease is taken.
        """
        if database:
            self._database_of[key] = database
        if self._client is None:
            return LeaseOutcome.UNKNOWN
        keys = (
            _lease_of(key),
            _OPEN_JOBS,
            env_values_key(key),
            _lease_of(id_in_key(key)),
            env_values_key(id_in_key(key)),
        )
        noted = key, self._database_of.get(key, ""), id_in_key(key)
        lifetime = int(self.lease_seconds * 1000)
        try:
            answer = await self._client.eval(_ACQUIRE, len(keys), *keys, self._owner, lifetime, *noted)
            if answer < 0 and self._is_stuck(key):
                _log.warning("the lease of a job does not expire and is taken", job_id=id_in_key(key))
                await self._client.delete(_lease_of(key))
                return await self.acquire(key)
        except (RedisError, OSError) as error:
            if is_refusal(error) and not self._alone:  # it is there for others, who may have the lease
                _log.warning(
                    "redis refuses this executor, which takes no job over", job_id=id_in_key(key), error=str(error)
                )
                return LeaseOutcome.HELD
            _log_failure("redis cannot be reached, nothing is known of a lease", error, job_id=id_in_key(key))
            return LeaseOutcome.UNKNOWN
        if answer >= 0:
            self._stuck_since.pop(key, None)
        if answer == 1:
            self._renewed_at[key] = self._clock()
        return LeaseOutcome.OURS if answer == 1 else LeaseOutcome.HELD

    def _is_stuck(self, key: str) -> bool:
        since = self._stuck_since.setdefault(key, self._clock())
        return self._clock() - since >= _LIFETIMES * self.lease_seconds

    async def renew(self, key: str) -> bool:
        """Keep the lease, or take it again where Redis lost it.

        Returns:
            False where it has to be asked elsewhere whether the job is still ours: the lease was gone, is another
            executor's, or nothing is known of it.
        """
        if self._client is None:
            return True
        try:
            if await self._client.eval(_RENEW, 1, _lease_of(key), self._owner, int(self.lease_seconds * 1000)):
                self._renewed_at[key] = self._clock()
                return True
            await self.acquire(key)
        except (RedisError, OSError) as error:
            _log_failure("lease not renewed", error, job_id=id_in_key(key))
        return False

    @contextlib.asynccontextmanager
    async def kept(self, key: str) -> AsyncIterator[None]:
        """Renew the lease beside what is done within, however long that takes."""
        over = asyncio.Event()
        beating = asyncio.create_task(self._renew_until(over, key))
        try:
            yield
        finally:
            over.set()  # what a cancelled call to Redis raises may be taken for its error
            beating.cancel()
            await asyncio.wait((beating,))  # else it takes the lease once more that is given up after this

    async def _renew_until(self, over: asyncio.Event, key: str) -> None:
        while not over.is_set():
            await asyncio.sleep(self.lease_seconds / 3)
            await self.renew(key)

    def age(self) -> float:
        """Return the seconds since a lease was renewed, of that for which it is longest ago; 0: there is none.

        It may be asked from any thread.
        """
        return max((self._clock() - renewed for renewed in list(self._renewed_at.values())), default=0.0)

    async def release(self, key: str, *, ended: bool = False) -> None:
        """Give the lease up.

        Args:
            ended: the job needs nobody any more, as history has its end or does not have it. The values of its
                environment are deleted with that.
        """
        self._stuck_since.pop(key, None)
        self._renewed_at.pop(key, None)
        self._database_of.pop(key, None)
        if self._client is None:
            return
        try:
            keys = _lease_of(key), _OPEN_JOBS, env_values_key(key)
            await self._client.eval(_RELEASE, len(keys), *keys, self._owner, key if ended else "")
        except (RedisError, OSError) as error:
            _log_failure("lease not released", error, job_id=id_in_key(key))

    async def open_jobs(self) -> dict[str, str] | None:
        """Return the jobs with a lease, or whose executor died with it, and their databases; None: it is not known."""
        if self._client is None:
            return None
        try:
            found: Mapping[Any, Any] = await self._client.hgetall(_OPEN_JOBS)
        except (RedisError, OSError) as error:
            _log_failure("open jobs are not known", error)
            return None
        return {key.decode(errors="replace"): database.decode(errors="replace") for key, database in found.items()}

    async def without_holder(self, jobs: Collection[str]) -> set[str] | None:
        """Return those of these jobs whose lease nobody has; None: it is not known."""
        if self._client is None:
            return None
        free: set[str] = set()
        try:
            wanted = sorted(jobs)
            for part in (wanted[i : i + _ASKED] for i in range(0, len(wanted), _ASKED)):
                values = await self._client.mget([_lease_of(key) for key in part])
                free |= {key for key, value in zip(part, values, strict=True) if value is None}
        except (RedisError, OSError) as error:
            _log_failure("holders of leases are not known", error)
            return None
        return free

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()


def _log_failure(event: str, error: Exception, **facts: str) -> None:
    """Log a call to Redis that failed, for debugging: the job goes on without Redis."""
    _log.debug(event, **facts, error=str(error))


def _lease_of(key: str) -> str:
    return f"leman:job:{key}"
