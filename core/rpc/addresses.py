"""What an address says about the way to it. Standard library only."""

from __future__ import annotations

import ipaddress


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
