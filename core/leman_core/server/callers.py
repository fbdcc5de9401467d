"""Callers: their roles, what each method requires of them, and how services name a forwarded call's caller.

The requirements of a method are options in the protos (protos/leman/v1/annotations.proto); those of Arrow Flight stand
in `leman_core.server.routes`.

A service that forwards a call passes on the caller's token. It cannot pass on a certificate, which belongs to the
caller's connection, nor the settings' grants to anonymous callers, so it names the caller in metadata. The peer
believes that only on a connection of a service, and never takes a forwarded call for one of the service itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor

from leman.v1 import annotations_pb2
from leman_core.model.service_errors import PermissionDenied
from leman_core.server import routes
from leman_core.server.request_messages import changes_nothing

#: The right to run one's own code on the workers.
CODE = "code"
#: Roles by rank; each includes those before it.
RANKS = {name.removeprefix("ROLE_").lower(): number for name, number in annotations_pb2.Role.items() if number > 0}
SERVICE = annotations_pb2.Role.Name(annotations_pb2.ROLE_SERVICE).removeprefix("ROLE_").lower()
#: Name and `shown_by` of callers that show no credentials.
ANONYMOUS = "anonymous"
#: The name of callers with the token of the settings (`LEMAN_SERVER__TOKEN`).
UNNAMED = "token"
#: All that settings, token files and claims may grant.
GRANTS = (*RANKS, CODE)


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller."""

    #: The name in logs and accounts; unique only together with `shown_by`.
    name: str
    #: The kind of credentials: `token`, `jwt` or `certificate`; `anonymous` without any.
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

    @property
    def is_service(self) -> bool:
        """Return whether the caller proved to be a service. Anonymous callers may have the role without proof."""
        return SERVICE in self.roles and self.shown_by != ANONYMOUS


def make_caller(name: str, shown_by: str, roles: Iterable[str]) -> Caller:
    """Return a caller with those of the roles that exist; other words belong to other systems, and are dropped."""
    return Caller(name, shown_by, tuple(sorted(set(roles).intersection(GRANTS))))


#: The caller of the current call; functions in threads see it too.
CURRENT: ContextVar[Caller | None] = ContextVar("caller", default=None)


def current_caller() -> Caller | None:
    """Return the caller of the current call; None while a service works without a call."""
    return CURRENT.get()


#: Metadata key with the service that forwarded a call.
FORWARDED_BY = "x-leman-forwarded-by"
#: Its value for a call through a front (`leman_core.server.front`). The front's connection and certificate say nothing
#: about the caller; only a token does.
FRONT = "front"
_NAME, _SHOWN_BY, _ROLES = "x-leman-caller", "x-leman-caller-shown-by", "x-leman-caller-roles"
#: Metadata key with the address of the caller's own connection.
FORWARDED_FOR = "x-leman-forwarded-for"
#: Keys that are dropped from what callers send.
KEYS = (_NAME, _SHOWN_BY, _ROLES, FORWARDED_FOR)


def forwarded_metadata(whom: Caller, address: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that name a caller, and the address of its connection, to another service."""
    roles = ",".join(whom.roles)
    return (_NAME, quote(whom.name)), (_SHOWN_BY, whom.shown_by), (_ROLES, roles), (FORWARDED_FOR, address)


def forwarded_caller(connection: Caller, metadata: Mapping[str, str | bytes]) -> Caller | None:
    """Return the caller of a call on a connection.

    None if the call was forwarded and its caller is missing, or the connection is not a service's.
    """
    if FORWARDED_BY not in metadata:
        return connection
    name, shown_by, roles = (str(metadata.get(key, "")) for key in (_NAME, _SHOWN_BY, _ROLES))
    if not name or SERVICE not in connection.roles:
        return None
    return make_caller(unquote(name), shown_by, roles.split(","))


#: Methods with this prefix take as long as what they wait for.
_WAITS = "Wait"
_NAMES = {rank: role for role, rank in RANKS.items()}


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one method requires of its callers."""

    #: Such as `CatalogService.RegisterUdf`.
    method: str
    #: The lowest role that may call it; empty: none is declared, so that all calls are refused.
    role: str
    #: Whether it needs the right `code`.
    code: bool = False
    #: Paths of fields. If one is set, the call needs the right `code`.
    code_where: tuple[tuple[str, ...], ...] = ()
    #: Whether it only reads.
    reads: bool = False
    #: Whether it stays open as long as its caller likes: a stream, or a call that waits.
    stays_open: bool = False
    #: Whether a token may be the password of the scheme Basic.
    basic: bool = False

    @property
    def audited(self) -> bool:
        """Return whether each call has an audit line: it changes something, or runs its caller's code."""
        return not self.reads or bool(self.code or self.code_where)

    @property
    def of_peers(self) -> bool:
        """Return whether only services call it."""
        return self.role == SERVICE

    def check(self, caller: Caller, request: Any) -> None:
        """Raise PermissionDenied (ROLE_REQUIRED) if the caller may not make this call."""
        if not self.role:
            raise PermissionDenied(
                "ROLE_REQUIRED", f"{self.method} declares no role that may call it: report that as a bug"
            )
        if caller.rank < RANKS[self.role]:
            raise role_required(caller, self.role, self.method)
        if (self.code or self.code_where) and not caller.may_send_code and self._takes_code(request):
            raise role_required(caller, CODE, f"{self.method} with code that the caller sends")

    def _takes_code(self, request: Any) -> bool:
        return self.code or any(_is_set(request, path) for path in self.code_where)


def role_required(caller: Caller, role: str, what: str) -> PermissionDenied:
    """Return the error of a caller without a role, or without the right `code`."""
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
    """Raise PermissionDenied (ROLE_REQUIRED) if there is a current caller, and it may not send code."""
    caller = current_caller()
    if caller is not None and not caller.may_send_code:
        raise role_required(caller, CODE, what)


def requirement_of(path: str) -> Requirement:
    """Return the requirement of a method, by a path such as `/leman.v1.JobService/GetJob`."""
    name = path.strip("/").replace("/", ".")
    try:
        method = descriptor_pool.Default().FindMethodByName(name)
    except KeyError:
        return Requirement(name, "")
    return requirement_from_options(method)


def requirement_from_options(method: MethodDescriptor) -> Requirement:
    """Return the requirement that the options of a method declare."""
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
    """Return whether a field and all messages around it are set."""
    for name in path:
        field = message.DESCRIPTOR.fields_by_name[name]
        if not (message.HasField(name) if field.has_presence else bool(getattr(message, name))):
            return False
        message = getattr(message, name)
    return True
