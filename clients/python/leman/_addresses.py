"""Addresses of services, as callers write them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Any

from leman.errors import InvalidArgument

_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s:/,@\[\]]+):([0-9]+)", re.ASCII)
_AS_GRPC_HAS_IT = "dns:///"
_LARGEST_PORT = 65535
_SUCH_AS = "such as 'leman.internal:7443'"


def addresses(endpoint: str | Sequence[str]) -> tuple[str, ...]:
    """The endpoints that were given, once each: of a str those between its commas. Raises InvalidArgument."""
    given: Any = endpoint
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise _bad(given, f"is not host:port, {_SUCH_AS}, nor several of these")
    named = tuple(given.split(",") if isinstance(given, str) else given)
    if not named or named == ("",):
        raise InvalidArgument(f"endpoint is empty: give host:port of a service, {_SUCH_AS}")
    return tuple(dict.fromkeys(map(_address, named)))


def is_loopback(address: str) -> bool:
    """Whether host:port is of this machine and nothing else."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def _address(given: Any) -> str:
    if not isinstance(given, str):
        raise _bad(given, f"is not a str like host:port, {_SUCH_AS}")
    address = given.strip().removeprefix(_AS_GRPC_HAS_IT)
    scheme, separator, rest = address.partition("://")
    if separator:
        place = rest.strip("/") or "host:port"
        raise _bad(address, f"is a URL: leave {scheme}:// out and give {place} (for TLS with tls_ca=)")
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise _bad(address, f"is not host:port, {_SUCH_AS}")
    if not 1 <= int(found[1]) <= _LARGEST_PORT:
        raise _bad(address, f"has no possible port: one is from 1 to {_LARGEST_PORT}")
    return address


def _bad(given: Any, what: str) -> InvalidArgument:
    return InvalidArgument(f"endpoint={given!r} {what}")
