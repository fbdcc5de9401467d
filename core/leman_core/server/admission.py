"""Admission control: which calls may enter a server, and how many may be at work at once.

Every bound is a count of slots. A call that finds no free slot is refused at once: a call that waits would keep its
message in memory. `CallAdmission` decides about the calls of one server; a service bounds costly work of its own, such
as uploads or previews, with a `Limiter`.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from leman_core.model.service_errors import ResourceExhausted
from leman_core.server.callers import CURRENT, Caller, Requirement
from leman_core.server.request_messages import UnreadableMessage, request_subject

if TYPE_CHECKING:
    import grpc
    from google.protobuf.message import Message

    from leman_core.server.authentication import Authenticator
    from leman_core.settings import Server

#: Slots beyond all others, for calls about a store that holds none.
RESERVE = 2
#: Calls that may be at work while their method is overloaded.
_OVERLOADED_CALLS = 32
#: A method is overloaded if for this long none of its calls took less than `_SLOW_SECONDS` and many were at work.
_LOOK_SECONDS = 1.0
_SLOW_SECONDS = 0.5
#: With more accounts than this, those that are as good as new are dropped.
_ACCOUNTS = 4096

Clock = Callable[[], float]


class Slots:
    """A number of slots, for one event loop.

    Args:
        most: How many may be taken. It can change at any time.
        reserve: Slots beyond `most` for calls about a store that holds none. So calls about a store that does not
            answer leave room for calls about other stores.
    """

    def __init__(self, most: int, *, reserve: int = 0) -> None:
        self.most = most
        self.used = 0
        self._reserve = reserve
        self._of_store: Counter[str] = Counter()

    def is_full(self, store: str = "") -> bool:
        """Return whether a call about this store finds no slot."""
        return self.used >= self.most and (self._of_store[store] > 0 or self.is_exhausted())

    def is_exhausted(self) -> bool:
        """Return whether no call finds a slot, whatever store it is about."""
        return self.used >= self.most + self._reserve

    def take(self, store: str = "") -> None:
        """Count a call until `release`."""
        self.used += 1
        if self._reserve:
            self._of_store[store] += 1

    def release(self, store: str = "") -> None:
        """Free the slot of a call."""
        self.used -= 1
        if self._reserve:
            self._of_store[store] -= 1
            if not self._of_store[store]:
                del self._of_store[store]


class Limiter(Slots):
    """Slots that refuse what is too much.

    Args:
        reason: Of the error.
        text: Returns the error's message, given the number of slots in use.
        facts: Details of the error.
    """

    def __init__(self, most: int, reason: str, text: Callable[[int], str], *, reserve: int = 0, **facts: Any) -> None:
        super().__init__(most, reserve=reserve)
        self._reason = reason
        self._text = text
        self._facts = facts

    def error(self) -> ResourceExhausted:
        """Return the error of a call that finds no slot."""
        return ResourceExhausted(self._reason, self._text(self.used), **self._facts)

    def check(self, store: str = "") -> None:
        """Refuse a call that finds no slot.

        Raises:
            ResourceExhausted: With the limiter's reason.
        """
        if self.is_full(store):
            raise self.error()

    @contextlib.contextmanager
    def acquire(self, store: str = "") -> Iterator[None]:
        """Hold a slot for the duration of the block; raises as `check`."""
        self.check(store)
        self.take(store)
        try:
            yield
        finally:
            self.release(store)


def limit_store_calls(most: int, reason: str, calls: str) -> Limiter:
    """Return a limiter of calls that wait for stores, such as "calls of ReadRows"."""
    return Limiter(most, reason, lambda used: f"{used} {calls} are at work already: try again later", reserve=RESERVE)


class CallBudget(Limiter):
    """The number of calls of one method that may be at work, for one event loop.

    A burst may fill the budget. If every call of the method takes long, the method is overloaded, and the budget
    shrinks to what is answered within a fraction of a second: callers hear at once that they are too many, and the
    calls that wait are soon done. The budget grows back once less than half of the smaller one is in use.

    Args:
        method: Its path or its name.
        most: Calls at once.
        sheds: Whether the method can be overloaded. An open stream takes as long as its caller likes.
    """

    def __init__(self, method: str, most: int, *, sheds: bool = True, clock: Clock = time.monotonic) -> None:
        self.name = method.rpartition(".")[2]
        super().__init__(
            most,
            "TOO_MANY_CALLS",
            lambda _: (
                f"as many calls of {self.name} are at work as may be: send the call again after the delay in RetryInfo"
            ),
        )
        self._whole = most
        self._overloaded = min(most, _OVERLOADED_CALLS) if sheds else most
        self._clock = clock
        self._fastest: float | None = None
        self._since = clock()

    @property
    def share(self) -> float:
        """Return the share of the budget that is in use."""
        return self.used / self.most

    def begin(self) -> float:
        """Count a call; return what `end` needs."""
        if not self.used:
            self._fastest, self._since = None, self._clock()
        self.used += 1
        return self._clock()

    def end(self, begun: float) -> None:
        """Note that a call is over."""
        self.used -= 1
        now = self._clock()
        took = now - begun
        self._fastest = took if self._fastest is None else min(took, self._fastest)
        if now - self._since >= _LOOK_SECONDS:
            if self.used >= self._overloaded and self._fastest >= _SLOW_SECONDS:
                self.most = self._overloaded
            self._fastest, self._since = None, now
        if self.used < self._overloaded // 2:
            self.most = self._whole


class TokenBucket:
    """Room for `rate` calls a second, and for the calls of one second at once. It starts full.

    Args:
        rate: Calls a second.
        now: The time in seconds, as for the methods.
    """

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate)
        self._left = self._most
        self._at = now

    def take(self, now: float) -> float:
        """Take the room of one call and return 0.0; without room, return the seconds until there is some."""
        self._fill(now)
        if self._left < 1.0:
            return (1.0 - self._left) / self._rate
        self._left -= 1.0
        return 0.0

    def is_full(self, now: float) -> bool:
        """Return whether the bucket is as full as at its start."""
        self._fill(now)
        return self._left >= self._most

    def _fill(self, now: float) -> None:
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now


class _Account:
    """The open streams of one caller, and the room for further calls."""

    def __init__(self, caller: Caller, rate: float, streams: int, now: float) -> None:
        self.bucket = TokenBucket(rate, now) if rate else None
        self.streams = Limiter(
            streams,
            "CALLER_STREAMS",
            lambda used: (
                f"'{caller.name}' has {used} streams open, as many as may be: end one, or use calls that do not stay "
                "open"
            ),
            caller=caller.name,
        )

    def close(self, _context: object) -> None:
        self.streams.release()

    def is_new(self, now: float) -> bool:
        """Return whether dropping the account would lose nothing."""
        return not self.streams.used and (self.bucket is None or self.bucket.is_full(now))


class CallerLimits:
    """Calls a second and open streams of each caller of one server, for one event loop.

    All callers without a name count as one. Services have no limit, and neither have the methods that only services
    call: otherwise one caller's calls would stop the jobs of another.
    """

    def __init__(self, settings: Server, clock: Clock = time.monotonic) -> None:
        self._rate = settings.caller_calls_per_second
        self._most_streams = settings.caller_streams
        self._clock = clock
        self._accounts: dict[tuple[str, str], _Account] = {}
        self._forget_at = _ACCOUNTS

    def admit(self, caller: Caller, required: Requirement, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Count a call of a caller; an open stream counts until its end.

        Raises:
            ResourceExhausted: CALLER_RATE – the caller calls too often; CALLER_STREAMS – the caller has too many
                streams open.
        """
        if not (self._rate or self._most_streams) or required.of_peers or caller.is_service:
            return
        account = self._account(caller)
        counted = required.stays_open and self._most_streams > 0
        if counted:
            account.streams.check()
        if account.bucket is not None:
            seconds = account.bucket.take(self._clock())
            if seconds:
                raise _too_often(caller, self._rate, seconds)
        if counted:
            account.streams.take()
            close: Any = account.close  # the stubs have no type for a function here
            context.add_done_callback(close)

    def _account(self, caller: Caller) -> _Account:
        key = caller.shown_by, caller.name
        account = self._accounts.get(key)
        if account is None:
            now = self._clock()
            if len(self._accounts) >= self._forget_at:
                self._accounts = {k: known for k, known in self._accounts.items() if not known.is_new(now)}
                self._forget_at = max(_ACCOUNTS, 2 * len(self._accounts))
            account = self._accounts[key] = _Account(caller, self._rate, self._most_streams, now)
        return account


def _too_often(caller: Caller, rate: float, seconds: float) -> ResourceExhausted:
    return ResourceExhausted(
        "CALLER_RATE",
        f"'{caller.name}' may make {rate:g} calls a second: send the call again after the delay in RetryInfo",
        retry_after_seconds=seconds,
        caller=caller.name,
    )


class EnteringCall(Protocol):
    """A call that asks to enter."""

    metadata: dict[str, str | bytes]
    #: Set as soon as it is known, so that the error of a refused call can name it.
    caller: Caller | None


class CallAdmission:
    """Decide which calls may enter one server. For one event loop.

    A call passes three checks: the budget of its method, before its message is read; the limits of its caller; the
    caller's rights. A call over HTTP takes a slot of `http_requests` first, because its body takes memory before the
    budget of its method is asked, and then enters as a gRPC call.
    """

    def __init__(self, settings: Server, callers: Authenticator) -> None:
        self._settings = settings
        self._callers = callers
        self._limits = CallerLimits(settings)
        self.http_requests = Limiter(
            settings.max_calls + settings.max_streams,
            "TOO_MANY_CALLS",
            lambda used: f"{used} requests are at work: try again later",
        )

    def make_budget(self, method: str, *, stays_open: bool) -> CallBudget:
        """Return a budget for a method, by its path; streams and calls that wait stay open."""
        most = self._settings.max_streams if stays_open else self._settings.max_calls
        return CallBudget(method, most, sheds=not stays_open)

    async def admit(
        self,
        call: EnteringCall,
        required: Requirement,
        request: Any,
        context: grpc.aio.ServicerContext[Any, Any],
        *,
        limited: bool = True,
    ) -> Caller:
        """Return the caller of a call that may enter; its handlers find it with `callers.current_caller`.

        Args:
            request: None if the requirement does not depend on it, or before the first message of a stream.
            limited: Whether the call counts against its caller's limits. A forwarded call counts where it is served.

        Raises:
            LemanError: What `Authenticator.caller_of`, `CallerLimits.admit` and `check_rights` raise.
        """
        call.caller = caller = await self._callers.caller_of(call.metadata, context, basic=required.basic)
        if limited:
            self._limits.admit(caller, required, context)
        CURRENT.set(caller)
        check_rights(caller, required, request)
        return caller


def check_rights(caller: Caller, required: Requirement, request: Any) -> Message | None:
    """Return what a request is about, if the caller may send it.

    Raises:
        PermissionDenied: ROLE_REQUIRED.
        InvalidArgument: BAD_MESSAGE – the request cannot be read.
        ResourceExhausted: MESSAGE_TOO_LARGE.
    """
    if isinstance(request, UnreadableMessage):
        raise request.error
    subject = request_subject(request)
    required.check(caller, subject)
    return subject
