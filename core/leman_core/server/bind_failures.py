"""Why an address cannot be listened on, in words of the settings that name it."""

from __future__ import annotations

import errno
import socket

from leman_core.model.errors import Unavailable

#: What is raised where an address cannot be listened on; UnicodeError is Python's for a name that is none.
LISTEN_ERRORS = (OSError, UnicodeError)
_TAKEN = "something else listens there; give it another port, or end the other one"
_FOREIGN = "that is no address of this machine"
_RESERVED = "this user may not listen there: ports below 1024 are the system's"


def bind_failure(
    doing: str, host: str, port: int, *, host_setting: str, port_setting: str, error: Exception
) -> Unavailable:
    """Return the error of an address that cannot be listened on.

    Args:
        doing: What cannot be done, such as `cannot serve metrics`.
        error: What was raised. One that is none of LISTEN_ERRORS, as gRPC's, has no reason in it: the address is tried
            once more.
    """
    cause = error if isinstance(error, LISTEN_ERRORS) else _tried(host, port) or error
    number = cause.errno if isinstance(cause, OSError) and not isinstance(cause, socket.gaierror) else None
    if isinstance(cause, socket.gaierror):
        which, why = host_setting, f"the name does not resolve ({cause.strerror})"
    elif isinstance(cause, UnicodeError):
        which, why = host_setting, f"that is no name of a machine ({cause})"
    elif number == errno.EADDRINUSE:
        which, why = port_setting, _TAKEN
    elif number == errno.EADDRNOTAVAIL:
        which, why = host_setting, _FOREIGN
    elif number == errno.EACCES:
        which, why = port_setting, _RESERVED
    else:
        which, why = f"{host_setting}, {port_setting}", str(cause)
    return Unavailable("BIND_FAILED", f"{doing} on {bracketed(host)}:{port}: {which}: {why}")


def bracketed(host: str) -> str:
    """Return a host as it stands before a port."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _tried(host: str, port: int) -> Exception | None:
    """Return why the address cannot be taken; None: nothing is in the way now."""
    try:
        kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
        for family, *_, address in socket.getaddrinfo(host.strip("[]"), port, type=kind, flags=flags):
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except LISTEN_ERRORS as error:
        return error
    return None
