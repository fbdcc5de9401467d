"""Values of jobs' environment variables in Redis, so that an executor that takes a job over has them.

They are there until the job ends (see `JobLeases.release`), and expire when no executor has had the job for a day.
They are encrypted with a key that is made of Redis's password: so they are not to be read from Redis's files, from what
it logs, or from copies of these. Who may use Redis may read them.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import json
from collections.abc import Mapping

import redis.asyncio as aioredis
import structlog
from cryptography.fernet import Fernet, InvalidToken
from redis.exceptions import RedisError

from core.errors import Unavailable

_log = structlog.get_logger(__name__)

_KEPT_SECONDS = 86_400
#: Of scrypt: a tenth of a second and 16 MiB, once in a process.
_COST, _BLOCKS = 1 << 14, 8


class EnvValues:
    """The values of all jobs, as one executor keeps and finds them.

    Args:
        url: Redis; empty: there is none, and nothing is found.
    """

    def __init__(self, url: str) -> None:
        self._client = aioredis.Redis.from_url(url, socket_timeout=0.5, socket_connect_timeout=0.5) if url else None
        known = self._client.connection_pool.connection_kwargs if self._client is not None else {}
        self._password = str(known.get("password") or "")
        self._warned = False

    async def keep(self, job_id: str, env: Mapping[str, str]) -> None:
        """Keep the values of a job; while Redis cannot be reached they are in this process alone, see `renew`."""
        if self._client is None or not env:
            return
        if not self._password and not self._warned:
            self._warned = True
            _log.warning("redis has no password: whoever reads its data may read values of jobs' environments")
        cipher = await asyncio.to_thread(_cipher, self._password)
        sealed = cipher.encrypt(json.dumps(dict(env)).encode())
        try:
            await self._client.set(key_of(job_id), sealed, ex=_KEPT_SECONDS)
        except (RedisError, OSError) as error:
            _log.debug("values of the environment are not in redis", job_id=job_id, error=str(error))

    async def renew(self, job_id: str, env: Mapping[str, str]) -> None:
        """Have the values of a job kept for longer, and keep them again where Redis has lost them."""
        if self._client is None or not env:
            return
        try:
            known = await self._client.expire(key_of(job_id), _KEPT_SECONDS)
        except (RedisError, OSError):
            return
        if not known:
            await self.keep(job_id, env)

    async def find(self, job_id: str) -> dict[str, str] | None:
        """Return the values of a job; None: they are lost.

        Raises:
            Unavailable: STORE_UNAVAILABLE – Redis cannot be asked now.
        """
        if self._client is None:
            return None
        try:
            sealed = await self._client.get(key_of(job_id))
        except (RedisError, OSError) as error:
            raise Unavailable("STORE_UNAVAILABLE", f"Redis does not say which environment a job has: {error}") from None
        if sealed is None:
            return None
        try:
            cipher = await asyncio.to_thread(_cipher, self._password)
            found: dict[str, str] = json.loads(cipher.decrypt(sealed))
        except InvalidToken:  # Redis has another password since
            return None
        return found

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()


def key_of(job_id: str) -> str:
    """Return the key under which the values of a job are."""
    return f"leman:job-env:{job_id}"


@functools.lru_cache(4)
def _cipher(password: str) -> Fernet:
    key = hashlib.scrypt(password.encode(), salt=b"leman job env", n=_COST, r=_BLOCKS, p=1, dklen=32)
    return Fernet(base64.urlsafe_b64encode(key))
