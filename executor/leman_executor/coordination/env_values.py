"""Keep the values of jobs' environment variables in Redis and in a folder, for an executor that takes a job over.

Values are stored under the job's key, because the jobs of a copied database have the same ids but not the same values.
Values are deleted when the job ends (see `JobLeases.release`), and expire if no executor holds the job for a day. They
are encrypted with a key derived from Redis's password, so that Redis's files, logs and copies do not disclose them.
Users who know this password can still read them.

An operator may also configure a folder on this machine. Its values survive when Redis and all services stop, so that
jobs resume after a restart. Its files are encrypted with a key in the same folder, which only the folder's owner can
read.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import structlog
from cryptography.fernet import Fernet, InvalidToken
from redis.exceptions import RedisError

from leman_core.model.keys import id_in_key
from leman_core.model.service_errors import Unavailable
from leman_executor.coordination.redis_clients import connect_async

_log = structlog.get_logger(__name__)

_KEPT_SECONDS = 86_400
_KEY, _ENDING = "key", ".env"
#: Parameters of scrypt. Deriving the key takes a tenth of a second and 16 MiB, once per process.
_COST, _BLOCKS = 1 << 14, 8


class EnvFolder:
    """Values of jobs' environment variables in files of a folder, each encrypted with the folder's key."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def keep(self, key: str, env: Mapping[str, str]) -> None:
        """Store the values of a job, replacing its earlier ones, and remove expired values of other jobs.

        Raises:
            OSError: The values cannot be written.
        """
        cipher = self._cipher()
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".", delete=False) as file:  # 0600
            try:
                file.write(cipher.encrypt(json.dumps({"job_id": key, "env": dict(env)}).encode()))
                file.close()
                Path(file.name).replace(self._path(key))
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
        too_old = time.time() - _KEPT_SECONDS
        for path in self._folder.glob(f"*{_ENDING}"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < too_old:
                    path.unlink()

    def renew(self, key: str) -> bool:
        """Extend the lifetime of a job's values; return False if there are none."""
        try:
            os.utime(self._path(key))
        except OSError:
            return False
        return True

    def find(self, key: str) -> dict[str, str] | None:
        """Return the values of a job, or None if none are stored that this folder's key decrypts.

        Earlier releases stored values under the job's id. The first job with that id that asks for them gets such
        values.
        """
        for name in dict.fromkeys((key, id_in_key(key))):
            try:
                found = json.loads(self._cipher().decrypt(self._path(name).read_bytes()))
            except (OSError, InvalidToken, ValueError):
                continue
            if found["job_id"] == name:
                env = dict(found["env"])
                if name != key:
                    self.keep(key, env)
                    self.forget(name)
                return env
        return None

    def forget(self, key: str) -> None:
        """Remove the values of a job that has ended."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}{_ENDING}"

    def _cipher(self) -> Fernet:
        """Return the cipher with the folder's key. Make the key if there is none.

        Raises:
            OSError: The folder or the key cannot be made or read.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / _KEY
        if not path.exists():
            with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".") as made:  # 0600
                made.write(Fernet.generate_key())
                made.flush()
                with contextlib.suppress(FileExistsError):  # another executor has just made it
                    os.link(made.name, path)
        if path.stat().st_mode & 0o077:
            raise PermissionError(f"{path} can be read by other users: make it private (chmod 600)")
        return Fernet(path.read_bytes())


class EnvValues:
    """The values of all jobs, as one executor stores and finds them.

    Args:
        url: The URL of Redis. If empty, no values are stored in or found in Redis.
        folder: A folder on this machine that also holds values. If empty, values are in no folder.
    """

    def __init__(self, url: str, folder: str = "") -> None:
        self._in_folder = EnvFolder(folder) if folder else None
        self._client = connect_async(url) if url else None
        known = self._client.connection_pool.connection_kwargs if self._client is not None else {}
        self._password = str(known.get("password") or "")
        self._warned = self._folder_failed = False

    async def keep(self, key: str, env: Mapping[str, str]) -> bool:
        """Store the values of a job. If Redis is unreachable, the values are only in this process until `renew`
        succeeds.

        Returns:
            Whether the values survive a stop of Redis and all services.
        """
        if not env:
            return True
        in_folder = await self._keep_in_folder(key, env)
        await self._keep_in_redis(key, env)
        return in_folder

    async def _keep_in_folder(self, key: str, env: Mapping[str, str]) -> bool:
        if self._in_folder is None:
            return False
        try:
            await asyncio.to_thread(self._in_folder.keep, key, env)
        except (OSError, ValueError) as error:
            if not self._folder_failed:
                _log.warning(
                    "the folder could not store environment variables", job_id=id_in_key(key), error=str(error)
                )
            self._folder_failed = True
            return False
        self._folder_failed = False
        return True

    async def _keep_in_redis(self, key: str, env: Mapping[str, str]) -> None:
        if self._client is None:
            return
        if not self._password and not self._warned:
            self._warned = True
            _log.warning("redis has no password: anyone who reads its data may read values of environment variables")
        cipher = await asyncio.to_thread(_cipher, self._password)
        sealed = cipher.encrypt(json.dumps(dict(env)).encode())
        try:
            await self._client.set(env_values_key(key), sealed, ex=_KEPT_SECONDS)
        except (RedisError, OSError) as error:
            _log.debug("redis could not store environment variables", job_id=id_in_key(key), error=str(error))

    async def renew(self, key: str, env: Mapping[str, str]) -> None:
        """Extend the lifetime of a job's values. Store them again if Redis or the folder lost them."""
        if not env:
            return
        if self._in_folder is not None and not await asyncio.to_thread(self._in_folder.renew, key):
            await self._keep_in_folder(key, env)
        if self._client is None:
            return
        try:
            known = await self._client.expire(env_values_key(key), _KEPT_SECONDS)
        except (RedisError, OSError):
            return
        if not known:
            await self._keep_in_redis(key, env)

    async def find(self, key: str) -> dict[str, str] | None:
        """Return the values of a job, or None if they are lost.

        Raises:
            Unavailable: STORE_UNAVAILABLE, if Redis cannot be reached now.
        """
        if self._in_folder is not None and (kept := await asyncio.to_thread(self._in_folder.find, key)) is not None:
            return kept
        if self._client is None:
            return None
        try:
            sealed = await self._client.get(env_values_key(key))
        except (RedisError, OSError) as error:
            raise Unavailable("STORE_UNAVAILABLE", f"Redis could not return the job's environment: {error}") from None
        if sealed is None:
            return None
        try:
            cipher = await asyncio.to_thread(_cipher, self._password)
            found: dict[str, str] = json.loads(cipher.decrypt(sealed))
        except InvalidToken:  # Redis's password has changed
            return None
        return found

    async def forget(self, key: str) -> None:
        """Remove the values of an ended job from the folder. `JobLeases.release` removes those in Redis."""
        if self._in_folder is not None:
            await asyncio.to_thread(self._in_folder.forget, key)

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()


def env_values_key(key: str) -> str:
    """Return the Redis key of a job's values."""
    return f"leman:job-env:{key}"


@functools.lru_cache(4)
def _cipher(password: str) -> Fernet:
    key = hashlib.scrypt(password.encode(), salt=b"leman job env", n=_COST, r=_BLOCKS, p=1, dklen=32)
    return Fernet(base64.urlsafe_b64encode(key))
