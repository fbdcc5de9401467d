"""Manage leases, which say which executor runs a job. A lease is a Redis key that expires, so that another executor can
replace a dead holder.

The lease alone does not decide which executor owns a job; the job's history does (decision 16). Apart from leases,
Redis has a hash of the jobs that have a lease or whose executor died, each with its database. Executors find orphaned
jobs in this hash, without a request. Jobs are named by their keys (`leman_core.model.keys.job_key`). Earlier releases
named jobs only by their ids; such an entry means the job in the database that the entry names.

While Redis is unavailable, no executor has leases; in the worst case, work is done twice. If Redis rejects only this
executor, other executors still have their leases. Wrong credentials are therefore an error, not an outage.
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

#: Redis's errors for a wrong or missing password, and for a user without the necessary rights.
_REFUSALS = (AuthenticationError, AuthorizationError, NoPermissionError)
_TIMEOUT_SECONDS = 2.0


def is_refusal(error: Exception) -> bool:
    """Return whether Redis responded and rejected the caller."""
    return isinstance(error, _REFUSALS) or isinstance(error.__cause__, _REFUSALS)  # the asyncio client wraps them


def check_accepted(url: str) -> None:
    """Check that Redis accepts the credentials in a URL. An unreachable Redis passes, because it may be available
    later.

    Args:
        url: The URL of Redis. If empty, there is nothing to check.

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
                f"LEMAN_REDIS__URL: Redis refuses its user or password ({error}): set the credentials of a Redis user",
            ) from None


def check_workers_accepted(url: str) -> None:
    """Check that Redis accepts the workers' URL and lets its user reserve rows, so that workers can share work.

    Args:
        url: The URL. If empty, workers use the executor's URL.

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
                f"LEMAN_REDIS__WORKERS_URL: Redis does not let its user reserve rows ({error}); docs/security.md lists "
                "the rights that it needs",
            ) from None


_log = structlog.get_logger(__name__)

#: Number of lifetimes after which a lease's key is deleted if it does not expire.
_LIFETIMES = 3
#: Number of lifetimes without a response from Redis after which a job is taken over for the first time.
_LIFETIMES_UNKNOWN = 6
#: The Redis hash of open jobs: job key → database.
_OPEN_JOBS = "leman:open-jobs"
#: Number of leases that are requested in one round trip.
_ASKED = 500

_RENEW = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"
#: KEYS: lease, open jobs, values of the job's environment. ARGV: owner; the job if it has ended, else empty.
_RELEASE = """
if ARGV[2] ~= '' then
  redis.pcall('HDEL', KEYS[2], ARGV[2])
  redis.pcall('DEL', KEYS[3])
end
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
#: KEYS: lease, open jobs, values of the job's environment; lease and values under the names of earlier releases. ARGV:
#: owner, lifetime in ms, job, its database (empty to leave the hash unchanged), its id. Returns 1 if the lease is ours,
#: 0 if another executor has it, -1 if it does not expire within a lifetime.
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
    """The state of a lease."""

    #: This executor has the lease, and no other executor has it.
    OURS = "ours"
    #: Another executor has the lease, or may have it.
    HELD = "held"
    #: Redis cannot be reached.
    UNKNOWN = "unknown"


class JobLeases:
    """The leases of one executor.

    Args:
        url: The URL of Redis. If empty, there is no Redis.
        owner: The name of this executor.
        lease_seconds: The lifetime of a lease that is not renewed.
        alone: Whether no other executor ever serves this executor's databases. A lease in an unknown state then counts
            as free.
        clock: Returns the time in seconds.
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
        #: The value of this executor's leases: its name and, once known, a space and its address for other executors.
        self._owner = owner
        self._clock = clock
        self._stuck_since: dict[str, float] = {}
        #: When each lease of this executor was last renewed.
        self._renewed_at: dict[str, float] = {}
        self._database_of: dict[str, str] = {}
        self._alone = alone or not url
        self.lease_seconds = lease_seconds

    @property
    def is_alone(self) -> bool:
        """Whether no other executor ever serves this executor's databases."""
        return self._alone

    def reached_at(self, address: str) -> None:
        """Set the address at which other executors reach this one. It applies to leases acquired from now on."""
        self._owner = f"{self._owner.partition(' ')[0]} {address}"

    async def holder(self, key: str) -> str | None:
        """Return the address of the other executor that has a job's lease.

        Return None if no other executor has it. Return "" if the address is unknown or Redis is unreachable.
        """
        if self._client is None:
            return ""
        try:
            value: Any = await self._client.get(_lease_of(key))
        except (RedisError, OSError) as error:
            _log_failure("the holder of a lease could not be read", error, job_id=id_in_key(key))
            return ""
        owner = None if value is None else value.decode(errors="replace")
        return None if owner in (None, self._owner) else str(owner).partition(" ")[2]

    def patience(self, attempt: int, *, lost: bool) -> float:
        """Return how many seconds a lease's state may stay unknown before the job is taken over.

        Args:
            attempt: The number of attempts at the job so far.
            lost: Whether this executor had the lease until another executor took the job over.
        """
        if self._alone and not lost:
            return 0.0
        return _LIFETIMES_UNKNOWN * self.lease_seconds * 2.0 ** (attempt - 1)

    async def acquire(self, key: str, database: str = "") -> LeaseOutcome:
        """Acquire a job's lease if it is free.

        This also lists the job as open in its `database`. If `database` is empty, an existing entry stays unchanged.

        A key without an expiry belongs to no executor. If the key still exists after this executor has tried for a few
        lifetimes, the key is deleted and the lease acquired.
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
                _log.warning("the lease of a job does not expire, so this executor takes it", job_id=id_in_key(key))
                await self._client.delete(_lease_of(key))
                return await self.acquire(key)
        except (RedisError, OSError) as error:
            if is_refusal(error) and not self._alone:  # another executor may have the lease
                _log.warning(
                    "redis rejects this executor, which therefore cannot take over jobs",
                    job_id=id_in_key(key),
                    error=str(error),
                )
                return LeaseOutcome.HELD
            _log_failure("redis is unreachable, the state of a lease is unknown", error, job_id=id_in_key(key))
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
        """Renew the lease, or acquire it again if Redis lost it.

        Returns:
            False if the lease had expired, another executor has it, or its state is unknown. In these cases, the job's
            history decides whether this executor still has the job.
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
        """Renew the lease until the block ends."""
        over = asyncio.Event()
        beating = asyncio.create_task(self._renew_until(over, key))
        try:
            yield
        finally:
            over.set()  # not cancelled, which could look like an error of Redis
            beating.cancel()
            await asyncio.wait((beating,))  # otherwise the renewal could acquire the lease again after the release

    async def _renew_until(self, over: asyncio.Event, key: str) -> None:
        while not over.is_set():
            await asyncio.sleep(self.lease_seconds / 3)
            await self.renew(key)

    def age(self) -> float:
        """Return the seconds since the oldest renewal among all leases, or 0 if there are no leases.

        Callable from any thread.
        """
        return max((self._clock() - renewed for renewed in list(self._renewed_at.values())), default=0.0)

    async def release(self, key: str, *, ended: bool = False) -> None:
        """Release a job's lease.

        Args:
            ended: Whether the job no longer needs an executor, because its end is in the history, or the history does
                not have the job. This also deletes the values of its environment.
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
        """Return the database of each job that has a lease or whose executor died.

        Return None if Redis cannot be read.
        """
        if self._client is None:
            return None
        try:
            found: Mapping[Any, Any] = await self._client.hgetall(_OPEN_JOBS)
        except (RedisError, OSError) as error:
            _log_failure("open jobs could not be read", error)
            return None
        return {key.decode(errors="replace"): database.decode(errors="replace") for key, database in found.items()}

    async def without_holder(self, jobs: Collection[str]) -> set[str] | None:
        """Return those jobs whose lease is free, or None if Redis cannot be read."""
        if self._client is None:
            return None
        free: set[str] = set()
        try:
            wanted = sorted(jobs)
            for part in (wanted[i : i + _ASKED] for i in range(0, len(wanted), _ASKED)):
                values = await self._client.mget([_lease_of(key) for key in part])
                free |= {key for key, value in zip(part, values, strict=True) if value is None}
        except (RedisError, OSError) as error:
            _log_failure("holders of leases could not be read", error)
            return None
        return free

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()


def _log_failure(event: str, error: Exception, **facts: str) -> None:
    """Log a failed call to Redis at debug level only, because the job continues without Redis."""
    _log.debug(event, **facts, error=str(error))


def _lease_of(key: str) -> str:
    return f"leman:job:{key}"
