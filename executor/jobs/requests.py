"""The same request again gives the same job, also while that is being made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from core.domain.job import Job
from core.domain.plan import BackfillSpec
from core.domain.view import RefreshSpec
from core.errors import AlreadyExists


@dataclass(frozen=True, slots=True, eq=False)
class Making:
    """A job that is being made; `answer` is it, or why there is none."""

    spec: BackfillSpec
    refresh: RefreshSpec | None
    answer: asyncio.Future[Job]


class Requests:
    """Jobs that are being made, by the ids of their requests."""

    def __init__(self) -> None:
        self._making: dict[str, Making] = {}

    def find(self, request_id: str, jobs: Iterable[Job]) -> Making | Job | None:
        """What became of a request: a job that is being made, one of `jobs`, or nothing yet."""
        if not request_id:
            return None
        if request_id in self._making:
            return self._making[request_id]
        return next((job for job in jobs if job.request_id == request_id), None)

    async def make(
        self, request_id: str, spec: BackfillSpec, refresh: RefreshSpec | None, work: Callable[[], Awaitable[Job]]
    ) -> Job:
        """Makes a job, while the same request finds it here."""
        if not request_id:
            return await work()
        answer: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._making[request_id] = Making(spec, refresh, answer)
        try:
            job = await work()
            answer.set_result(job)
            return job
        except BaseException as error:
            answer.set_exception(error)
            answer.exception()  # somebody may or may not wait for it
            raise
        finally:
            self._making.pop(request_id, None)


def check_request(known: Making | Job, request_id: str, spec: BackfillSpec, refresh: RefreshSpec | None) -> None:
    """Raises AlreadyExists (REQUEST_ID_REUSED) where the request was for something else."""
    # relative times in a filter, and the latest version of a source, are pinned when a job starts
    asked = known.spec
    same = replace(asked, where="") == replace(spec, where="") and bool(asked.where) == bool(spec.where)
    if not same or not _same_refresh(known.refresh, refresh):
        raise AlreadyExists("REQUEST_ID_REUSED", f"request id {request_id} was used for another job: choose a new one")


def _same_refresh(known: RefreshSpec | None, asked: RefreshSpec | None) -> bool:
    if known is None or asked is None:
        return known is asked
    same = replace(known, src_version=0, latest=False) == replace(asked, src_version=0, latest=False)
    return same and (not asked.src_version or asked.src_version == known.src_version)
