"""What is refused before it is looked at: more calls of a method than may be at work, unknown calls, large metadata."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import grpc
import structlog

from leman_core.model.service_errors import CALL_NOT_OFFERED, LemanError, ResourceExhausted, Unavailable, Unimplemented
from leman_core.server import status
from leman_core.server.interceptors import REQUEST_ID
from leman_core.settings import Server
from leman_core.telemetry import instruments
from leman_core.telemetry.instruments import Attributes, measure_call, method_attributes

#: Services that are never refused: who asks whether a process lives is to hear that it does.
_NEVER_REFUSED = ("/grpc.health.v1.Health/", "/grpc.reflection.")
#: Calls that are like open streams: they take as long as what they wait for.
_WAITS = "Wait"
#: Calls that may be at work while their method is overloaded.
_OVERLOADED_CALLS = 32
#: A method is overloaded where for so long no call of it took less than `_SLOW_SECONDS`, and many were at work.
_LOOK_SECONDS = 1.0
_SLOW_SECONDS = 0.5
_RETRY_SECONDS = 1.0
#: Bytes of the metadata of a call. gRPC lets four times as much in, so that it is for us to refuse it.
MAX_METADATA_BYTES = 16 << 10
#: Bytes that gRPC adds to the size of each entry.
_ENTRY_BYTES = 32
_LONGEST_METHOD = 200

log = structlog.get_logger(__name__)

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Continuation: TypeAlias = Callable[[grpc.HandlerCallDetails], Awaitable["Handler | None"]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as it is sent."""

    code: grpc.StatusCode
    message: str
    trailers: tuple[tuple[str, str | bytes], ...]

    @classmethod
    def of(cls, error: LemanError) -> Refusal:
        """Return what is sent of an error."""
        return cls(status.code_of(error), status.header_message(error.message), status.trailers_of(error))

    async def end(self, context: Context) -> NoReturn:
        """End a call with it."""
        told = [(key, value) for key, value in context.invocation_metadata() or () if key == REQUEST_ID]
        await context.abort(self.code, self.message, (*self.trailers, *told))


class CallBudget:
    """The number of calls of one method that may be at work, for one event loop.

    A burst may fill it. A method of which every call takes long is overloaded: from then on as few may be at work as
    are answered within a fraction of a second. So callers hear at once that they are too many, and what waits is done
    soon after they are not any more: once fewer than half of those few are at work, the budget is the whole one again.

    Args:
        method: Its path, or its name.
        most: Calls at once.
        sheds: Whether the method can be overloaded. An open stream takes as long as its caller likes.
        clock: Returns seconds.
    """

    def __init__(
        self, method: str, most: int, *, sheds: bool = True, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._method = method.rpartition(".")[2]
        self._path = method
        self._most = most
        self._most_overloaded = min(most, _OVERLOADED_CALLS) if sheds else most
        self._clock = clock
        self._at_work = 0
        self._overloaded = False
        self._fastest: float | None = None
        self._since = clock()
        self._refused = 0
        self._told = 0.0
        error = ResourceExhausted(
            "TOO_MANY_CALLS",
            f"as many calls of {self._method} are at work as may be: send the call again after the delay in RetryInfo",
            retry_after_seconds=_RETRY_SECONDS,
        )
        #: What a call hears that is one too many; made once, as it is to cost as little as can be.
        self.refusal = Refusal.of(error)

    @property
    def full(self) -> bool:
        """Return whether one more call would be too many."""
        return self._at_work >= (self._most_overloaded if self._overloaded else self._most)

    @property
    def used(self) -> float:
        """The share of the calls that may be at work which are."""
        return self._at_work / (self._most_overloaded if self._overloaded else self._most)

    def begin(self) -> float:
        """Note that a call is at work; return what `end` is to be given."""
        if not self._at_work:
            self._fastest, self._since = None, self._clock()
        self._at_work += 1
        return self._clock()

    def end(self, begun: float) -> None:
        """Note that a call is over."""
        self._at_work -= 1
        now = self._clock()
        took = now - begun
        self._fastest = took if self._fastest is None else min(took, self._fastest)
        if now - self._since >= _LOOK_SECONDS:
            many = self._at_work >= self._most_overloaded
            self._overloaded = self._overloaded or (many and self._fastest >= _SLOW_SECONDS)
            self._fastest, self._since = None, now
        if self._at_work < self._most_overloaded // 2:
            self._overloaded = False

    def note_refusal(self) -> None:
        """Count a call that is refused; the log tells of all of them once a second."""
        measure_call(self._path, 0.0, "RESOURCE_EXHAUSTED", "TOO_MANY_CALLS")
        self._refused += 1
        now = self._clock()
        if now - self._told >= _LOOK_SECONDS:
            log.warning("calls are refused", method=self._method, refused=self._refused, at_work=self._at_work)
            self._refused, self._told = 0, now


class BudgetInterceptor(grpc.aio.ServerInterceptor):
    """What keeps every method within a budget of its own, so that what floods one leaves the others alone.

    A call that is one too many ends before its message is read. A stream of which no one takes a message for
    `stalled_stream_seconds` ends too.
    """

    def __init__(self, settings: Server) -> None:
        self._settings = settings
        self._methods: dict[str, tuple[CallBudget, Handler, Handler]] = {}
        instruments.CALL_BUDGET.show(self._used)

    def _used(self) -> list[tuple[float, Attributes]]:
        """Return the share of each method's budget that is used, from any thread."""
        return [(budget.used, method_attributes(method)) for method, (budget, *_) in list(self._methods.items())]

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Return the handler of a call: the method's own, or one that refuses."""
        method = handler_call_details.method
        metadata = handler_call_details.invocation_metadata or ()
        size = sum(len(key) + len(value) + _ENTRY_BYTES for key, value in metadata)
        if size > MAX_METADATA_BYTES:
            return _refusing_all(_large_metadata(size))
        known = self._methods.get(method)
        if known is None:
            handler = await continuation(handler_call_details)
            if method.startswith(_NEVER_REFUSED):
                return handler
            if handler is None:
                return _refusing_all(_not_offered(method))
            known = self._methods[method] = self._kept_within(method, handler)
        budget, kept, refusing = known
        return refusing if budget.full else kept

    def _kept_within(self, method: str, handler: Any) -> tuple[CallBudget, Handler, Handler]:
        waits = method.rpartition("/")[2].startswith(_WAITS)
        streams = handler.request_streaming or handler.response_streaming or waits
        most = self._settings.max_streams if streams else self._settings.max_calls
        budget = CallBudget(method, most, sheds=not streams)
        codec = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        stalled = self._settings.stalled_stream_seconds
        if handler.request_streaming and handler.response_streaming:
            kept = grpc.stream_stream_rpc_method_handler(_written(budget, handler.stream_stream, stalled), **codec)
        elif handler.response_streaming:
            kept = grpc.unary_stream_rpc_method_handler(_written(budget, handler.unary_stream, stalled), **codec)
        elif handler.request_streaming:
            kept = grpc.stream_unary_rpc_method_handler(_answered(budget, handler.stream_unary), **codec)
        else:
            kept = grpc.unary_unary_rpc_method_handler(_answered(budget, handler.unary_unary), **codec)
        # as one that is sent a stream: gRPC reads the message of any other call first
        return budget, kept, grpc.stream_unary_rpc_method_handler(_refusing(budget))


def _answered(budget: CallBudget, behavior: Callable[[Any, Context], Awaitable[Any]]) -> Any:
    async def call(request: Any, context: Context) -> Any:
        if budget.full:  # others have come since it was let in
            await _refuse(budget, context)
        begun = budget.begin()
        try:
            return await behavior(request, context)
        finally:
            budget.end(begun)

    return call


def _written(budget: CallBudget, behavior: Callable[[Any, Context], Any], stalled_seconds: float) -> Any:
    """Return a handler that writes the messages itself.

    So it ends the generator that makes them as soon as the call is over, and what that holds is free.
    """

    async def call(request: Any, context: Context) -> None:
        if budget.full:
            await _refuse(budget, context)
        begun = budget.begin()
        try:
            async with contextlib.aclosing(behavior(request, context)) as messages:
                async for message in messages:
                    async with asyncio.timeout(stalled_seconds):
                        await context.write(message)
        except TimeoutError:
            await Refusal.of(_stalled(stalled_seconds)).end(context)
        finally:
            budget.end(begun)

    return call


def _refusing_all(error: LemanError) -> Handler:
    """Return a handler that ends each call with an error, without a look at what is sent."""
    refusal = Refusal.of(error)

    async def refuse(_requests: Any, context: Context) -> None:
        await refusal.end(context)

    return grpc.stream_unary_rpc_method_handler(refuse)


def _large_metadata(size: int) -> LemanError:
    return ResourceExhausted(
        "MESSAGE_TOO_LARGE",
        f"the metadata of the call has {size} bytes, and may have {MAX_METADATA_BYTES}: send less in its headers",
        retry_after_seconds=0,
        largest=MAX_METADATA_BYTES,
    )


def _not_offered(method: str) -> LemanError:
    return Unimplemented(
        CALL_NOT_OFFERED,
        f"{method[:_LONGEST_METHOD]} is no call of this service: it is another service's, or client and service are of "
        "different releases",
        method=method[:_LONGEST_METHOD],
    )


def _refusing(budget: CallBudget) -> Any:
    async def refuse(_requests: Any, context: Context) -> None:
        await _refuse(budget, context)

    return refuse


async def _refuse(budget: CallBudget, context: Context) -> NoReturn:
    budget.note_refusal()
    await budget.refusal.end(context)


def _stalled(seconds: float) -> LemanError:
    return Unavailable(
        "READER_STALLED",
        f"no one took a message of this stream for {seconds:g} s: send the call again, and read what it answers",
    )
