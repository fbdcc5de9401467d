"""What an address says about the way to it. Standard library only."""

from __future__ import annotations

import ipaddress
import re

_HOST = re.compile(r"\[[0-9a-f:.]+(%[\w.-]+)?\]|[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?", re.ASCII | re.IGNORECASE)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_LARGEST_PORT = 65535


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of `host:port`, an IPv6 address in the brackets that it has there.

    Raises:
        ValueError: It is something else; the message does not repeat it.
    """
    host, _, port = address.rpartition(":")
    if not (_HOST.fullmatch(host) and _PORT.fullmatch(port) and 0 < int(port) <= _LARGEST_PORT):
        raise ValueError("write host:port, such as leman.internal:7001 or [::1]:7001, without a scheme")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_unspecified(address: str) -> bool:
    """Tell whether the host of `host:port` stands for all addresses of a machine, as `0.0.0.0` and `[::]` do."""
    try:
        return ipaddress.ip_address(address.rpartition(":")[0].strip("[]")).is_unspecified
    except ValueError:
        return False


def proxy_options(address: str) -> list[tuple[str, int]]:
    """Return the channel options for `host:port`: calls on this machine never take the way through `http_proxy`."""
    return [("grpc.enable_http_proxy", 0)] if is_loopback(address.rpartition(":")[0]) else []
