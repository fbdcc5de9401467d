"""Limits per caller: calls a second, and open streams. What one caller asks too much is refused, and nobody else's.

A caller is who the service takes them for; all without a name are one. Services have no limit, nor has what only
services may call: else one caller's job would be refused for what another one asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias

import grpc

from leman_core.model.errors import ResourceExhausted
from leman_core.server.auth.caller import ANONYMOUS, SERVICE, Caller
from leman_core.server.auth.requirements import Requirement
from leman_core.settings import Server

_STREAM_RETRY_SECONDS = 1.0
#: Accounts beyond which those are forgotten that are as good as new.
_ACCOUNTS = 4096

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class TokenBucket:
    """Room for so many calls a second, and for a second's calls at once; it begins full.

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
        """Take a call's room and return 0.0; where there is none, return the seconds until there is."""
        self._fill(now)
        if self._left < 1.0:
            return (1.0 - self._left) / self._rate
        self._left -= 1.0
        return 0.0

    def is_full(self, now: float) -> bool:
        """Tell whether it is as at its beginning."""
        self._fill(now)
        return self._left >= self._most

    def _fill(self, now: float) -> None:
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now


class _Account:
    """What one caller has open, and may call."""

    def __init__(self, bucket: TokenBucket | None) -> None:
        self.bucket = bucket
        self.streams = 0

    def close(self, _context: object) -> None:
        """Note that a stream is over."""
        self.streams -= 1

    def is_new(self, now: float) -> bool:
        """Tell whether nothing would be lost by forgetting it."""
        return not self.streams and (self.bucket is None or self.bucket.is_full(now))


class CallerLimits:
    """The limits of one server, for one event loop; `clock` returns seconds."""

    def __init__(self, settings: Server, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = settings.caller_calls_per_second
        self._most_streams = settings.caller_streams
        self._clock = clock
        self._accounts: dict[tuple[str, str], _Account] = {}
        self._forget_at = _ACCOUNTS

    def admit(self, caller: Caller, required: Requirement, context: Context) -> None:
        """Let a call of a caller in; an open stream counts until its end.

        Raises:
            ResourceExhausted: CALLER_RATE – the caller calls too often; CALLER_STREAMS – as many of the caller's
                streams are open as may.
        """
        if not (self._rate or self._most_streams) or _is_exempt(caller, required):
            return
        account = self._account(caller)
        if required.stays_open and 0 < self._most_streams <= account.streams:
            raise _streams(caller, self._most_streams)
        if account.bucket is not None:
            seconds = account.bucket.take(self._clock())
            if seconds:
                raise _rate(caller, self._rate, seconds)
        if required.stays_open:
            account.streams += 1
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
            account = self._accounts[key] = _Account(TokenBucket(self._rate, now) if self._rate else None)
        return account


def _is_exempt(caller: Caller, required: Requirement) -> bool:
    """Tell whether a service calls: one that shows it is one, or one of a system in which nobody shows anything."""
    return required.role == SERVICE or (SERVICE in caller.roles and caller.shown_by != ANONYMOUS)


def _rate(caller: Caller, rate: float, seconds: float) -> ResourceExhausted:
    return ResourceExhausted(
        "CALLER_RATE",
        f"'{caller.name}' may make {rate:g} calls a second: send the call again after the delay in RetryInfo",
        retry_after_seconds=seconds,
        caller=caller.name,
    )


def _streams(caller: Caller, most: int) -> ResourceExhausted:
    return ResourceExhausted(
        "CALLER_STREAMS",
        f"'{caller.name}' has {most} streams open, as many as may be: end one, or use calls that do not stay open",
        retry_after_seconds=_STREAM_RETRY_SECONDS,
        caller=caller.name,
    )
