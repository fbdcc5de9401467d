"""Bundles that callers send in pieces: written as they come, and stored once all is there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import ParamSpec

from leman_core.server.blocking import BlockingPool
from leman_core.server.concurrency_limit import CallPlaces
from leman_core.server.idle_limit import arriving
from leman_core.settings.access_sections import Udf
from leman_core.storage.udf_bundles import Bundles, IncomingBundle
from leman_core.storage.udf_registry import UdfRegistry

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedBundle:
    """What is said of a bundle before its bytes come."""

    database: str
    sha256: str
    size_bytes: int


class BundleUploads:
    """All uploads of bundles of a process. Each holds a piece of its bundle in memory, and a thread while it writes."""

    def __init__(self, settings: Udf, registry: Callable[[str], UdfRegistry]) -> None:
        self._places = CallPlaces(settings.max_uploads, "TOO_MANY_UPLOADS", "calls of UploadBundle")
        self._idle_seconds = settings.upload_idle_seconds
        self._registry = registry
        # one upload has one piece of work at a time; one that was given up, until what it wrote is removed
        self._threads = BlockingPool(settings.max_uploads, max_queued=1 << 20, name="bundles")
        self._given_up: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait until what was given up is removed."""
        await asyncio.gather(*self._given_up, return_exceptions=True)
        self._threads.close()

    async def take(self, announced: AnnouncedBundle, pieces: AsyncIterator[bytes]) -> bool:
        """Store a bundle; False: it was there already.

        Raises:
            LemanError: what `CatalogService.UploadBundle` (protos/leman/v1/catalog.proto) names.
        """
        with self._places.one():
            bundles = await self._threads.run(self._bundles, announced)
            if await self._threads.run(bundles.has, announced.sha256, announced.size_bytes):
                return False
            upload = _Upload(self._threads, bundles, announced)
            try:
                async with contextlib.aclosing(arriving(pieces, self._idle_seconds, "the bundle")) as coming:
                    await upload.run(coming)
            except BaseException:
                self._give_up(upload)
                raise
            return True

    def _bundles(self, announced: AnnouncedBundle) -> Bundles:
        registry = self._registry(announced.database)
        registry.policy.check_pickled()
        registry.bundles.check_size(announced.size_bytes, field="header.size_bytes")
        return registry.bundles

    def _give_up(self, upload: _Upload) -> None:
        task = asyncio.create_task(upload.discard())
        self._given_up.add(task)
        task.add_done_callback(self._given_up.discard)


class _Upload:
    """One upload. What a thread does for it goes on although the call ends; `discard` waits for that."""

    def __init__(self, threads: BlockingPool, bundles: Bundles, announced: AnnouncedBundle) -> None:
        self._threads = threads
        self._bundles = bundles
        self._announced = announced
        self._incoming: list[IncomingBundle] = []
        self._at_work: asyncio.Future[None] | None = None

    async def run(self, pieces: AsyncIterator[bytes]) -> None:
        await self._do(self._begin)
        (incoming,) = self._incoming
        async for piece in pieces:
            await self._do(incoming.write, piece)
        await self._do(incoming.finish)

    async def discard(self) -> None:
        if self._at_work is not None:
            await asyncio.wait((self._at_work,))
        for incoming in self._incoming:
            with contextlib.suppress(Exception):
                await self._threads.run(incoming.discard)

    def _begin(self) -> None:
        self._incoming.append(self._bundles.begin(self._announced.sha256, self._announced.size_bytes))

    async def _do(self, function: Callable[P, None], /, *args: P.args, **kwargs: P.kwargs) -> None:
        self._at_work = asyncio.ensure_future(self._threads.run(function, *args, **kwargs))
        await asyncio.shield(self._at_work)
