"""One call that is passed on to the service that serves it.

Message bytes, metadata, deadline, trailers and cancellation stay what they are. So limits are counted and the call's
log line is written where it is served; the service between, which says who called
(`leman_core.server.auth.forwarded_identity`), logs at `debug` where it sent the call, under the same request id. A call
is passed on once: it carries `x-leman-forwarded-by` then, and whoever gets it without serving it refuses.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

import grpc
import structlog
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from leman_core.model.errors import FailedPrecondition, Internal, LemanError, Unavailable
from leman_core.server import audit, status
from leman_core.server.activity import Activity
from leman_core.server.auth.authentication import Authenticator
from leman_core.server.auth.caller import Caller
from leman_core.server.auth.forwarded_identity import FORWARDED_BY, KEYS, vouch
from leman_core.server.auth.requirements import Requirement
from leman_core.server.interceptors import REQUEST_ID, Context
from leman_core.server.peer_link import BROKEN, PeerLink, says_why
from leman_core.server.routes import SERVED_BY, path_of
from leman_core.server.unreadable import Unreadable, reader

#: Keys, and beginnings of keys, that belong to a connection and not to a call.
_OF_A_CONNECTION = ("user-agent", "content-type", "te", "host", *KEYS)
_OF_GRPC = ("grpc-", ":")

#: A call that was opened on a channel: awaited for its answer, or iterated over.
Opened: TypeAlias = Any
#: A key of metadata and its value.
Pair: TypeAlias = tuple[str, str | bytes]

log = structlog.get_logger(__name__)


class ForwardedCall:
    """A call from its first to its last moment here.

    Args:
        here: name of this service.
        method: what is called.
        context: of the caller's call.
        activity: counts it while it runs.
        draining: set where that has ended the call, see `ended`.
        link: the way to the peer; None: its address is not known.
    """

    def __init__(
        self,
        here: str,
        method: MethodDescriptor,
        context: Context,
        activity: Activity,
        draining: asyncio.Event | None = None,
        link: PeerLink | None = None,
    ) -> None:
        self._here = here
        self._link = link
        self._method = method
        self._peer = SERVED_BY[method.containing_service.full_name]
        self._context = context
        self._activity = activity
        self._draining = draining
        self._given = tuple(context.invocation_metadata() or ())
        self._request_id = next((str(value) for key, value in self._given if key == REQUEST_ID), "")
        self._minted: tuple[tuple[str, str], ...] = ()
        if not self._request_id:
            self._request_id = uuid.uuid4().hex
            self._minted = ((REQUEST_ID, self._request_id),)
        self._outcome = "OK"
        self._caller: Caller | None = None

    def __enter__(self) -> ForwardedCall:
        self._activity.begin()
        self._started = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._activity.end()
        log.debug(
            "forwarded",
            method=f"{self._method.containing_service.name}/{self._method.name}",
            to=self._peer,
            code="CANCELLED" if kind in (asyncio.CancelledError, GeneratorExit) else self._outcome,
            duration_ms=round((time.perf_counter() - self._started) * 1000, 3),
            request_id=self._request_id,
        )

    async def admit(self, callers: Authenticator, required: Requirement, request: Any) -> Caller:
        """Return who calls: what a peer refuses is refused here, as the peer may ask nobody but this service.

        Raises:
            LemanError: what `Authenticator.caller_of` and `Requirement.check` raise; InvalidArgument (BAD_MESSAGE).
        """
        self._caller = caller = await callers.caller_of(dict(self._given), self._context)
        if self._method.client_streaming and required.code_where:  # what comes later is not read here
            required = replace(required, code=True, code_where=())
        required.check(caller, self._read(request) if required.code_where else None)
        return caller

    def _read(self, request: bytes) -> Any:
        read = reader(GetMessageClass(self._method.input_type).FromString)(request)
        if isinstance(read, Unreadable):
            raise read.error
        return read

    @contextlib.contextmanager
    def to(self, channel: grpc.aio.Channel, request: Any, caller: Caller) -> Iterator[Opened]:
        """Open the call at the peer, for as long as the block runs; `request` is bytes, or an iterator of them."""
        given = (*self._given, *self._minted)
        opened = _opener(channel, self._method)(
            request,
            timeout=self._context.time_remaining(),
            metadata=passed_on(given, self._here, caller, self._context.peer()),
        )
        try:
            yield opened
        finally:
            opened.cancel()

    async def take_metadata(self, opened: Opened) -> None:
        """Give the caller what the peer's answer carried beside its messages."""
        self._context.set_trailing_metadata(tuple(await opened.trailing_metadata() or ()))
        if self._link is not None:
            self._link.reached()

    async def ended(self, cancelled: asyncio.CancelledError) -> None:
        """End the call as the caller did who hung up, or because this service stops.

        Raises:
            CancelledError: The caller hung up.
        """
        task = asyncio.current_task()
        if self._draining is None or not self._draining.is_set() or (task is not None and task.cancelling()):
            raise cancelled
        await self.fail(Unavailable("DRAINING", f"The {self._here} is shutting down: send the call again"))

    async def fail(self, error: Exception) -> NoReturn:
        """End the call with the peer's error as it is, or with that of a peer that cannot be reached."""
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if isinstance(error, grpc.aio.AioRpcError):
            trailers = tuple(error.trailing_metadata() or ())
            if self._link is None or error.code() not in BROKEN or says_why(error):
                self._outcome = error.code().name
                await self._context.abort(error.code(), error.details() or "", trailers)
            error = self._link.broken(error.details() or error.code().name, self._here)
        await self._abort(error if isinstance(error, LemanError) else self._bug(error))

    async def _abort(self, error: LemanError) -> NoReturn:
        self._outcome = status.code_of(error).name
        if self._outcome in audit.REFUSALS:
            self._write_audit(error)
        trailers = ((REQUEST_ID, self._request_id), *status.trailers_of(error))
        await self._context.abort(status.code_of(error), status.header_message(error.message), trailers)

    def _write_audit(self, error: LemanError) -> None:
        """Write the line of a call that was refused here; one that was passed on has its line where it was served."""
        name = f"{self._method.containing_service.name}/{self._method.name}"
        outcome = {"code": self._outcome, "reason": error.reason, "message": error.message}
        took = round((time.perf_counter() - self._started) * 1000, 3)
        facts = {"method": name, "duration_ms": took, "request_id": self._request_id, **outcome}
        audit.write(self._context, self._caller, {}, **facts)

    def check_first_hop(self) -> None:
        """Refuse a call that was passed on already; first know who calls, as anybody can say so.

        Raises:
            FailedPrecondition: WRONG_PEER.
        """
        sender = next((value for key, value in self._given if key == FORWARDED_BY), None)
        if sender is not None:
            sender = sender if sender in SERVED_BY.values() else "service before"
            raise FailedPrecondition(
                "WRONG_PEER",
                f"the {sender!s} passed this call on to the {self._here}, which does not serve it: set "
                f"LEMAN_PEERS__{self._peer.upper()} for the {sender!s} to the address of the {self._peer}",
            )

    def _bug(self, error: Exception) -> LemanError:
        log.error("a call could not be passed on", request_id=self._request_id, exc_info=error)
        return Internal("INTERNAL_BUG", f"a bug in the {self._here}; its log says more")


def passed_on(given: Iterable[Pair], here: str, caller: Caller, address: str) -> tuple[Pair, ...]:
    """Return the metadata of a call that `here` passes on, whose caller is at `address` and gave this."""
    not_passed = (*_OF_A_CONNECTION, FORWARDED_BY)
    kept = [pair for pair in given if pair[0] not in not_passed and not pair[0].startswith(_OF_GRPC)]
    return (*kept, (FORWARDED_BY, here), *vouch(caller, address))


def _opener(channel: grpc.aio.Channel, method: MethodDescriptor) -> Any:
    """Return what opens calls of a method; messages are bytes."""
    path = path_of(method)
    match method.client_streaming, method.server_streaming:
        case False, False:
            return channel.unary_unary(path)
        case False, True:
            return channel.unary_stream(path)
        case True, False:
            return channel.stream_unary(path)
    return channel.stream_stream(path)
