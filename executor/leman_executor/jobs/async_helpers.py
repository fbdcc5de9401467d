"""Retry, share, group and limit asynchronous calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Generic, ParamSpec, TypeVar

import structlog
import tenacity

from leman_core.model.service_errors import NEVER_REACHED, Aborted, ResourceExhausted, Unavailable
from leman_core.server.blocking import run_in_job_thread
from leman_core.storage.storage_errors import STORE_UNAVAILABLE

_log = structlog.get_logger(__name__)

_PATIENCE_SECONDS = 120.0
#: Seconds for which calls are retried while a caller waits. The caller can retry afterwards.
_CALLERS_PATIENCE_SECONDS = 60.0
_CALLER_WAITS: ContextVar[bool] = ContextVar("caller_waits", default=False)

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


async def retry_unavailable(
    call: Callable[_Arguments, Awaitable[_Result]], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """Make a call, and retry for two minutes while the service is unreachable or overloaded.

    A call with an unknown outcome is retried too. A call whose message is too large is not. Inside
    `within_call_deadline`, retries end earlier.
    """
    waited_for = _CALLER_WAITS.get()
    async for attempt in tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(_may_pass_for_a_caller if waited_for else _may_pass),
        stop=tenacity.stop_after_delay(_CALLERS_PATIENCE_SECONDS if waited_for else _PATIENCE_SECONDS),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=3),
        reraise=True,
    ):
        with attempt:
            return await call(*args, **kwargs)
    raise AssertionError("the loop returns or raises")


@contextlib.contextmanager
def within_call_deadline() -> Iterator[None]:
    """Limit `retry_unavailable` to one minute. Do not retry a peer that was never reached: its address may be wrong."""
    before = _CALLER_WAITS.set(True)
    try:
        yield
    finally:
        _CALLER_WAITS.reset(before)


def _may_pass_for_a_caller(error: BaseException) -> bool:
    return _may_pass(error) and not (isinstance(error, Unavailable) and NEVER_REACHED in error.facts)


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, ResourceExhausted):
        return error.retry_after_seconds > 0
    return isinstance(error, Unavailable)


async def run_storage_work(
    work: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """Run work on files in a thread. Turn unavailable storage into an error after which the job plans again.

    Raises:
        Aborted: STORAGE_ERROR – files cannot be read or written now. The cause may be that the source was cleaned up,
            or that another refresh dropped the scratch table. A new plan takes either into account.
        LemanError: any other error of the work, such as FailedPrecondition if the storage denies access.
    """
    try:
        return await run_in_job_thread(work, *args, **kwargs)
    except Unavailable as error:
        if error.reason != STORE_UNAVAILABLE:
            raise
        _log.warning("files of a job cannot be used", exc_info=True)
        raise Aborted("STORAGE_ERROR", error.message) from None


class SharedRead(Generic[_Result]):
    """Share reads of some state among callers on one event loop: one read answers all calls made before it began.

    A call during a read waits for the next read, because the state may have changed after the current read began. At
    most one read runs and one is pending, so no caller waits longer than two reads.
    """

    def __init__(self, look: Callable[[], Awaitable[_Result]]) -> None:
        self._look = look
        self._under_way: asyncio.Task[_Result] | None = None
        self._to_come: asyncio.Task[_Result] | None = None

    async def __call__(self) -> _Result:
        """Return the result of a read that begins after this call, or raise its error."""
        if self._to_come is None:
            self._to_come = asyncio.create_task(self._after(self._under_way))
            self._to_come.add_done_callback(ignore_result)
        return await asyncio.shield(self._to_come)

    async def _after(self, before: asyncio.Task[_Result] | None) -> _Result:
        if before is not None:
            await asyncio.wait((before,))
        self._under_way, self._to_come = self._to_come, None
        return await self._look()


async def run_all_or_raise(*work: Awaitable[None]) -> None:
    """Wait for all of `work`. The first error cancels the others, and is raised unchanged."""
    tasks = [asyncio.ensure_future(w) for w in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def wait_all(*tasks: asyncio.Future[Any]) -> None:
    """Wait until all tasks have ended, then raise the error of the first one that failed.

    No task is still running when this raises.
    """
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    errors = [task.exception() for task in tasks]
    for error in errors:
        if error is not None:
            raise error


async def gather_limited(count: int, calls: Sequence[Callable[[], Awaitable[_Result]]]) -> list[_Result]:
    """Make calls, at most `count` concurrently, and return the results in the order of the calls.

    After an error no further call starts. The first error is raised once the running calls have ended, because threads
    cannot be stopped.
    """
    waiting = deque(enumerate(calls))
    results: dict[int, _Result] = {}
    errors: list[BaseException] = []

    async def worker() -> None:
        while waiting:
            at, call = waiting.popleft()
            try:
                results[at] = await call()
            except BaseException as error:
                waiting.clear()
                errors.append(error)
                raise

    await asyncio.gather(*(worker() for _ in range(count)), return_exceptions=True)
    if errors:
        raise errors[0]
    return [results[at] for at in range(len(calls))]


def ignore_result(ended: asyncio.Future[Any]) -> None:
    """A callback for a future that may never be awaited: retrieve its error, so that asyncio does not log it."""
    _ = ended.cancelled() or ended.exception()
