"""What each call asks of its caller: read from the options on it (protos/leman/v1/annotations.proto).

Those of Arrow Flight stand in `leman_core.server.flight_calls`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor

from leman.v1 import annotations_pb2
from leman_core.model.errors import PermissionDenied
from leman_core.server import flight_calls
from leman_core.server.auth.caller import CODE, RANKS, SERVICE, Caller, current_caller
from leman_core.server.idempotency import changes_nothing

#: How calls are named that take as long as what they wait for.
_WAITS = "Wait"
_NAMES = {rank: role for role, rank in RANKS.items()}


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one method asks of its callers."""

    #: Such as `CatalogService.RegisterUdf`.
    method: str
    #: The least role; empty: nobody may call it, as nothing says who may.
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
        """Tell whether each call leaves a line: it changes something, or has code run that its caller sends."""
        return not self.reads or bool(self.code or self.code_where)

    @property
    def of_peers(self) -> bool:
        """Tell whether only services call it."""
        return self.role == SERVICE

    def check(self, caller: Caller, request: Any) -> None:
        """Refuse a call that the caller may not make.

        Raises:
            PermissionDenied: ROLE_REQUIRED.
        """
        if not self.role:
            raise PermissionDenied(
                "ROLE_REQUIRED", f"{self.method} says of nobody that they may call it: report that as a bug"
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
        f"{what} takes {named} '{role}', and '{caller.name}' has {has}: ask whoever runs the service for it",
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
    return described(method)


def described(method: MethodDescriptor) -> Requirement:
    """Return what the options of a method say."""
    access = method.GetOptions().Extensions[annotations_pb2.access]
    name = f"{method.containing_service.name}.{method.name}"
    where = tuple(tuple(path.split(".")) for path in access.code_where)
    stays_open = method.client_streaming or method.server_streaming or method.name.startswith(_WAITS)
    if method.containing_service == flight_calls.FLIGHT:
        return _of_flight(method, name, stays_open=stays_open)
    role = _NAMES.get(access.role, "")
    return Requirement(name, role, access.code, where, changes_nothing(method), stays_open)


def _of_flight(method: MethodDescriptor, name: str, *, stays_open: bool) -> Requirement:
    role, reads = flight_calls.ROLES[method.full_name], method.full_name != flight_calls.PUT
    basic = f"/{method.containing_service.full_name}/{method.name}" == flight_calls.HANDSHAKE
    return Requirement(name, role, reads=reads, stays_open=stays_open, basic=basic)


def _is_set(message: Any, path: tuple[str, ...]) -> bool:
    """Tell whether a field is set, and whatever it lies in."""
    for name in path:
        field = message.DESCRIPTOR.fields_by_name[name]
        if not (message.HasField(name) if field.has_presence else bool(getattr(message, name))):
            return False
        message = getattr(message, name)
    return True
