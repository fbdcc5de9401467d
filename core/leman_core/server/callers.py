"""Callers: who they are, what each call asks of them, and how much one may ask.

Who calls, and what they may: callers, what each call asks of them, and where that is compared.

Who a call comes from, and what they may do.

What a service says to another one of the caller whose call it passes on.

A token travels with the call. A certificate does not, as it belongs to the caller's connection, nor does what settings
give callers without a name: so the service that was called says who it is. It is believed where the connection is that
of a service; a call that another service passed on is never taken for one of that service.

What each call asks of its caller: read from the options on it (protos/leman/v1/annotations.proto).

Those of Arrow Flight stand in `leman_core.server.routes`.

Limits per caller: calls a second, and open streams. What one caller asks too much is refused, and no one else's.

A caller is who the service takes them for; all without a name are one. Services have no limit, nor has what only
services may call: else one caller's job would be refused for what another one asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor

from leman.v1 import annotations_pb2
from leman_core.model.service_errors import PermissionDenied, ResourceExhausted
from leman_core.server import routes
from leman_core.server.request_messages import changes_nothing
from leman_core.settings import Server

#: The right to have one's own code run on the workers.
CODE = "code"
#: What a caller can be told to be: the roles, each of which includes those before it, by rank.
RANKS = {name.removeprefix("ROLE_").lower(): number for name, number in annotations_pb2.Role.items() if number > 0}
SERVICE = annotations_pb2.Role.Name(annotations_pb2.ROLE_SERVICE).removeprefix("ROLE_").lower()
#: What a caller is called, and said to have shown, who shows nothing.
ANONYMOUS = "anonymous"
#: What a caller is called who shows the token of the settings (`LEMAN_SERVER__TOKEN`), which has no name.
UNNAMED = "token"
#: Everything that settings, files and claims may name.
GRANTS = (*RANKS, CODE)


@dataclass(frozen=True, slots=True)
class Caller:
    """One caller, as long as what they showed holds."""

    #: What logs and accounts call them; not unique between ways of saying who one is.
    name: str
    #: How they said who they are: `token`, `jwt`, `certificate`; `anonymous` where they did not.
    shown_by: str
    #: Of `GRANTS`, sorted.
    roles: tuple[str, ...]
    #: The highest of their roles; 0: none.
    rank: int = field(init=False, repr=False)
    may_send_code: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        ranks = [RANKS[role] for role in self.roles if role in RANKS]
        object.__setattr__(self, "rank", max(ranks, default=0))
        object.__setattr__(self, "may_send_code", not {CODE, SERVICE}.isdisjoint(self.roles))


def make_caller(name: str, shown_by: str, roles: Iterable[str]) -> Caller:
    """Return a caller with the roles that are ones; other words are another system's, and left out."""
    return Caller(name, shown_by, tuple(sorted(set(roles).intersection(GRANTS))))


#: The caller of the call that is being answered, where there is one; functions in threads see it too.
CURRENT: ContextVar[Caller | None] = ContextVar("caller", default=None)


def current_caller() -> Caller | None:
    """Return who the call that is being answered comes from; None where a service works of its own accord."""
    return CURRENT.get()


#: Metadata key that says which service passed a call on.
FORWARDED_BY = "x-leman-forwarded-by"
#: What that key says of a call that came through a front (`leman_core.server.front`), which knows no callers: the
#: connection is the front's, whatever certificate it shows, and only a token says who called.
FRONT = "front"
_NAME, _SHOWN_BY, _ROLES = "x-leman-caller", "x-leman-caller-shown-by", "x-leman-caller-roles"
#: Metadata key with the address of the caller's own connection.
FORWARDED_FOR = "x-leman-forwarded-for"
#: What comes from a caller under these keys is not passed on.
KEYS = (_NAME, _SHOWN_BY, _ROLES, FORWARDED_FOR)


def forwarded_metadata(whom: Caller, address: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that tell another service of a caller, and of the address of their connection."""
    roles = ",".join(whom.roles)
    return (_NAME, quote(whom.name)), (_SHOWN_BY, whom.shown_by), (_ROLES, roles), (FORWARDED_FOR, address)


def forwarded_caller(connection: Caller, metadata: Mapping[str, str | bytes]) -> Caller | None:
    """Return who called, where a call came over a connection that is someone's.

    None where a service passed it on and does not say for whom, or is not one to be believed.
    """
    if FORWARDED_BY not in metadata:
        return connection
    name, shown_by, roles = (str(metadata.get(key, "")) for key in (_NAME, _SHOWN_BY, _ROLES))
    if not name or SERVICE not in connection.roles:
        return None
    return make_caller(unquote(name), shown_by, roles.split(","))


#: How calls are named that take as long as what they wait for.
_WAITS = "Wait"
_NAMES = {rank: role for role, rank in RANKS.items()}


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one method asks of its callers."""

    #: Such as `CatalogService.RegisterUdf`.
    method: str
    #: The least role; empty: no one may call it, as nothing says who may.
    role: str
    #: Whether it takes the right `code`.
    code: bool = False
    #: Paths of fields: where one is set, the call takes the right `code`.
    code_where: tuple[tuple[str, ...], ...] = ()
    #: Whether it changes nothing.
    reads: bool = False
    #: Whether it is open for as long as its caller likes: a stream, or a call that waits.
    stays_open: bool = False
    #: Whether a token may come as the password of the scheme Basic.
    basic: bool = False

    @property
    def audited(self) -> bool:
        """Return whether each call leaves a line: it changes something, or has code run that its caller sends."""
        return not self.reads or bool(self.code or self.code_where)

    @property
    def of_peers(self) -> bool:
        """Return whether only services call it."""
        return self.role == SERVICE

    def check(self, caller: Caller, request: Any) -> None:
        """Refuse a call that the caller may not make.

        Raises:
            PermissionDenied: ROLE_REQUIRED.
        """
        if not self.role:
            raise PermissionDenied(
                "ROLE_REQUIRED", f"{self.method} says of no one that they may call it: report that as a bug"
            )
        if caller.rank < RANKS[self.role]:
            raise role_required(caller, self.role, self.method)
        if (self.code or self.code_where) and not caller.may_send_code and self._takes_code(request):
            raise role_required(caller, CODE, f"{self.method} with code of one's own")

    def _takes_code(self, request: Any) -> bool:
        return self.code or any(_is_set(request, path) for path in self.code_where)


def role_required(caller: Caller, role: str, what: str) -> PermissionDenied:
    """Return the refusal of a call for which a caller lacks a role, or the right `code`."""
    has = ", ".join(caller.roles) or "none"
    named = "the right" if role == CODE else "the role"
    return PermissionDenied(
        "ROLE_REQUIRED",
        f"{what} takes {named} '{role}', and '{caller.name}' has {has}: ask the operator for it",
        role=role,
        caller=caller.name,
        roles=",".join(caller.roles),
    )


def check_code(what: str) -> None:
    """Refuse a call, if there is one, whose caller may not have code of their own run.

    Raises:
        PermissionDenied: ROLE_REQUIRED.
    """
    caller = current_caller()
    if caller is not None and not caller.may_send_code:
        raise role_required(caller, CODE, what)


def requirement_of(path: str) -> Requirement:
    """Return what a method asks of its callers.

    Args:
        path: as it travels, such as `/leman.v1.JobService/GetJob`.
    """
    name = path.strip("/").replace("/", ".")
    try:
        method = descriptor_pool.Default().FindMethodByName(name)
    except KeyError:
        return Requirement(name, "")
    return requirement_from_options(method)


def requirement_from_options(method: MethodDescriptor) -> Requirement:
    """Return what the options of a method say."""
    access = method.GetOptions().Extensions[annotations_pb2.access]
    name = f"{method.containing_service.name}.{method.name}"
    where = tuple(tuple(path.split(".")) for path in access.code_where)
    stays_open = method.client_streaming or method.server_streaming or method.name.startswith(_WAITS)
    if method.containing_service == routes.FLIGHT:
        return _of_flight(method, name, stays_open=stays_open)
    role = _NAMES.get(access.role, "")
    return Requirement(name, role, access.code, where, changes_nothing(method), stays_open)


def _of_flight(method: MethodDescriptor, name: str, *, stays_open: bool) -> Requirement:
    role, reads = routes.ROLES[method.full_name], method.full_name != routes.PUT
    basic = f"/{method.containing_service.full_name}/{method.name}" == routes.HANDSHAKE
    return Requirement(name, role, reads=reads, stays_open=stays_open, basic=basic)


def _is_set(message: Any, path: tuple[str, ...]) -> bool:
    """Return whether a field is set, and whatever it lies in."""
    for name in path:
        field = message.DESCRIPTOR.fields_by_name[name]
        if not (message.HasField(name) if field.has_presence else bool(getattr(message, name))):
            return False
        message = getattr(message, name)
    return True


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
        """Return whether it is as at its beginning."""
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
        """Return whether nothing would be lost by forgetting it."""
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
    """Return whether a service calls: one that shows it is one, or one of a system in which no one shows anything."""
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
