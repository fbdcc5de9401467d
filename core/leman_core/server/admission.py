"""Admission control: which calls a server accepts, and how many run concurrently.

Every bound is a number of slots. A call that finds no free slot is refused at once, because a waiting call would keep
its message in memory. `CallAdmission` decides about all calls of one server. For expensive work, such as uploads or
previews, a service has further bounds, each a `Limiter`.
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

#: Additional slots that only a call about a store without any running call may take.
RESERVE = 2
#: Most concurrent calls of an overloaded method.
_OVERLOADED_CALLS = 32
#: A method is overloaded if, for this long, each of its calls took at least `_SLOW_SECONDS`, and at least
#: `_OVERLOADED_CALLS` are running.
_LOOK_SECONDS = 1.0
_SLOW_SECONDS = 0.5
#: With more accounts than this, those in their initial state are dropped.
_ACCOUNTS = 4096

Clock = Callable[[], float]


class Slots:
    """A number of slots, for one event loop.

    Args:
        most: How many slots there are. It can change at any time.
        reserve: Additional slots that only a call about a store without any running call may take. So if a store does
            not answer, calls about it leave room for calls about other stores.
    """

    def __init__(self, most: int, *, reserve: int = 0) -> None:
        self.most = most
        self.used = 0
        self._reserve = reserve
        self._of_store: Counter[str] = Counter()

    def is_full(self, store: str = "") -> bool:
        """Return whether there is no free slot for a call about this store."""
        return self.used >= self.most and (self._of_store[store] > 0 or self.is_exhausted())

    def is_exhausted(self) -> bool:
        """Return whether there is no free slot for any call."""
        return self.used >= self.most + self._reserve

    def take(self, store: str = "") -> None:
        """Occupy a slot until `release`."""
        self.used += 1
        if self._reserve:
            self._of_store[store] += 1

    def release(self, store: str = "") -> None:
        """Free a slot that `take` occupied."""
        self.used -= 1
        if self._reserve:
            self._of_store[store] -= 1
            if not self._of_store[store]:
                del self._of_store[store]


class Limiter(Slots):
    """Slots with an error for calls that find none.

    Args:
        most: How many slots there are.
        reason: The reason of the error.
        text: A function that returns the error's message, given the number of slots in use.
        reserve: See `Slots`.
        facts: Details of the error.
    """

    def __init__(self, most: int, reason: str, text: Callable[[int], str], *, reserve: int = 0, **facts: Any) -> None:
        super().__init__(most, reserve=reserve)
        self._reason = reason
        self._text = text
        self._facts = facts

    def error(self) -> ResourceExhausted:
        """Return the error for a call that finds no free slot."""
        return ResourceExhausted(self._reason, self._text(self.used), **self._facts)

    def check(self, store: str = "") -> None:
        """Raise an error if there is no free slot.

        Raises:
            ResourceExhausted: It has the limiter's reason.
        """
        if self.is_full(store):
            raise self.error()

    @contextlib.contextmanager
    def acquire(self, store: str = "") -> Iterator[None]:
        """Occupy a slot for the duration of the block. Raises what `check` raises."""
        self.check(store)
        self.take(store)
        try:
            yield
        finally:
            self.release(store)


def limit_store_calls(most: int, reason: str, calls: str) -> Limiter:
    """Return a limiter for calls that wait for stores. The error calls them `calls`, such as "calls of ReadRows"."""
    return Limiter(most, reason, lambda used: f"{used} {calls} are running already: try again later", reserve=RESERVE)


class CallBudget(Limiter):
    """A bound of the concurrent calls of one method, for one event loop.

    A burst may fill the budget. If every call of the method takes long, the method is overloaded, and the budget
    shrinks to `_OVERLOADED_CALLS`. Further callers are then refused at once, and calls that were accepted end soon. The
    budget grows back when less than half of the smaller one is in use.

    Args:
        method: The method's path or name.
        most: The number of concurrent calls.
        sheds: Whether the budget may shrink. For streams it must not: they last as long as their callers like.
        clock: Returns the time in seconds.
    """

    def __init__(self, method: str, most: int, *, sheds: bool = True, clock: Clock = time.monotonic) -> None:
        self.name = method.rpartition(".")[2]
        super().__init__(
            most,
            "TOO_MANY_CALLS",
            lambda _: f"too many calls of {self.name} are running: retry the call after the delay in RetryInfo",
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
        """Count a call. Return its start, for `end`."""
        if not self.used:
            self._fastest, self._since = None, self._clock()
        self.used += 1
        return self._clock()

    def end(self, begun: float) -> None:
        """Count the end of a call that began at `begun`, and adjust the budget."""
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
    """A token bucket that allows `rate` calls a second, and as many calls at once. It starts full.

    Args:
        rate: Calls a second.
        now: The time in seconds, by the clock that callers of the methods use.
    """

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate)
        self._left = self._most
        self._at = now

    def take(self, now: float) -> float:
        """Take a token and return 0.0, or return the seconds until there is one."""
        self._fill(now)
        if self._left < 1.0:
            return (1.0 - self._left) / self._rate
        self._left -= 1.0
        return 0.0

    def is_full(self, now: float) -> bool:
        """Return whether the bucket is full."""
        self._fill(now)
        return self._left >= self._most

    def _fill(self, now: float) -> None:
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now


class _Account:
    """The open streams of one caller, and the bucket that limits its rate of calls."""

    def __init__(self, caller: Caller, rate: float, streams: int, now: float) -> None:
        self.bucket = TokenBucket(rate, now) if rate else None
        self.streams = Limiter(
            streams,
            "CALLER_STREAMS",
            lambda used: (
                f"'{caller.name}' has {used} streams open, the most that it may have: end one, or use calls that do "
                "not stay open"
            ),
            caller=caller.name,
        )

    def close(self, _context: object) -> None:
        self.streams.release()

    def is_new(self, now: float) -> bool:
        """Return whether the account is in its initial state, so that it can be dropped."""
        return not self.streams.used and (self.bucket is None or self.bucket.is_full(now))


class CallerLimits:
    """Limits of each caller's calls a second and open streams, in one server, for one event loop.

    All callers without a name share one limit. Calls of services, and of methods that only services call, are not
    limited, so that one caller cannot stop the jobs of another.
    """

    def __init__(self, settings: Server, clock: Clock = time.monotonic) -> None:
        self._rate = settings.caller_calls_per_second
        self._most_streams = settings.caller_streams
        self._clock = clock
        self._accounts: dict[tuple[str, str], _Account] = {}
        self._forget_at = _ACCOUNTS

    def admit(self, caller: Caller, required: Requirement, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Count a call against its caller's limits. An open stream counts until its end.

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
            close: Any = account.close  # gRPC's stubs have a wrong type here
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
        f"'{caller.name}' may make {rate:g} calls a second: retry the call after the delay in RetryInfo",
        retry_after_seconds=seconds,
        caller=caller.name,
    )


class EnteringCall(Protocol):
    """A call about which `CallAdmission` decides."""

    metadata: dict[str, str | bytes]
    #: Set as soon as the caller is known, even if the call is then refused, so that logs can name the caller.
    caller: Caller | None


class CallAdmission:
    """Decide which calls one server accepts. For one event loop.

    A call passes three checks: the budget of its method, before its message is read; the limits of its caller; and the
    caller's rights. A request over HTTP first takes a slot of `http_requests`, because its body takes memory before it
    becomes a gRPC call.
    """

    def __init__(self, settings: Server, callers: Authenticator) -> None:
        self._settings = settings
        self._callers = callers
        self._limits = CallerLimits(settings)
        self.http_requests = Limiter(
            settings.max_calls + settings.max_streams,
            "TOO_MANY_CALLS",
            lambda used: f"{used} requests are running already: try again later",
        )

    def make_budget(self, method: str, *, stays_open: bool) -> CallBudget:
        """Return a budget for the method with this path. Streams and calls that wait for events `stays_open`."""
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
        """Check a call. Return its caller, which handlers get from `callers.current_caller`.

        Args:
            call: The call, whose `caller` is set.
            required: The rights that its method requires.
            request: Its message; None if the rights do not depend on it, or before the first message of a stream.
            context: Its gRPC context.
            limited: Whether it counts against its caller's limits. A forwarded call counts where it is served.

        Raises:
            LemanError: The call is refused; see `Authenticator.caller_of`, `CallerLimits.admit` and `check_rights`.
        """
        call.caller = caller = await self._callers.caller_of(call.metadata, context, basic=required.basic)
        if limited:
            self._limits.admit(caller, required, context)
        CURRENT.set(caller)
        check_rights(caller, required, request)
        return caller


def check_rights(caller: Caller, required: Requirement, request: Any) -> Message | None:
    """Check that a caller may send a request. Return the message that says what the request is about.

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
