"""Network addresses: hosts and ports, function servers, bind errors, and which web requests a port answers.

A browser sends requests on behalf of any page, also to this machine and to private networks. It states the page's
origin in the headers `Origin` and `Sec-Fetch-Site`, which no page can set. A page can point its own host name at a
service (DNS rebinding) and then counts as the same origin, but it cannot hide that name. Standard library only.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from leman_core.model.service_errors import InvalidArgument, Unavailable

_HOST = re.compile(r"\[[0-9a-f:.]+(%[\w.-]+)?\]|[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?", re.ASCII | re.IGNORECASE)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_LARGEST_PORT = 65535


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of `host:port`; an IPv6 address keeps its brackets.

    Raises:
        ValueError: The text has another form. The error's message does not contain the text.
    """
    host, _, port = address.rpartition(":")
    if not (_HOST.fullmatch(host) and _PORT.fullmatch(port) and 0 < int(port) <= _LARGEST_PORT):
        raise ValueError("write host:port, such as leman.internal:7001 or [::1]:7001, without a scheme")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_unspecified(address: str) -> bool:
    """Return whether the host of `host:port` stands for all addresses of a machine, like `0.0.0.0` and `[::]`."""
    try:
        return ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).is_unspecified
    except ValueError:
        return False


def proxy_options(address: str) -> list[tuple[str, int]]:
    """Return the channel options for `host:port`: calls to this machine bypass `http_proxy`."""
    return [("grpc.enable_http_proxy", 0)] if is_loopback(address.rpartition(":")[0]) else []


_SCHEMES = ("grpc", "grpc+tls")
_ADDRESS = re.compile(
    r"(?P<scheme>[a-z+]+)://(?P<host>\[[0-9a-f:.]+\]|[a-z0-9*]([a-z0-9.*_-]*[a-z0-9*])?):(?P<port>[0-9]{1,5}|\*)",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a Flight URI, or of a pattern whose host and port may contain `*`."""

    scheme: str
    host: str
    port: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def tls(self) -> bool:
        """Return whether the connection is encrypted."""
        return self.scheme == "grpc+tls"

    @property
    def loopback(self) -> bool:
        """Return whether the host is this machine."""
        host = self.host.strip("[]")
        if host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def matches(self, pattern: Address) -> bool:
        """Return whether a pattern covers this address. `*` stands for any characters of a host, or for any port."""
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
            f"'{text[:200]}' is not an address of a function server: write grpc://host:port, or with TLS "
            "grpc+tls://host:port",
            field="definition.remote_function.addresses",
        )
    return found


def parse_pattern(text: str) -> Address:
    """Return a pattern of addresses from the settings: an address that may have `*` in its host or as its port.

    Raises:
        ValueError: The text is no pattern.
    """
    found = _parsed(text)
    if found is None:
        raise ValueError(f"'{text}' is not a pattern of addresses, such as grpc+tls://*.features.internal:7443")
    return found


def matches_any(address: Address, patterns: Iterable[Address]) -> bool:
    """Return whether one of the patterns covers the address."""
    return any(address.matches(pattern) for pattern in patterns)


def _parsed(text: str) -> Address | None:
    found = _ADDRESS.fullmatch(text)
    if found is None or found["scheme"].lower() not in _SCHEMES:
        return None
    port = found["port"]
    if port != "*" and not 1 <= int(port) <= _LARGEST_PORT:
        return None
    return Address(found["scheme"].lower(), found["host"].lower(), port if port == "*" else str(int(port)))


#: The errors that listening on an address may raise. Python raises UnicodeError for an invalid host name.
LISTEN_ERRORS = (OSError, UnicodeError)
_TAKEN = "another process listens there; choose another port, or stop that process"
_FOREIGN = "that is not an address of this machine"
_RESERVED = "this user may not listen there: ports below 1024 are reserved for the system"


def bind_failure(
    doing: str, host: str, port: int, *, host_setting: str, port_setting: str, error: Exception
) -> Unavailable:
    """Return the error of an address that cannot be listened on, with the settings that name it.

    Args:
        doing: What failed, such as `cannot serve metrics`.
        error: The error. gRPC's errors contain no cause. To find it, this function then binds the address itself.
    """
    cause = error if isinstance(error, LISTEN_ERRORS) else _tried(host, port) or error
    number = cause.errno if isinstance(cause, OSError) and not isinstance(cause, socket.gaierror) else None
    if isinstance(cause, socket.gaierror):
        which, why = host_setting, f"the name does not resolve ({cause.strerror})"
    elif isinstance(cause, UnicodeError):
        which, why = host_setting, f"that is not a host name ({cause})"
    elif number == errno.EADDRINUSE:
        which, why = port_setting, _TAKEN
    elif number == errno.EADDRNOTAVAIL:
        which, why = host_setting, _FOREIGN
    elif number == errno.EACCES:
        which, why = port_setting, _RESERVED
    else:
        which, why = f"{host_setting}, {port_setting}", str(cause)
    return Unavailable("BIND_FAILED", f"{doing} on {bracket_host(host)}:{port}: {which}: {why}")


def bracket_host(host: str) -> str:
    """Return a host in the form in which a port can follow it: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _tried(host: str, port: int) -> Exception | None:
    """Return the error of an attempt to bind the address; None if the attempt succeeds."""
    try:
        kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
        for family, *_, address in socket.getaddrinfo(host.strip("[]"), port, type=kind, flags=flags):
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except LISTEN_ERRORS as error:
        return error
    return None


#: Values of Sec-Fetch-Site that pages of other sites cannot cause.
_OWN_SITES = ("", "none", "same-origin")


def is_foreign(headers: Mapping[str, str], own_origin: str, allowed: Collection[str]) -> bool:
    """Return whether a web page that may not call caused a request.

    Args:
        headers: The request's headers, by lower-case names.
        own_origin: The origin that received the request.
        allowed: Origins of pages that may call. `*` stands for all except `null`, which pages without an origin send.
    """
    origin = headers.get("origin", "")
    if origin:
        named = origin in allowed or ("*" in allowed and origin != "null")
        return not named and origin != own_origin
    return headers.get("sec-fetch-site", "").lower() not in _OWN_SITES


def is_allowed_host(host: str, *, local: bool, allowed: Collection[str]) -> bool:
    """Return whether a Host header has a name that a foreign page cannot have pointed at this service.

    Args:
        local: Whether only this machine can reach the port.
        allowed: Further names, in lower case.
    """
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    return is_loopback(name) or name in allowed or (not local and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_bad_origin(origin: str) -> bool:
    """Return whether an origin in a setting is one that no browser sends, or that all sandboxed pages share."""
    if origin == "*":
        return False
    parts = urlsplit(origin)
    return not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}" or origin != origin.lower()
