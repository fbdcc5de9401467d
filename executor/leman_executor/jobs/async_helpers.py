"""Ways to wait for asynchronous work: with patience, together, or for several pieces of which one error ends all."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Generic, ParamSpec, TypeVar

import tenacity

from leman_core.model.service_errors import NEVER_REACHED, ResourceExhausted, Unavailable

_PATIENCE_SECONDS = 120.0
#: Patience while a caller waits for the answer, who may send the call again.
_CALLERS_PATIENCE_SECONDS = 60.0
_CALLER_WAITS: ContextVar[bool] = ContextVar("caller_waits", default=False)

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")


async def retry_unavailable(
    call: Callable[_Arguments, Awaitable[_Result]], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> _Result:
    """Make a call, again while the service cannot be reached or has too much to do, for two minutes.

    An unknown outcome is not a failure, and neither is a service that others keep busy. A message that is too large is
    not sent again. Inside of `caller_waits` the patience is that of callers.
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
    """Have `patiently` try for a minute only, and once where a peer was never reached: its address may be wrong."""
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


class SharedRead(Generic[_Result]):
    """A look at something that others change, made once for all who asked before it began; for one event loop.

    Who asks while a look is under way waits for the next one: what they ask about may have come after it began. So
    there is one look under way and one to come at the most, however many ask, and no one waits longer than for two.
    """

    def __init__(self, look: Callable[[], Awaitable[_Result]]) -> None:
        self._look = look
        self._under_way: asyncio.Task[_Result] | None = None
        self._to_come: asyncio.Task[_Result] | None = None

    async def __call__(self) -> _Result:
        """Return what a look finds that begins after this call, or raise what it raises."""
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
    """Run all to the end; the first error ends the others and is raised as it is."""
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
    """Wait until all have ended; then the error of the first of them that failed is raised.

    So nothing is under way any more when this raises.
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
    """Make calls, `count` at once, and return the results in the order of the calls.

    After an error no call is begun any more; the first error is raised when the calls under way have ended, as threads
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
    """Take the error out of an ended future, as a callback: where a job ends by something else, no one asks for it."""
    _ = ended.cancelled() or ended.exception()
