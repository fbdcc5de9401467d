"""Who a call comes from, and what they may do."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field

from leman.v1 import annotations_pb2

#: The right to have one's own code run on the workers.
CODE = "code"
#: What a caller can be told to be: the roles, each of which includes those before it, by rank.
RANKS = {name.removeprefix("ROLE_").lower(): number for name, number in annotations_pb2.Role.items() if number > 0}
SERVICE = annotations_pb2.Role.Name(annotations_pb2.ROLE_SERVICE).removeprefix("ROLE_").lower()
#: What a caller is called, and said to have shown, who shows nothing.
ANONYMOUS = "anonymous"
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


def caller(name: str, shown_by: str, roles: Iterable[str]) -> Caller:
    """Return a caller with the roles that are ones; other words are another system's, and left out."""
    return Caller(name, shown_by, tuple(sorted(set(roles).intersection(GRANTS))))


#: The caller of the call that is being answered, where there is one; functions in threads see it too.
CURRENT: ContextVar[Caller | None] = ContextVar("caller", default=None)


def current_caller() -> Caller | None:
    """Return who the call that is being answered comes from; None where a service works of its own accord."""
    return CURRENT.get()
