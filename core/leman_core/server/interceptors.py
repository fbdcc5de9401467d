"""What happens around every call, with the audit line that it writes and the field that its error names.

One line for each call that may change something and for each refusal: who asked for what, with which outcome.

Lines of the event `audit` are written whatever `LEMAN_LOG__LEVEL` says. What callers send is in them only as names of
places, functions and jobs, cut to a bounded length; tokens, values and bundles never are.

Say which field of a request an error is about, as the path that its caller knows it by. Pure.

What checks a value knows the field by the message that it looks at: `where` of a backfill, or of another service's
request. The caller sent it in a message around that, so that the error names `backfill.where`.

What happens around every call: request id, rights, error map, one line in the log. One interceptor, for speed.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias, cast

import grpc
import structlog
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from leman_core.model.service_errors import Internal, InvalidArgument, LemanError, Unavailable
from leman_core.server import status
from leman_core.server.authentication import Authenticator
from leman_core.server.blocking import STORE, WAITS, StoreWaits, store_unavailable
from leman_core.server.call_streams import Activity, UninterruptedCalls, drain_requests
from leman_core.server.callers import (
    CURRENT,
    FORWARDED_BY,
    FORWARDED_FOR,
    Caller,
    CallerLimits,
    Requirement,
    requirement_of,
)
from leman_core.server.request_locations import RequestLocations, hide_links
from leman_core.server.request_messages import UnreadableMessage, check_response_size, request_subject, tolerant_reader
from leman_core.telemetry.instruments import measure_call
from leman_core.telemetry.tracing import begin_call, end_call

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
#: The way to a message, and what of its fields is written under which name.
Named: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]

REFUSALS = ("UNAUTHENTICATED", "PERMISSION_DENIED")
_LONGEST = 256
_DEEPEST = 3
#: Fields by which a request names what it is about → what they are called in a line.
_NAMES = {"database": "database", "root": "root", "uri": "uri", "table": "table", "view": "table", "job_id": "job_id"}
#: What a service that passed the call on says of the way → what that is called in a line.
_WAY = {FORWARDED_BY: "forwarded_by", FORWARDED_FOR: "forwarded_for"}
_known: dict[str, tuple[Named, ...]] = {}
#: Bound again for each line, with what logging is set up to, and never filtered by level.
_log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))


def write_audit_line(context: Context, whom: Caller | None, about: dict[str, str], **facts: Any) -> None:
    """Write the line of one call.

    Args:
        whom: None where the caller is not known.
        about: what `subjects` gives.
        facts: the method, how long it took, and the outcome.
    """
    who = {} if whom is None else {"caller": whom.name, "shown_by": whom.shown_by}
    given = dict(context.invocation_metadata() or ())
    way = {name: str(given[key])[:_LONGEST] for key, name in _WAY.items() if key in given}
    _log.info("audit", **(who | way | about | facts), peer=context.peer())


def named_subjects(request: Any) -> dict[str, str]:
    """Return the database, table, job and function that a request names, each where it is given first.

    Nothing is told of a request that is None: it was not read.
    """
    if request is None:
        return {}
    kind = request.DESCRIPTOR
    named = _known.get(kind.full_name)
    if named is None:
        named = _known[kind.full_name] = tuple(_named_in(kind))
    found: dict[str, str] = {}
    for path, fields in named:
        message = _at(request, path)
        for field, name in fields if message is not None else ():
            value = getattr(message, field)
            if value:
                found.setdefault(name, value[:_LONGEST])
    return found


def _at(message: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not message.HasField(name):
            return None
        message = getattr(message, name)
    return message


def _named_in(kind: Descriptor, path: tuple[str, ...] = ()) -> Iterator[Named]:
    texts = [f.name for f in kind.fields if f.type == FieldDescriptor.TYPE_STRING and not f.is_repeated]
    fields = [(name, _NAMES[name]) for name in texts if name in _NAMES]
    if "name" in texts and "version" in texts:
        fields += [("name", "udf"), ("version", "udf_version")]
    elif "name" in texts:
        fields.append(("name", "name"))
    if fields:
        yield path, tuple(fields)
    for field in kind.fields if len(path) < _DEEPEST else ():
        if field.message_type is not None and not field.is_repeated:
            yield from _named_in(field.message_type, (*path, field.name))


#: Messages that have a form of their own: no path goes into them.
_WHOLE = "google.protobuf."


def field_path(request: Any, field: str) -> str:
    """Return the path from a request to the field that an error names; empty: the request has no such field.

    Args:
        request: The request; of a stream any message of it.
        field: As the error has it: names with dots between, which may begin in a message around the request's, or
            inside of it.

    Example: of a CreateJobRequest with a backfill both `where` and `spec.where` are `backfill.where`.
    """
    names = field.split(".")
    for first in range(len(names)):
        tail = names[first:]
        if _has(request.DESCRIPTOR, tail):
            return ".".join(tail)
        found = [path for path in _messages(request.DESCRIPTOR) if _has(path[-1][1], tail)]
        if found:
            best = min(found, key=lambda path: (len(path) - _set_in(request, [name for name, _ in path]), len(path)))
            return ".".join([*(name for name, _ in best), *tail])
    return ""


_Path = tuple[tuple[str, Descriptor], ...]


def _messages(descriptor: Descriptor, above: _Path = (), within: tuple[str, ...] = ()) -> Iterator[_Path]:
    """Yield the paths to all messages in one: names of fields with what they hold; none within itself again."""
    for field in descriptor.fields:
        inner = field.message_type
        if inner is None or inner.full_name.startswith(_WHOLE) or inner.full_name in within:
            continue
        if inner.GetOptions().map_entry:
            continue
        path = (*above, (field.name, inner))
        yield path
        yield from _messages(inner, path, (*within, inner.full_name))


def _has(descriptor: Descriptor, names: list[str]) -> bool:
    """Return whether a message type has the field at a path."""
    *outer, last = names
    for name in outer:
        field = descriptor.fields_by_name.get(name)
        if field is None or field.message_type is None:
            return False
        descriptor = field.message_type
    return last in descriptor.fields_by_name


def _set_in(message: Any, names: list[str]) -> int:
    """Return how many messages of a path a request holds; in lists the first one stands for all."""
    for depth, name in enumerate(names):
        value = getattr(message, name)
        if message.DESCRIPTOR.fields_by_name[name].is_repeated:
            if not value:
                return depth
            message = value[0]
        elif message.HasField(name):
            message = value
        else:
            return depth
    return len(names)


REQUEST_ID = "x-request-id"
#: Services that ask no one who they are, and are neither logged nor counted.
OPEN_SERVICES = ("/grpc.health.v1.Health/", "/grpc.reflection.")
_LONGEST_REQUEST_ID = 128
#: Of the time that a caller gives a call, how much is kept for the way of the answer.
_MARGIN, _LONGEST_MARGIN = 0.1, 0.5
#: Of a stream: one that has waited for its store for so many seconds, or such a part of its time, waits for that alone.
_LONG_WAIT, _LONG_SHARE = 1.0, 0.5

log = structlog.get_logger(__name__)
_root = logging.getLogger()  # leman_core.telemetry.logs keeps its level equal to structlog's

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Continuation: TypeAlias = Callable[[grpc.HandlerCallDetails], Awaitable["Handler | None"]]


class CallInterceptor(grpc.aio.ServerInterceptor):
    """What wraps the methods of every service but health and reflection.

    - `x-request-id` is taken from the caller or made, bound to log lines, and sent back as a trailer.
    - A call of someone who is not known, calls too often, or may not make it, ends before its handler sees it;
      handlers find the caller in `leman_core.server.callers.current_caller`.
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
        places: RequestLocations,
        activity: Activity,
        changes: UninterruptedCalls,
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
        read, written = (
            tolerant_reader(handler.request_deserializer, self._largest),
            self._writer(handler.response_serializer),
        )
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
            check_response_size(message, self._largest)
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
                    async with (
                        _before_deadline(context, current, at_first=True),
                        contextlib.aclosing(behavior(request, context)) as messages,
                    ):
                        async for message in messages:
                            current.answered = True
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
                    async with (
                        _before_deadline(context, current),
                        contextlib.aclosing(self._admitted(current, requests, required, caller)) as messages,
                    ):
                        answer = written(await behavior(messages, context))
                    await drain_requests(requests)
                except Exception as error:  # noqa: BLE001 - the last place where an error can become a status
                    await drain_requests(requests)
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
                        _before_deadline(context, current),
                        contextlib.aclosing(self._admitted(current, requests, required, caller)) as messages,
                        contextlib.aclosing(behavior(messages, context)) as answers,
                    ):
                        async for answer in answers:
                            yield written(answer)
                    await drain_requests(requests)
                except Exception as error:  # noqa: BLE001 - the last place where an error can become a status
                    await drain_requests(requests)
                    await current.fail(error)

        return call

    async def _settle(self, call: _Call, request: Any, required: Requirement) -> None:
        settled = await self._places.settle(request, from_peer=required.of_peers)
        call.linked |= settled.linked
        call.store = settled.store or call.store
        STORE.set(settled.store)

    async def _admit(self, call: _Call, required: Requirement, request: Any, context: Context) -> Caller:
        call.required, call.request = (
            required,
            None if isinstance(request, UnreadableMessage) else request_subject(request),
        )
        call.take(request)
        call.caller = caller = await self._callers.caller_of(call.metadata, context, basic=required.basic)
        self._limits.admit(caller, required, context)
        CURRENT.set(caller)
        if isinstance(request, UnreadableMessage):
            raise request.error
        required.check(caller, call.request)
        return caller

    async def _admitted(
        self, call: _Call, requests: AsyncIterator[Any], required: Requirement, caller: Caller
    ) -> AsyncGenerator[Any, None]:
        """Pass on the messages that the caller may send."""
        async for request in requests:
            if isinstance(request, UnreadableMessage):
                raise request.error
            about = request_subject(request)
            if about is not None:
                call.take(request)
                required.check(caller, about)
                await self._settle(call, about, required)
                call.about = call.about or named_subjects(about)
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
        async with asyncio.timeout(_until_margin(left)) as limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        raise _too_late(store, left) from None


@contextlib.asynccontextmanager
async def _before_deadline(context: Context, call: _Call, *, at_first: bool = False) -> AsyncIterator[None]:
    """Shortly before its caller's deadline, end a stream that waits for its store, and say so.

    Args:
        at_first: one without an answer waits for its store too.

    Raises:
        Unavailable: STORE_UNAVAILABLE.
    """
    left = cast("float | None", context.time_remaining())
    if left is None:
        yield
        return
    waits = StoreWaits()
    WAITS.set(waits)

    def look() -> None:
        is_late = waits.longest() >= min(_LONG_WAIT, left * _LONG_SHARE)
        if call.store and (is_late or (at_first and not call.answered)):
            limit.reschedule(loop.time())

    loop = asyncio.get_running_loop()
    limit = asyncio.timeout(None)
    timer = loop.call_later(_until_margin(left), look)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise _too_late(call.store, left) from None
    finally:
        timer.cancel()


def _until_margin(left: float) -> float:
    return max(0.0, left - min(_LONGEST_MARGIN, left * _MARGIN))


def _too_late(store: str, left: float) -> Unavailable:
    return store_unavailable(store, f"has not answered within the deadline of {left:.1f} s")


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
        #: The store that it is about; empty: none.
        self.store = ""
        #: Whether a message of a stream of answers was sent.
        self.answered = False
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
        self.message = None if isinstance(request, UnreadableMessage) else request_subject(request)
        self.is_carried = self.message is not request

    async def fail(self, error: Exception) -> NoReturn:
        """End the call with the status of an error."""
        if isinstance(error, grpc.aio.AbortError):
            self._outcome = {"code": self._context.code().name}
            raise error
        known = self._known(error)
        if isinstance(known, InvalidArgument) and self.message is not None:
            path = field_path(self.message, known.field)
            known.field = path or (known.field if self.is_carried else "")
        hide_links(known, self.linked)
        code = status.code_of(known)
        message = status.header_message(known.message)
        self._outcome = {"code": code.name, "reason": known.reason, "message": message}
        if self.caller is None and "caller" in known.facts:  # whose token has expired
            self._outcome["caller"] = known.facts["caller"]
        await self._context.abort(
            code,
            message,
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
        refused = self._outcome["code"] in REFUSALS
        if self.required is not None and (refused or self.required.audited):
            about = self.about or named_subjects(self.request)
            write_audit_line(self._context, self.caller, about, method=self._method, duration_ms=took, **self._outcome)
            if self._error is None:
                return
        write = log.debug if plain_read else log.info if self._error is None else log.error
        write("rpc", method=self._method, duration_ms=took, **self._outcome, exc_info=self._error)
