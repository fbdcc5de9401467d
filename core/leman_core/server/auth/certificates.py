"""Clients' certificates (mTLS), as names with roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from leman_core.model.errors import InvalidArgument
from leman_core.server.auth.caller import Caller, caller

#: How names begin in the settings → what gRPC calls them.
_PROPERTIES = {
    "CN": "x509_common_name",
    "DNS": "peer_dns",
    "URI": "peer_uri",
    "EMAIL": "peer_email",
}


class Certificates:
    """What says whose a certificate is that TLS has checked.

    Args:
        roles: by names such as `DNS:etl.example`.

    Raises:
        InvalidArgument: BAD_SETTING.
    """

    def __init__(self, roles: Mapping[str, Iterable[str]]) -> None:
        self._roles: dict[tuple[str, str], tuple[str, ...]] = {}
        for name, given in roles.items():
            kind, _, value = name.partition(":")
            if kind not in _PROPERTIES or not value:
                known = ", ".join(f"{kind}:" for kind in _PROPERTIES)
                raise InvalidArgument(
                    "BAD_SETTING",
                    f"LEMAN_SERVER__TLS_CLIENT_ROLES: '{name}' is no name of a certificate; they begin with {known}",
                )
            self._roles[_PROPERTIES[kind], value] = tuple(given)

    def caller_of(self, shown: Mapping[str, Iterable[bytes]]) -> Caller | None:
        """Return whose a certificate is; None where no name in it is known.

        Args:
            shown: what gRPC says of the connection.
        """
        names = [
            (kind, value.decode("utf-8", "replace")) for kind in _PROPERTIES.values() for value in shown.get(kind, ())
        ]
        known = [name for name in names if name in self._roles]
        if not known:
            return None
        return caller(known[0][1], "certificate", (role for name in known for role in self._roles[name]))
