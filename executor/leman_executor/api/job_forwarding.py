"""Forward calls about a job to the executor that runs it, whose address is in the job's lease.

Only that executor can change the job, and only it has the latest state. A call is forwarded with its caller's identity
(`leman_core.server.forwarding`), and only once: the receiving executor does not forward it again.
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
from leman_core.server.forwarding import Pair, forwarded_call_metadata
from leman_core.server.interceptors import REQUEST_ID, Context
from leman_core.server.routes import path_of
from leman_core.settings import Settings

_log = structlog.get_logger(__name__)

_HERE = "executor"
_METHODS = jobs_pb2.DESCRIPTOR.services_by_name["JobService"].methods_by_name
_ENDED = frozenset(jobs_pb2.Job.State.Value(f"STATE_{state.value}") for state in JobState if state.terminal)
#: Errors after which another executor counts as unreachable, or no longer counts as the job's owner.
_NO_WORD = (
    *(grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED),
    *(grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND),
)
_WRONG_PEER = "WRONG_PEER"
#: Pause before the owner is looked up again after it did not respond. Another executor may have the job by then.
_AGAIN_SECONDS = 0.5
#: Timeout of calls that only ask for a state that is newer than the one in the history.
_ASKED_SECONDS = 2.0
#: Silence after which the owner of a watched job is looked up again. The owner of a running job sends messages more
#: often.
_SILENT_SECONDS = 2.0
#: Number of lease lifetimes after which another executor has taken over the jobs of a dead one.
_LIFETIMES = 2.0
_CHANNELS = 32


class JobHolders(Protocol):
    """Find out which executor owns a job."""

    lease_seconds: float

    async def holder(self, key: str) -> str | None:
        """Return the address of the other executor that has a job; see `JobLeases.holder`."""
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
    """One message of a watch stream."""

    message: bytes
    sequence: int
    #: Whether the job has ended.
    over: bool


class OtherExecutors:
    """The other executors of the same databases. Use it on one event loop."""

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
        """Return the result of `here` or, if another executor has the job, of that executor.

        If the other executor does not respond, retry until the caller's deadline, or until that executor's lease has
        ended and this executor has the job.

        Raises:
            Unavailable: JOB_ELSEWHERE – another executor has the job, and is unreachable.
            LemanError: as `here` or the other executor raises.
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
        """Return the response of the executor that has the job.

        Return None if no other executor has it, or that one is slow.
        """
        address = await self.owner(request.database, request.job_id, context)
        if address:
            with contextlib.suppress(LemanError, _NoWordError):
                return await self._asked(kind, address, request, context, _ASKED_SECONDS)
        return None

    async def owner(self, database: str, job_id: str, context: Context) -> str:
        """Return the address of the executor that has the job. Return "" if this call cannot be forwarded."""
        key = job_key(database, job_id)
        return "" if was_forwarded(context) else await self._holders.holder(key) or ""

    async def watch(
        self, address: str, request: jobs_pb2.WatchJobRequest, context: Context, is_here: Callable[[], bool]
    ) -> AsyncGenerator[WatchMessage, None]:
        """Yield the messages of the executor at `address`, until the job has ended or that executor no longer has it.

        A silent executor may be suspended with its connection open. In that case the job's lease decides whether the
        executor still has the job.

        Args:
            is_here: Returns whether this executor now has the job.
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
                    # The holder is empty if unknown.
                    if is_here() or await self._holders.holder(key) not in ("", address):
                        _log.info("the executor of a watched job sends nothing", address=address, job_id=request.job_id)
                        return
                message = upcoming.result()
                if message is grpc.aio.EOF:
                    return
                told = jobs_pb2.WatchJobResponse.FromString(message)
                yield WatchMessage(message, told.sequence, told.job.state in _ENDED)
        except grpc.aio.AioRpcError as error:
            _log.info("a watch on another executor ends", address=address, job_id=request.job_id, error=error.details())
        finally:
            call.cancel()
            if upcoming is not None:
                upcoming.cancel()
                await asyncio.gather(upcoming, return_exceptions=True)

    async def cancel(self, database: str, job_ids: list[str], context: Context) -> list[jobs_pb2.Job]:
        """Cancel jobs on other executors. Return those jobs whose executor was reached."""
        wanted = (jobs_pb2.CancelJobRequest(database=database, job_id=job_id) for job_id in job_ids)
        answers = await asyncio.gather(*(self.ask(jobs_pb2.CancelJobResponse, asked, context) for asked in wanted))
        return [answer.job for answer in answers if answer is not None]

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def _asked(
        self, kind: type[ResponseT], address: str, request: JobRequestMessage, context: Context, seconds: float
    ) -> ResponseT:
        """Return the response of the executor at an address.

        Raises:
            _NoWordError: The executor does not respond, or does not have the job.
            LemanError: The executor refuses the call.
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
                    "the executor of a job does not respond", address=address, method=method.name, error=str(known)
                )
                raise _NoWordError from None
            raise known from None
        return kind.FromString(answer)

    def _channel(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.pop(address, None) or channels.open_to(self._settings, address)
        self._channels[address] = channel  # the most recently used one
        if len(self._channels) > _CHANNELS:
            oldest = self._channels.pop(next(iter(self._channels)))
            asyncio.get_running_loop().create_task(oldest.close(grace=_ASKED_SECONDS))
        return channel


class _NoWordError(Exception):
    """The executor that has the job does not respond."""


def was_forwarded(context: Context) -> bool:
    """Return whether another executor forwarded a call to this one as the owner of the job."""
    return dict(context.invocation_metadata() or ()).get(FORWARDED_BY) == _HERE


def _metadata(context: Context) -> tuple[Pair, ...]:
    """Return the metadata of a forwarded call, which keeps the caller's identity."""
    caller = current_caller()
    if caller is None:
        raise RuntimeError("a call has no caller")
    given = tuple(context.invocation_metadata() or ())
    known: dict[str, str | bytes] = dict(given)
    address = str(known.get(FORWARDED_FOR, "")) if FORWARDED_BY in known else ""
    minted = () if REQUEST_ID in known else ((REQUEST_ID, structlog.contextvars.get_contextvars()["request_id"]),)
    return forwarded_call_metadata((*given, *minted), _HERE, caller, address or context.peer())
