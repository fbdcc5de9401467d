"""Who runs a job: one key with an expiry, so that another executor takes over when its holder dies."""

from __future__ import annotations

import redis.asyncio as aioredis
import structlog
from redis.exceptions import RedisError

_log = structlog.get_logger(__name__)

_RENEW = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class JobLeases:
    """Leases of one executor, `owner`. Without Redis, or while it is away, every lease is granted: two executors may
    then run one job, which costs work and harms no value."""

    def __init__(self, url: str, owner: str, lease_seconds: float = 10.0) -> None:
        self._client = aioredis.Redis.from_url(url, socket_timeout=0.5, socket_connect_timeout=0.5) if url else None
        self._owner = owner
        self.lease_seconds = lease_seconds

    async def acquire(self, job_id: str) -> bool:
        """Whether this executor may run the job."""
        if self._client is None:
            return True
        try:
            key, lease = _key(job_id), int(self.lease_seconds * 1000)
            if await self._client.set(key, self._owner, nx=True, px=lease):
                return True
            return bool(await self._client.get(key) == self._owner.encode())
        except (RedisError, OSError) as error:
            _log.warning("redis cannot be reached, lease assumed", job_id=job_id, error=str(error))
            return True

    async def renew(self, job_id: str) -> None:
        """Keeps the lease, or takes it again where Redis lost it."""
        if self._client is None:
            return
        try:
            kept = await self._client.eval(_RENEW, 1, _key(job_id), self._owner, int(self.lease_seconds * 1000))
            if not kept:
                await self.acquire(job_id)
        except (RedisError, OSError) as error:
            _log.debug("lease not renewed", job_id=job_id, error=str(error))

    async def release(self, job_id: str) -> None:
        """Gives the lease up."""
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
