"""Who runs a job: one key with an expiry, so that another executor takes over when its holder dies.

A lease is a hint: who has a job is written in its history (decision 16).
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable

import redis.asyncio as aioredis
import structlog
from redis.exceptions import RedisError

_log = structlog.get_logger(__name__)

#: Lifetimes for which what does not expire as a lease does is taken for one.
_LIFETIMES = 3
#: Lifetimes for which Redis cannot be asked before a job is taken over all the same, the first time.
_LIFETIMES_UNKNOWN = 6

_RENEW = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
#: ARGV: owner, lifetime in ms. Answer: 1 it is ours, 0 another one's, -1 one that does not expire within a lifetime.
_ACQUIRE = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
if redis.call('TYPE', KEYS[1]).ok == 'string' and redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
local left = redis.call('PTTL', KEYS[1])
if left < 0 or left > tonumber(ARGV[2]) then return -1 end
return 0
"""


class Answer(enum.Enum):
    """What is known of a lease. `OURS`: nobody else has it. `UNKNOWN`: Redis cannot be asked."""

    OURS = "ours"
    HELD = "held"
    UNKNOWN = "unknown"


class JobLeases:
    """Leases of one executor, `owner`. `alone`: nobody else ever serves its database, so that whatever is unknown is
    free."""

    def __init__(
        self,
        url: str,
        owner: str,
        lease_seconds: float = 10.0,
        *,
        alone: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = aioredis.Redis.from_url(url, socket_timeout=0.5, socket_connect_timeout=0.5) if url else None
        self._owner = owner
        self._clock = clock
        self._stuck_since: dict[str, float] = {}
        self._alone = alone or not url
        self.lease_seconds = lease_seconds

    def patience(self, attempt: int, *, lost: bool) -> float:
        """Seconds for which nothing has to be known of the lease before a job is taken over that had so many attempts.
        `lost`: this executor had it once, and another one took it over."""
        if self._alone and not lost:
            return 0.0
        return _LIFETIMES_UNKNOWN * self.lease_seconds * 2.0 ** (attempt - 1)

    async def acquire(self, job_id: str) -> Answer:
        """Takes the lease if it is free. One that does not expire is no executor's: asked for again and again, it is
        taken after a few lifetimes."""
        if self._client is None:
            return Answer.UNKNOWN
        try:
            answer = await self._client.eval(_ACQUIRE, 1, _key(job_id), self._owner, int(self.lease_seconds * 1000))
            if answer < 0 and self._is_stuck(job_id):
                _log.warning("the lease of a job does not expire and is taken", job_id=job_id)
                await self._client.delete(_key(job_id))
                return await self.acquire(job_id)
        except (RedisError, OSError) as error:
            _log.debug("redis cannot be reached, nothing is known of a lease", job_id=job_id, error=str(error))
            return Answer.UNKNOWN
        if answer >= 0:
            self._stuck_since.pop(job_id, None)
        return Answer.OURS if answer == 1 else Answer.HELD

    def _is_stuck(self, job_id: str) -> bool:
        since = self._stuck_since.setdefault(job_id, self._clock())
        return self._clock() - since >= _LIFETIMES * self.lease_seconds

    async def renew(self, job_id: str) -> bool:
        """Keeps the lease, or takes it again where Redis lost it. False: whether the job is still ours has to be asked
        elsewhere, as the lease was gone, is another one's, or nothing is known of it."""
        if self._client is None:
            return True
        try:
            if await self._client.eval(_RENEW, 1, _key(job_id), self._owner, int(self.lease_seconds * 1000)):
                return True
            await self.acquire(job_id)
        except (RedisError, OSError) as error:
            _log.debug("lease not renewed", job_id=job_id, error=str(error))
        return False

    async def release(self, job_id: str) -> None:
        """Gives the lease up."""
        self._stuck_since.pop(job_id, None)
        if self._client is None:
            return
        try:
            await self._client.eval(_RELEASE, 1, _key(job_id), self._owner)
        except (RedisError, OSError) as error:
            _log.debug("lease not released", job_id=job_id, error=str(error))

    async def close(self) -> None:
        """Drops the connection."""
        if self._client is not None:
            await self._client.aclose()


def _key(job_id: str) -> str:
    return f"leman:job:{job_id}"
