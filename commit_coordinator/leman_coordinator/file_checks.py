"""Checks of the content of staged files, beside the commit queue and several at once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import structlog

from leman_coordinator.group_commit import Candidate
from leman_coordinator.lance_io import committed_files
from leman_coordinator.lance_io.installable_files import InstallableFile, StagedFiles
from leman_coordinator.preconditions import Rejection
from leman_coordinator.requests import ReplaceRequest
from leman_core.model.errors import DataLoss, FailedPrecondition, NotFound
from leman_core.model.plan import FragmentReplacement, StagedFile
from leman_core.server.blocking import BlockingPool
from leman_core.storage.locations import in_object_store

_log = structlog.get_logger(__name__)


class FileChecks:
    """The checks for one table; at most `width` threads of the pool work on one request."""

    def __init__(self, uri: str, pool: BlockingPool, width: int) -> None:
        self._uri = uri
        self._files = StagedFiles(uri)
        self._pool = pool
        self._width = width

    async def candidates(self, request: ReplaceRequest) -> Sequence[Candidate]:
        """Check the request's files and return one candidate for each of its fragments, in its order.

        Sizes and digests of the files are noted beside the table, for a later verification. In an object store that is
        done while they are checked, as neither waits for the other; elsewhere once it is known which are sound.

        Raises:
            LemanError: what `storage_errors.failed` gives.
        """
        staged = [replacement.staged for replacement in request.replacements]
        if in_object_store(self._uri) and all(map(committed_files.can_be_noted, staged)):
            candidates, _ = await asyncio.gather(self._checked(request), self._note(staged))
            return candidates
        candidates = await self._checked(request)
        await self._note([c.replacement.staged for c in candidates if isinstance(c.file, InstallableFile)])
        return candidates

    async def _checked(self, request: ReplaceRequest) -> list[Candidate]:
        size = -(-len(request.replacements) // self._width)
        shares = [request.replacements[i : i + size] for i in range(0, len(request.replacements), size)]
        checked = await asyncio.gather(*(self._pool.run(self._check, request, share) for share in shares))
        return list(itertools.chain.from_iterable(checked))

    async def _note(self, files: Sequence[StagedFile]) -> None:
        if files:
            await self._pool.run(committed_files.note, self._uri, files)

    def _check(self, request: ReplaceRequest, share: Sequence[FragmentReplacement]) -> list[Candidate]:
        return [Candidate(request, replacement, self._look_at(request, replacement)) for replacement in share]

    def _look_at(self, request: ReplaceRequest, replacement: FragmentReplacement) -> InstallableFile | Rejection:
        try:
            return self._files.prepare(replacement.staged, request.output)
        except (NotFound, DataLoss, FailedPrecondition) as error:
            if isinstance(error, DataLoss):  # somebody has to hear of it, although its rows are computed again
                _log.warning("a staged file is damaged", uri=self._uri, job_id=request.job_id, error=error.message)
            return Rejection(error.reason, error.message)
