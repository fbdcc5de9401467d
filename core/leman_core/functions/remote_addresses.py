"""Addresses of function servers: Flight uris, and patterns of those that may be registered. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from leman_core.model.errors import InvalidArgument

_SCHEMES = ("grpc", "grpc+tls")
_ADDRESS = re.compile(
    r"(?P<scheme>[a-z+]+)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9*]([a-z0-9.*_-]*[a-z0-9*])?):(?P<port>[0-9]{1,5}|\*)",
    re.ASCII | re.IGNORECASE,
)
_LARGEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """A Flight uri in its parts; in a pattern host and port may have stars."""

    scheme: str
    host: str
    port: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def tls(self) -> bool:
        """Tell whether what is sent there is encrypted."""
        return self.scheme == "grpc+tls"

    @property
    def loopback(self) -> bool:
        """Tell whether it is this machine, by name or number."""
        host = self.host.strip("[]")
        if host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def matches(self, pattern: Address) -> bool:
        """Tell whether a pattern means this address: `*` in its host stands for any letters, as its port for any."""
        hosts = re.escape(pattern.host).replace(re.escape("*"), ".*")
        return (
            self.scheme == pattern.scheme
            and re.fullmatch(hosts, self.host) is not None
            and pattern.port in ("*", self.port)
        )


def parse_address(text: str) -> Address:
    """Return the address of a function server.

    Raises:
        InvalidArgument: BAD_UDF.
    """
    found = _parsed(text)
    if found is None or "*" in str(found):
        raise InvalidArgument(
            "BAD_UDF",
            f"'{text[:200]}' is no address of a function server: write grpc://host:port, or with TLS "
            "grpc+tls://host:port",
            field="definition.remote_function.addresses",
        )
    return found


def parse_pattern(text: str) -> Address:
    """Return a pattern of addresses, as it stands in the settings: like an address, with `*` in its host or as port.

    Raises:
        ValueError: It is none.
    """
    found = _parsed(text)
    if found is None:
        raise ValueError(f"'{text}' is no pattern of addresses, such as grpc+tls://*.features.internal:7443")
    return found


def listed(address: Address, patterns: Iterable[Address]) -> bool:
    """Tell whether one of the patterns means the address."""
    return any(address.matches(pattern) for pattern in patterns)


def _parsed(text: str) -> Address | None:
    found = _ADDRESS.fullmatch(text)
    if found is None or found["scheme"].lower() not in _SCHEMES:
        return None
    port = found["port"]
    if port != "*" and not 1 <= int(port) <= _LARGEST_PORT:
        return None
    return Address(found["scheme"].lower(), found["host"].lower(), port if port == "*" else str(int(port)))
