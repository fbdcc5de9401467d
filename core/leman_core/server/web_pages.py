"""Which requests web pages cause, and under which host names a port may be reached.

A browser sends requests for any page, also to this machine and to networks that only its user reaches. It says so in
`Origin` and `Sec-Fetch-Site`, which no page can set. A page that points a name of its own at a service (DNS rebinding)
is of the same origin, but cannot hide the name. Standard library only.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from leman_core.server.addresses import is_loopback

#: Values of Sec-Fetch-Site that no other site's page can cause.
_OWN_SITES = ("", "none", "same-origin")


def is_foreign(headers: Mapping[str, str], own_origin: str, allowed: Collection[str]) -> bool:
    """Return whether a page that may not call has caused a request.

    Args:
        headers: By their names in lower case.
        own_origin: The origin at which the request was received.
        allowed: Origins of pages that may call; `*`: all but those without an origin, whose name is `null`.
    """
    origin = headers.get("origin", "")
    if origin:
        named = origin in allowed or ("*" in allowed and origin != "null")
        return not named and origin != own_origin
    return headers.get("sec-fetch-site", "").lower() not in _OWN_SITES


def names_host(host: str, *, local: bool, allowed: Collection[str]) -> bool:
    """Return whether a Host header has a name that no page of others can have pointed at this service.

    Args:
        local: Only this machine reaches the port.
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


def bad_origin(origin: str) -> bool:
    """Return whether a setting names an origin that no browser sends, or that every sandboxed page has."""
    if origin == "*":
        return False
    parts = urlsplit(origin)
    return not parts.netloc or origin != f"{parts.scheme}://{parts.netloc}" or origin != origin.lower()
