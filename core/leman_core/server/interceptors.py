"""What happens around every call: request id, rights, error map, one line in the log. One interceptor, for speed."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

import grpc
import structlog

from leman_core.model.errors import Internal, InvalidArgument, LemanError
from leman_core.server import audit, status
from leman_core.server.activity import Activity
from leman_core.server.auth.authentication import Authenticator
from leman_core.server.auth.caller import CURRENT, Caller
from leman_core.server.auth.requirements import Requirement, requirement_of
from leman_core.server.blocking import STORE, store_unavailable
from leman_core.server.caller_limits import CallerLimits
from leman_core.server.early_answers import hear_out
from leman_core.server.field_paths import path_in
from leman_core.server.places import RequestPlaces, hide_links
from leman_core.server.uninterrupted_calls import Outliving
from leman_core.server.unreadable import Unreadable, check_answer, reader, subject
from leman_core.telemetry.call_measures import measure_call
from leman_core.telemetry.call_spans import begin_call, end_call

REQUEST_ID = "x-request-id"
#: Services that ask nobody who they are, and are neither logged nor counted.
OPEN_SERVICES = ("/grpc.health.v1.Health/", "/grpc.reflection.")
_LONGEST_REQUEST_ID = 128
#: Of the time that a caller gives a call, how much is kept for the way of the answer.
_MARGIN, _LONGEST_MARGIN = 0.1, 0.5

log = structlog.get_logger(__name__)
_root = logging.getLogger()  # leman_core.telemetry.logs keeps its level equal to structlog's

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Continuation: TypeAlias = Callable[[grpc.HandlerCallDetails], Awaitable["Handler | None"]]


class CallInterceptor(grpc.aio.ServerInterceptor):
    """What wraps the methods of every service but health and reflection.

    - `x-request-id` is taken from the caller or made, bound to log lines, and sent back as a trailer.
    - A call of somebody who is not known, calls too often, or may not make it, ends before its handler sees it;
      handlers find the caller in `leman_core.server.auth.caller.current_caller`.
    - A LemanError, or the error of a call to another service, becomes its status, with the path of the field that is
      wrong in the request that the caller sent; anything else INTERNAL, logged with traceback.
    - A message that is too large, in either direction, ends its call with a reason.
    - A unary method that changes something runs to its end although its caller hangs up: see `Outliving`. One that is
      sent a stream ends with its caller; what it does once all was sent, it protects itself.
    """

    def __init__(
        self,
        callers: Authenticator,
        limits: CallerLimits,
        places: RequestPlaces,
        activity: Activity,
        changes: Outliving,
        largest: int,
    ) -> None:
        """`largest`: bytes that a message may have."""
        self._largest = largest
        self._callers = callers
        self._limits = limits
        self._places = places
        self._activity = activity
        self._changes = changes
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Return the wrapped handler; each method is wrapped once."""
        method = handler_call_details.method
        known = self._wrapped.get(method)
        if known is not None:
            return known
        handler = await continuation(handler_call_details)
        if handler is None or method.startswith(OPEN_SERVICES):
            return handler
        self._wrapped[method] = self._wrap(method, handler)
        return self._wrapped[method]

    def _wrap(self, method: str, handler: Any) -> Handler:
        read, written = reader(handler.request_deserializer, self._largest), self._writer(handler.response_serializer)
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(self._exchanging(method, handler.stream_stream, written), read)
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(self._receiving(method, handler.stream_unary, written), read)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(self._streaming(method, handler.unary_stream, written), read)
        return grpc.unary_unary_rpc_method_handler(self._unary(method, handler.unary_unary, written), read)

    def _writer(self, serialise: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
        """Return what makes bytes of an answer; a handler may have made them itself."""

        def written(answer: Any) -> bytes:
            message = answer if isinstance(answer, bytes) else serialise(answer)
            check_answer(message, self._largest)
            return message

        return written

    def _unary(
        self,
        method: str,
        behavior: Callable[[Any, Context], Coroutine[Any, Any, Any]],
        written: Callable[[Any], bytes],
    ) -> Any:
        required = requirement_of(method)
        name = method.rpartition("/")[2]

        async def call(request: Any, context: Context) -> Any:
            with _Call(method, context, self._activity, reads=required.reads) as current:
                try:
                    await self._admit(current, required, request, context)
                    await self._settle(current, current.request, required)
                    work = behavior(request, context)
                    running = work if required.reads else self._changes.run(name, work)
                    return written(await _in_time(running, context, STORE.get()))
                except Exception as error:  # noqa: BLE001 - the last place where an error can become a status
                    await current.fail(error)

        return call

    def _streaming(self, method: str, behavior: Callable[[Any, Context], Any], written: Callable[[Any], bytes]) -> Any:
        if not inspect.isasyncgenfunction(behavior):
            raise TypeError(f"{method}: a streaming method is an async generator")
        required = requirement_of(method)

        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            with _Call(method, context, self._activity, reads=required.reads) as current:
                try:
                    await self._admit(current, required, request, context)
                    await self._settle(current, current.request, required)
                    async with contextlib.aclosing(behavior(request, context)) as messages:
                        async for message in messages:
                            yield written(message)
                except Exception as error:  # noqa: BLE001 - the last place where an error can become a status
                    await current.fail(error)

        return call

    def _receiving(
        self,
        method: str,
        behavior: Callable[[Any, Context], Coroutine[Any, Any, Any]],
        written: Callable[[Any], bytes],
    ) -> Any:
        required = requirement_of(method)
        at_once = replace(required, code_where=())

        async def call(requests: AsyncIterator[Any], context: Context) -> Any:
            with _Call(method, context, self._activity, reads=required.reads) as current:
                try:
                    caller = await self._admit(current, at_once, None, context)
                    async with contextlib.aclosing(self._admitted(current, requests, required, caller)) as messages:
                        answer = written(await behavior(messages, context))
                    await hear_out(requests)
                except Exception as error:  # noqa: BLE001 - the last place where an error can become a status
                    await hear_out(requests)
                    await current.fail(error)
                return answer

        return call

    def _exchanging(self, method: str, behavior: Callable[[Any, Context], Any], written: Callable[[Any], bytes]) -> Any:
        required = requirement_of(method)
        at_once = replace(required, code_where=())

        async def call(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            with _Call(method, context, self._activity, reads=required.reads) as current:
                try:
                    caller = await self._admit(current, at_once, None, context)
                    async with (
                        contextlib.aclosing(self._admitted(current, requests, required, caller)) as messages,
                        contextlib.aclosing(behavior(messages, context)) as answers,
                    ):
                        async for answer in answers:
                            yield written(answer)
                    await hear_out(requests)
                except Exception as error:  # noqa: BLE001 - the last place where an error can become a status
                    await hear_out(requests)
                    await current.fail(error)

        return call

    async def _settle(self, call: _Call, request: Any, required: Requirement) -> None:
        settled = await self._places.settle(request, from_peer=required.of_peers)
        call.linked |= settled.linked
        STORE.set(settled.store)

    async def _admit(self, call: _Call, required: Requirement, request: Any, context: Context) -> Caller:
        call.required, call.request = required, None if isinstance(request, Unreadable) else subject(request)
        call.take(request)
        call.caller = caller = await self._callers.caller_of(call.metadata, context, basic=required.basic)
        self._limits.admit(caller, required, context)
        CURRENT.set(caller)
        if isinstance(request, Unreadable):
            raise request.error
        required.check(caller, call.request)
        return caller

    async def _admitted(
        self, call: _Call, requests: AsyncIterator[Any], required: Requirement, caller: Caller
    ) -> AsyncGenerator[Any, None]:
        """Pass on the messages that the caller may send."""
        async for request in requests:
            if isinstance(request, Unreadable):
                raise request.error
            about = subject(request)
            if about is not None:
                call.take(request)
                required.check(caller, about)
                await self._settle(call, about, required)
                call.about = call.about or audit.subjects(about)
            yield request


async def _in_time(work: Awaitable[Any], context: Context, store: str) -> Any:
    """Return what a call about a store answers; shortly before its caller's deadline, say that the store does not.

    Raises:
        Unavailable: STORE_UNAVAILABLE.
    """
    left = context.time_remaining() if store else None
    if left is None:
        return await work
    try:
        async with asyncio.timeout(max(0.0, left - min(_LONGEST_MARGIN, left * _MARGIN))) as limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        raise store_unavailable(store, f"has not answered within the deadline of {left:.1f} s") from None


class _Call:
    """One call from its first to its last moment."""

    def __init__(self, method: str, context: Context, activity: Activity, *, reads: bool) -> None:
        self._path, self._reads = method, reads
        self._method = method.rpartition(".")[2]
        self._context = context
        self._activity = activity
        self._outcome: dict[str, str] = {"code": "OK"}
        self._error: BaseException | None = None
        self.required: Requirement | None = None
        self.caller: Caller | None = None
        self.request: Any = None
        #: The request, or the last one of a stream, or what that carries: then it has fields of its own beside.
        self.message: Any = None
        self.is_carried = False
        #: Of the places that were given by name, or lead through links: canonical form → as the caller sent it.
        self.linked: dict[str, str] = {}
        #: What it is about, where `request` does not tell.
        self.about: dict[str, str] = {}
        self.metadata: dict[str, str | bytes] = dict(context.invocation_metadata() or ())
        given = self.metadata.get(REQUEST_ID)
        usable = isinstance(given, str) and 0 < len(given) <= _LONGEST_REQUEST_ID
        self._request_id = str(given) if usable else os.urandom(16).hex()

    def __enter__(self) -> _Call:
        self._activity.begin()
        self._started = time.perf_counter()
        structlog.contextvars.bind_contextvars(request_id=self._request_id)
        self._span = begin_call(self._path, self.metadata, reads=self._reads)
        self._context.set_trailing_metadata(((REQUEST_ID, self._request_id),))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        self._activity.end()
        if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
            self._outcome = {"code": "CANCELLED"}
        took = time.perf_counter() - self._started
        code, reason = self._outcome["code"], self._outcome.get("reason", "")
        measure_call(self._path, took, code, reason)
        if self._span is not None:
            end_call(self._span, code, reason)
        self._write_line(took)

    def take(self, request: Any) -> None:
        """Note the request, in whose fields errors are told."""
        self.message = None if isinstance(request, Unreadable) else subject(request)
        self.is_carried = self.message is not request

    async def fail(self, error: Exception) -> NoReturn:
        """End the call with the status of an error."""
        if isinstance(error, grpc.aio.AbortError):
            self._outcome = {"code": self._context.code().name}
            raise error
        known = self._known(error)
        if isinstance(known, InvalidArgument) and self.message is not None:
            path = path_in(self.message, known.field)
            known.field = path or (known.field if self.is_carried else "")
        hide_links(known, self.linked)
        code = status.code_of(known)
        self._outcome = {"code": code.name, "reason": known.reason, "message": known.message}
        if self.caller is None and "caller" in known.facts:  # whose token has expired
            self._outcome["caller"] = known.facts["caller"]
        await self._context.abort(
            code,
            status.header_message(known.message),
            ((REQUEST_ID, self._request_id), *status.trailers_of(known)),
        )

    def _known(self, error: Exception) -> LemanError:
        if isinstance(error, LemanError):
            return error
        if isinstance(error, grpc.RpcError):
            return status.error_from_rpc(error)
        self._error = error
        return Internal("INTERNAL_BUG", f"a bug in the service; its log says more under request id {self._request_id}")

    def _write_line(self, seconds: float) -> None:
        plain_read = self._outcome["code"] == "OK" and self.required is not None and self.required.reads
        if plain_read and not _root.isEnabledFor(logging.DEBUG):
            return  # the commonest call by far: build no line that is dropped
        took = round(seconds * 1000, 3)
        refused = self._outcome["code"] in audit.REFUSALS
        if self.required is not None and (refused or self.required.audited):
            about = self.about or audit.subjects(self.request)
            audit.write(self._context, self.caller, about, method=self._method, duration_ms=took, **self._outcome)
            if self._error is None:
                return
        write = log.debug if plain_read else log.info if self._error is None else log.error
        write("rpc", method=self._method, duration_ms=took, **self._outcome, exc_info=self._error)
