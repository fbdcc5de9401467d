"""What a service says to another one of the caller whose call it passes on.

A token travels with the call. A certificate does not, as it belongs to the caller's connection, nor does what settings
give callers without a name: so the service that was called says who it is. It is believed where the connection is that
of a service; a call that another service passed on is never taken for one of that service.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote

from leman_core.server.auth.caller import SERVICE, Caller, caller

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


def vouch(whom: Caller, address: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that tell another service of a caller, and of the address of their connection."""
    roles = ",".join(whom.roles)
    return (_NAME, quote(whom.name)), (_SHOWN_BY, whom.shown_by), (_ROLES, roles), (FORWARDED_FOR, address)


def behind(connection: Caller, metadata: Mapping[str, str | bytes]) -> Caller | None:
    """Return who called, where a call came over a connection that is somebody's.

    None where a service passed it on and does not say for whom, or is not one to be believed.
    """
    if FORWARDED_BY not in metadata:
        return connection
    name, shown_by, roles = (str(metadata.get(key, "")) for key in (_NAME, _SHOWN_BY, _ROLES))
    if not name or SERVICE not in connection.roles:
        return None
    return caller(unquote(name), shown_by, roles.split(","))
