"""The interceptors of every call: budgets, request ids, rights, locations, errors, deadlines, log and audit lines.

`BudgetInterceptor` limits concurrent calls: it refuses further ones before their messages are read. `CallInterceptor`
does everything else, because each additional interceptor would cost time in every call.

Each call that may change something, and each refused call, has a log line with the event `audit`, whatever
`LEMAN_LOG__LEVEL` is. An audit line contains names of places, functions and jobs from the request, shortened, and never
tokens, values or bundles.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypeAlias, cast

import grpc
import structlog
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from leman_core.model.service_errors import (
    CALL_NOT_OFFERED,
    Internal,
    InvalidArgument,
    LemanError,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
)
from leman_core.server import status
from leman_core.server.admission import CallAdmission, CallBudget, check_rights
from leman_core.server.blocking import STORE, WAITS, StoreWaits, store_unavailable
from leman_core.server.call_streams import Activity, UninterruptedCalls, drain_requests
from leman_core.server.callers import (
    FORWARDED_BY,
    FORWARDED_FOR,
    Caller,
    Requirement,
    requirement_of,
)
from leman_core.server.database_locations import DatabaseLocations, hide_links
from leman_core.server.request_messages import UnreadableMessage, check_response_size, request_subject, tolerant_reader
from leman_core.settings import Server
from leman_core.telemetry import instruments
from leman_core.telemetry.instruments import Attributes, measure_call, method_attributes
from leman_core.telemetry.tracing import begin_call, end_call

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
#: The path of field names to a message, and pairs of a field of it and the field's name in an audit line.
Named: TypeAlias = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]

REFUSALS = ("UNAUTHENTICATED", "PERMISSION_DENIED")
_LONGEST = 256
_DEEPEST = 3
#: Fields that name what a request is about, with their names in an audit line.
_NAMES = {"database": "database", "root": "root", "uri": "uri", "table": "table", "view": "table", "job_id": "job_id"}
#: Metadata from the service that forwarded a call, with its name in an audit line.
_FORWARDED = {FORWARDED_BY: "forwarded_by", FORWARDED_FOR: "forwarded_for"}
_known: dict[str, tuple[Named, ...]] = {}
#: A logger that uses the logging configured at the time of each line, and never filters by level.
_log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))


def write_audit_line(context: Context, whom: Caller | None, about: dict[str, str], **facts: Any) -> None:
    """Write the audit line of one call.

    Args:
        context: The call's gRPC context.
        whom: The caller; None if unknown.
        about: What the request is about; see `named_subjects`.
        facts: The method, its duration, and the outcome.
    """
    who = {} if whom is None else {"caller": whom.name, "shown_by": whom.shown_by}
    given = dict(context.invocation_metadata() or ())
    forwarded = {name: str(given[key])[:_LONGEST] for key, name in _FORWARDED.items() if key in given}
    _log.info("audit", **(who | forwarded | about | facts), peer=context.peer())


def named_subjects(request: Any) -> dict[str, str]:
    """Return the first database, table, job and function that a request names. `request` is None if it was not read."""
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


#: Messages of this package count as values, so that paths end at them.
_WHOLE = "google.protobuf."


def field_path(request: Any, field: str) -> str:
    """Return the path, from the request, of the field that an error is about; empty if the request has no such field.

    Code that checks a value names its field relative to the message that it checks, which may be a part of the request,
    or the request to another service. For example, in a CreateJobRequest with a backfill, both `where` and `spec.where`
    mean `backfill.where`.

    Args:
        request: The request, or any message of a stream of requests.
        field: The names of the field and of the messages around it, joined with dots, as the error has them.
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
    """Yield the paths to all messages inside a message, as field names with types.

    A recursive type is followed only once.
    """
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
    """Return how many messages along a path are set in a request. Of a list, only the first entry counts."""
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
#: Services that everyone may call, and whose calls are not logged, counted or refused.
OPEN_SERVICES = ("/grpc.health.v1.Health/", "/grpc.reflection.")
_LONGEST_REQUEST_ID = 128
#: The part of a call's time that is kept for sending the answer.
_MARGIN, _LONGEST_MARGIN = 0.1, 0.5
#: If a stream's deadline is near and it has waited for its store for this many seconds, or for this share of its time,
#: it ends with an error about the store.
_LONG_WAIT, _LONG_SHARE = 1.0, 0.5

log = structlog.get_logger(__name__)
_root = logging.getLogger()  # leman_core.telemetry.logs sets its level to that of structlog

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Continuation: TypeAlias = Callable[[grpc.HandlerCallDetails], Awaitable["Handler | None"]]


#: Most bytes of a call's metadata. gRPC accepts four times as much, so that calls are refused here with a reason.
MAX_METADATA_BYTES = 16 << 10
#: Bytes that gRPC adds to the size of each entry.
_ENTRY_BYTES = 32
_LONGEST_METHOD = 200
_LOG_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as gRPC sends it: code, text and trailers."""

    code: grpc.StatusCode
    message: str
    trailers: tuple[tuple[str, str | bytes], ...]

    async def end(self, context: Context) -> NoReturn:
        """End a call with this error."""
        request_id = [(key, value) for key, value in context.invocation_metadata() or () if key == REQUEST_ID]
        await context.abort(self.code, self.message, (*self.trailers, *request_id))


def _refusal(error: LemanError) -> Refusal:
    return Refusal(status.code_of(error), status.header_message(error.message), status.trailers_of(error))


class _Gate:
    """The budget of concurrent calls of one method. It refuses further calls."""

    def __init__(self, path: str, budget: CallBudget) -> None:
        self.budget = budget
        self._path = path
        self._refusal = _refusal(budget.error())  # created once, because refusals have to be cheap
        self._refused = 0
        self._logged = 0.0

    async def refuse(self, context: Context) -> NoReturn:
        """End a call beyond the budget, and count it. At most one line a second is logged."""
        measure_call(self._path, 0.0, "RESOURCE_EXHAUSTED", "TOO_MANY_CALLS")
        self._refused += 1
        now = time.monotonic()
        if now - self._logged >= _LOG_SECONDS:
            log.warning("calls are refused", method=self.budget.name, refused=self._refused, at_work=self.budget.used)
            self._refused, self._logged = 0, now
        await self._refusal.end(context)

    def answering(self, behavior: Callable[[Any, Context], Awaitable[Any]]) -> Any:
        """Return a handler that runs `behavior` within the budget."""

        async def call(request: Any, context: Context) -> Any:
            if self.budget.is_full():  # other calls have begun since the interceptor accepted this one
                await self.refuse(context)
            begun = self.budget.begin()
            try:
                return await behavior(request, context)
            finally:
                self.budget.end(begun)

        return call

    def streaming(self, behavior: Callable[[Any, Context], Any], stalled_seconds: float) -> Any:
        """Return a handler of a stream that itself writes the messages which `behavior` yields.

        So it can close the generator as soon as the call ends, which frees the generator's resources.
        """

        async def call(request: Any, context: Context) -> None:
            if self.budget.is_full():
                await self.refuse(context)
            begun = self.budget.begin()
            try:
                async with contextlib.aclosing(behavior(request, context)) as messages:
                    async for message in messages:
                        async with asyncio.timeout(stalled_seconds):
                            await context.write(message)
            except TimeoutError:
                await _refusal(_stalled(stalled_seconds)).end(context)
            finally:
                self.budget.end(begun)

        return call


class BudgetInterceptor(grpc.aio.ServerInterceptor):
    """Gives each method a budget of concurrent calls, so that too many calls of one method do not stop other methods.

    A call beyond the budget ends before its message is read. A stream whose reader takes no message for
    `stalled_stream_seconds` ends too. Health checks are never refused.
    """

    def __init__(self, settings: Server, admission: CallAdmission) -> None:
        self._stalled_seconds = settings.stalled_stream_seconds
        self._admission = admission
        self._methods: dict[str, tuple[CallBudget, Handler, Handler]] = {}
        instruments.CALL_BUDGET.show(self._used)

    def _used(self) -> list[tuple[float, Attributes]]:
        """Return the used share of each method's budget. Any thread may call this."""
        return [(budget.share, method_attributes(method)) for method, (budget, *_) in list(self._methods.items())]

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Return the handler of a call: the method's own, or one that refuses the call."""
        method = handler_call_details.method
        metadata = handler_call_details.invocation_metadata or ()
        size = sum(len(key) + len(value) + _ENTRY_BYTES for key, value in metadata)
        if size > MAX_METADATA_BYTES:
            return _refusing_all(_large_metadata(size))
        known = self._methods.get(method)
        if known is None:
            handler = await continuation(handler_call_details)
            if method.startswith(OPEN_SERVICES):
                return handler
            if handler is None:
                return _refusing_all(_not_offered(method))
            known = self._methods[method] = self._bounded(method, handler)
        budget, bounded, refusing = known
        return refusing if budget.is_full() else bounded

    def _bounded(self, method: str, handler: Any) -> tuple[CallBudget, Handler, Handler]:
        stays_open = handler.request_streaming or handler.response_streaming or requirement_of(method).stays_open
        gate = _Gate(method, self._admission.make_budget(method, stays_open=stays_open))
        codec = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        stalled = self._stalled_seconds
        if handler.request_streaming and handler.response_streaming:
            bounded = grpc.stream_stream_rpc_method_handler(gate.streaming(handler.stream_stream, stalled), **codec)
        elif handler.response_streaming:
            bounded = grpc.unary_stream_rpc_method_handler(gate.streaming(handler.unary_stream, stalled), **codec)
        elif handler.request_streaming:
            bounded = grpc.stream_unary_rpc_method_handler(gate.answering(handler.stream_unary), **codec)
        else:
            bounded = grpc.unary_unary_rpc_method_handler(gate.answering(handler.unary_unary), **codec)
        return gate.budget, bounded, _ending_with(gate.refuse)


def _ending_with(end: Callable[[Context], Awaitable[NoReturn]]) -> Handler:
    """Return a handler that ends its calls without reading their message.

    It is the handler of a stream of requests, because gRPC reads the message of other calls before it calls a handler.
    """

    async def refuse(_requests: Any, context: Context) -> None:
        await end(context)

    return grpc.stream_unary_rpc_method_handler(refuse)


def _refusing_all(error: LemanError) -> Handler:
    return _ending_with(_refusal(error).end)


def _large_metadata(size: int) -> LemanError:
    return ResourceExhausted(
        "MESSAGE_TOO_LARGE",
        f"the metadata of the call has {size} bytes, more than {MAX_METADATA_BYTES}: send fewer or shorter headers",
        retry_after_seconds=0,
        largest=MAX_METADATA_BYTES,
    )


def _not_offered(method: str) -> LemanError:
    return Unimplemented(
        CALL_NOT_OFFERED,
        f"This service has no method {method[:_LONGEST_METHOD]}: call the service that has it, or use a client and a "
        "service of the same release",
        method=method[:_LONGEST_METHOD],
    )


def _stalled(seconds: float) -> LemanError:
    return Unavailable(
        "READER_STALLED",
        f"the caller read no message of this stream for {seconds:g} s: call again, and read faster",
    )


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the methods of every service except health and reflection.

    - Each call has an `x-request-id`, the caller's or a new one. Log lines and a trailer contain it.
    - `CallAdmission` decides about a call before its handler gets it.
    - A LemanError, or the error of a call to another service, becomes a gRPC status, with the path of the bad field in
      the caller's request. Any other exception becomes INTERNAL, and is logged with its traceback.
    - A message that is too large, in either direction, ends its call with a reason.
    - A unary method that changes something runs to its end even if its caller disconnects; see `UninterruptedCalls`. A
      method that receives a stream ends when its caller disconnects. From the last message on, it protects its own
      work.
    """

    def __init__(
        self,
        admission: CallAdmission,
        locations: DatabaseLocations,
        activity: Activity,
        changes: UninterruptedCalls,
        largest: int,
    ) -> None:
        """Create the interceptor. `largest` is the most bytes of a message."""
        self._largest = largest
        self._admission = admission
        self._locations = locations
        self._activity = activity
        self._changes = changes
        self._wrapped: dict[str, Handler] = {}

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler | None:
        """Return the wrapped handler of a method. Each method is wrapped once."""
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
        """Return a serializer of answers. It leaves an answer that is bytes already unchanged."""

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
                    await self._resolve(current, current.request, required)
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
                    await self._resolve(current, current.request, required)
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

    async def _resolve(self, call: _Call, request: Any, required: Requirement) -> None:
        found = await self._locations.resolve(request, from_peer=required.of_peers, reads=required.reads)
        call.linked |= found.linked
        call.store = found.store or call.store
        STORE.set(found.store)

    async def _admit(self, call: _Call, required: Requirement, request: Any, context: Context) -> Caller:
        call.required = required
        call.take(request)
        call.request = call.message
        return await self._admission.admit(call, required, request, context)

    async def _admitted(
        self, call: _Call, requests: AsyncIterator[Any], required: Requirement, caller: Caller
    ) -> AsyncGenerator[Any, None]:
        """Yield the messages of a stream of requests, each after a check that the caller may send it."""
        async for request in requests:
            about = check_rights(caller, required, request)
            if about is not None:
                call.take(request)
                await self._resolve(call, about, required)
                call.about = call.about or named_subjects(about)
            yield request


async def _in_time(work: Awaitable[Any], context: Context, store: str) -> Any:
    """Return the answer of a call that uses a store. If the store is slow, fail shortly before the caller's deadline.

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
    """End a stream shortly before the caller's deadline if it is waiting for its store.

    Args:
        context: The call's gRPC context.
        call: The call.
        at_first: Whether the stream counts as waiting for its store until its first answer.

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
    """The state of one call."""

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
        #: The request, or the latest one of a stream; of a request that carries a message, that message.
        self.message: Any = None
        self.is_carried = False
        #: See `ResolvedLocations`.
        self.linked: dict[str, str] = {}
        self.store = ""
        #: Whether a stream of answers has sent a message.
        self.answered = False
        #: What a stream is about (see `named_subjects`), if it says so only after its first message.
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
        """Store the request, so that errors can name its fields."""
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
        if self.caller is None and "caller" in known.facts:  # the owner of an expired token
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
        return Internal("INTERNAL_BUG", f"The service has a bug: see its log under request id {self._request_id}")

    def _write_line(self, seconds: float) -> None:
        plain_read = self._outcome["code"] == "OK" and self.required is not None and self.required.reads
        if plain_read and not _root.isEnabledFor(logging.DEBUG):
            return  # by far the most common case: no line would be written, so build none
        took = round(seconds * 1000, 3)
        refused = self._outcome["code"] in REFUSALS
        if self.required is not None and (refused or self.required.audited):
            about = self.about or named_subjects(self.request)
            write_audit_line(self._context, self.caller, about, method=self._method, duration_ms=took, **self._outcome)
            if self._error is None:
                return
        write = log.debug if plain_read else log.info if self._error is None else log.error
        write("rpc", method=self._method, duration_ms=took, **self._outcome, exc_info=self._error)
