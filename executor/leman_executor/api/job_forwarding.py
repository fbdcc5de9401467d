"""Calls about a job that another executor has: they are passed on to that one, whose address stands in the job's lease.

What only the one that has the job can do is done there, and what it alone knows of the job is asked there. A call is
passed on as its caller's own (`leman_core.server.forwarding`), and once: an executor that was given it so answers
by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import grpc
import structlog
from google.protobuf.message import Message

from leman.v1 import jobs_pb2
from leman_core.model.job import JobState
from leman_core.model.keys import job_key
from leman_core.model.service_errors import LemanError, Unavailable
from leman_core.server import channels, status
from leman_core.server.callers import FORWARDED_BY, FORWARDED_FOR, current_caller
from leman_core.server.forwarding import Pair, passed_on
from leman_core.server.interceptors import REQUEST_ID, Context
from leman_core.server.routes import path_of
from leman_core.settings import Settings

_log = structlog.get_logger(__name__)

_HERE = "executor"
_METHODS = jobs_pb2.DESCRIPTOR.services_by_name["JobService"].methods_by_name
_ENDED = frozenset(jobs_pb2.Job.State.Value(f"STATE_{state.value}") for state in JobState if state.terminal)
#: Answers that are no word of the executor that has the job: it is away, or is not the one that was meant.
_NO_WORD = (
    *(grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED),
    *(grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND),
)
_WRONG_PEER = "WRONG_PEER"
#: Pause before an executor that did not answer is looked for again: another one may have the job by then.
_AGAIN_SECONDS = 0.5
#: What is only asked for later news than history has waits no longer.
_ASKED_SECONDS = 2.0
#: What is watched elsewhere and says nothing for so long is looked for again. What continues there is told more often.
_SILENT_SECONDS = 2.0
#: Lifetimes of a lease, after which the job of a dead executor was taken over.
_LIFETIMES = 2.0
_CHANNELS = 32


class JobHolders(Protocol):
    """What knows who has which job."""

    lease_seconds: float

    async def holder(self, key: str) -> str | None:
        """Return the address of the other executor that has a job, see `JobLeases.holder`."""
        ...


#: A request about one job.
JobRequestMessage: TypeAlias = (
    jobs_pb2.CancelJobRequest
    | jobs_pb2.GetJobRequest
    | jobs_pb2.PauseJobRequest
    | jobs_pb2.ResumeJobRequest
    | jobs_pb2.UpdateJobRequest
)
ResponseT = TypeVar("ResponseT", bound=Message)


class WatchMessage(NamedTuple):
    """One message of a watch."""

    message: bytes
    sequence: int
    #: The job has ended.
    over: bool


class OtherExecutors:
    """The other executors of the same databases, for one event loop."""

    def __init__(self, settings: Settings, holders: JobHolders) -> None:
        self._settings = settings
        self._holders = holders
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def answer(
        self,
        kind: type[ResponseT],
        request: JobRequestMessage,
        context: Context,
        here: Callable[[], Awaitable[ResponseT]],
    ) -> ResponseT:
        """Return what `here` answers; where another executor has the job, what that one answers.

        An executor that does not answer is waited for, until its lease has ended and the job is here, or for as long as
        its caller waits.

        Raises:
            Unavailable: JOB_ELSEWHERE – another executor has the job, and cannot be asked.
            LemanError: what `here` or the other executor raises.
        """
        until = time.monotonic() + _LIFETIMES * self._holders.lease_seconds
        while True:
            try:
                return await here()
            except Unavailable as refused:
                if refused.reason != "JOB_ELSEWHERE" or was_forwarded(context):
                    raise
                address = await self._holders.holder(job_key(request.database, request.job_id))
                if address == "":
                    raise
                if address is not None:
                    with contextlib.suppress(_NoWordError):
                        return await self._asked(kind, address, request, context, self._holders.lease_seconds)
                if time.monotonic() + _AGAIN_SECONDS >= until:
                    raise
            await asyncio.sleep(_AGAIN_SECONDS)

    async def ask(self, kind: type[ResponseT], request: JobRequestMessage, context: Context) -> ResponseT | None:
        """Return what the executor that has the job answers; None: there is none, or it does not say at once."""
        address = await self.owner(request.database, request.job_id, context)
        if address:
            with contextlib.suppress(LemanError, _NoWordError):
                return await self._asked(kind, address, request, context, _ASKED_SECONDS)
        return None

    async def owner(self, database: str, job_id: str, context: Context) -> str:
        """Return where the executor is that has the job; empty: there is none that this call could be passed on to."""
        key = job_key(database, job_id)
        return "" if was_forwarded(context) else await self._holders.holder(key) or ""

    async def watch(
        self, address: str, request: jobs_pb2.WatchJobRequest, context: Context, is_here: Callable[[], bool]
    ) -> AsyncGenerator[WatchMessage, None]:
        """Yield what the executor at an address tells of a job, until the job has ended or that one has it no more.

        One that is silent may be frozen, and its connection open: then the job's lease says who has it.

        Args:
            is_here: shows whether this executor has the job by now.
        """
        path = path_of(_METHODS["WatchJob"])
        watch: Any = self._channel(address).unary_stream(path)
        call = watch(request.SerializeToString(), metadata=_metadata(context))
        upcoming: asyncio.Future[Any] | None = None
        key = job_key(request.database, request.job_id)
        try:
            while True:
                upcoming = asyncio.ensure_future(call.read())
                while not (await asyncio.wait((upcoming,), timeout=_SILENT_SECONDS))[0]:
                    # empty: no one can tell
                    if is_here() or await self._holders.holder(key) not in ("", address):
                        _log.info("the executor of a watched job is silent", address=address, job_id=request.job_id)
                        return
                message = upcoming.result()
                if message is grpc.aio.EOF:
                    return
                told = jobs_pb2.WatchJobResponse.FromString(message)
                yield WatchMessage(message, told.sequence, told.job.state in _ENDED)
        except grpc.aio.AioRpcError as error:
            _log.info("a watch of a job elsewhere ends", address=address, job_id=request.job_id, error=error.details())
        finally:
            call.cancel()
            if upcoming is not None:
                upcoming.cancel()
                await asyncio.gather(upcoming, return_exceptions=True)

    async def cancel(self, database: str, job_ids: list[str], context: Context) -> list[jobs_pb2.Job]:
        """Ask jobs of other executors to stop; return those that were asked."""
        wanted = (jobs_pb2.CancelJobRequest(database=database, job_id=job_id) for job_id in job_ids)
        answers = await asyncio.gather(*(self.ask(jobs_pb2.CancelJobResponse, asked, context) for asked in wanted))
        return [answer.job for answer in answers if answer is not None]

    async def close(self) -> None:
        """Close the connections."""
        for channel in self._channels.values():
            await channel.close()

    async def _asked(
        self, kind: type[ResponseT], address: str, request: JobRequestMessage, context: Context, seconds: float
    ) -> ResponseT:
        """Return the answer of the executor at an address.

        Raises:
            _NoWordError: it does not answer, or is not the one that has the job.
            LemanError: what it refuses the call with.
        """
        left: float | None = context.time_remaining()
        method = _METHODS[kind.DESCRIPTOR.name.removesuffix("Response")]
        call: Any = self._channel(address).unary_unary(path_of(method))
        try:
            answer: bytes = await call(
                request.SerializeToString(),
                timeout=seconds if left is None else min(seconds, left),
                metadata=_metadata(context),
            )
        except grpc.aio.AioRpcError as error:
            known = status.error_from_rpc(error)
            if error.code() in _NO_WORD or known.reason == _WRONG_PEER:
                _log.info(
                    "the executor of a job does not answer", address=address, method=method.name, error=str(known)
                )
                raise _NoWordError from None
            raise known from None
        return kind.FromString(answer)

    def _channel(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.pop(address, None) or channels.open_to(self._settings, address)
        self._channels[address] = channel  # as the one used last
        if len(self._channels) > _CHANNELS:
            oldest = self._channels.pop(next(iter(self._channels)))
            asyncio.get_running_loop().create_task(oldest.close(grace=_ASKED_SECONDS))
        return channel


class _NoWordError(Exception):
    """The executor that has a job says nothing."""


def was_forwarded(context: Context) -> bool:
    """Return whether another executor passed a call on, which took this one for the one that has its job."""
    return dict(context.invocation_metadata() or ()).get(FORWARDED_BY) == _HERE


def _metadata(context: Context) -> tuple[Pair, ...]:
    """Return what a call passed on from here carries: it is its caller's, wherever it came in first."""
    caller = current_caller()
    if caller is None:
        raise RuntimeError("a call has no caller")
    given = tuple(context.invocation_metadata() or ())
    known: dict[str, str | bytes] = dict(given)
    address = str(known.get(FORWARDED_FOR, "")) if FORWARDED_BY in known else ""
    minted = () if REQUEST_ID in known else ((REQUEST_ID, structlog.contextvars.get_contextvars()["request_id"]),)
    return passed_on((*given, *minted), _HERE, caller, address or context.peer())
