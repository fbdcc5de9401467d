"""Whether TLS is why a function server cannot be reached, and what to do about it then.

gRPC says of a connection that could not be made little more than that: a server that is not there and one that speaks
TLS where none is expected look alike. So the server is asked once more, by a handshake of our own.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl

from leman_core.functions.remote_addresses import Address, parse_address
from leman_core.model.work import ServerAccess

_SECONDS = 2.0
_SENTENCE = re.compile(r"failed to connect|handshake|empty address list", re.IGNORECASE)
#: What gRPC says of a handshake that failed, and of a certificate for another name.
_HANDSHAKE = re.compile(r"(Ssl handshake failed|Peer name|Hostname verification|Cannot check peer).*", re.IGNORECASE)
_FILE = "the file of LEMAN_UDF__REMOTE_CREDENTIALS"


def tls_fault(access: ServerAccess, said: str) -> str | None:
    """Return how TLS keeps a server from being reached, and what to do; None: it is something else, or not known.

    Args:
        access: How the services speak with the server.
        said: What gRPC said when it could not.
    """
    if not _SENTENCE.search(said):
        return None
    address = parse_address(access.address)
    if not address.tls:
        return _hidden_tls(address)
    if "empty address list" in said:
        return f"`ca`, `cert` or `key` are no certificates in PEM, or do not fit together: correct them in {_FILE}"
    with contextlib.suppress(OSError):  # it is away, or hung up
        fault = _handshake_fault(address, access)
        if fault is not None:
            return fault
    told = _HANDSHAKE.search(said)
    return f"{told[0]}. {_verified(access)}" if told else None


def _hidden_tls(address: Address) -> str | None:
    """Tell of a server that speaks TLS although its address does not say so."""
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    try:
        with _connected(address) as plain, anyone.wrap_socket(plain):
            pass
    except ssl.SSLError as error:
        if not _is_alert(error):
            return None
    except OSError:
        return None
    there = Address("grpc+tls", address.host, address.port)
    return f"the server speaks TLS, which this address does not say: register the function at {there}"


def _handshake_fault(address: Address, access: ServerAccess) -> str | None:
    """Tell what goes wrong in a handshake; OSError: the server is away, or hung up."""
    try:
        strict = ssl.create_default_context(cadata=access.ca or None)
    except (ssl.SSLError, ValueError):
        return f"`ca` is no certificate in PEM: correct it in {_FILE}"
    strict.set_alpn_protocols(["h2"])
    with _connected(address) as plain:
        try:
            secured = strict.wrap_socket(plain, server_hostname=address.host.strip("[]"))
        except ssl.SSLCertVerificationError as error:
            return f"the server's certificate does not verify: {error.verify_message.rstrip('.')}. {_verified(access)}"
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return None
        except ssl.SSLError as error:
            if _is_alert(error):
                return _asked_for_ours(access) or f"the server refuses TLS ({error.reason})"
            instead = Address("grpc", address.host, address.port)
            return (
                f"the server does not speak TLS ({error.reason}): have it do so, or register the function at {instead}"
            )
        with secured:
            if secured.selected_alpn_protocol() != "h2":
                return (
                    "the server does not agree to HTTP/2 over TLS (ALPN h2): it is no Flight server, or a proxy's fault"
                )
            return _refused_later(secured, access)


def _refused_later(secured: ssl.SSLSocket, access: ServerAccess) -> str | None:
    """Tell of a server that asks for a certificate: by TLS 1.3 it says so after the handshake."""
    secured.settimeout(_SECONDS)
    try:
        secured.recv(1)
    except ssl.SSLError as error:
        return _asked_for_ours(access) if _is_alert(error) else None
    return None


def _asked_for_ours(access: ServerAccess) -> str | None:
    if access.cert:  # the handshake of our own shows none
        return None
    return f"the server asks for a certificate: name `cert` and `key` for its address in {_FILE}"


def _verified(access: ServerAccess) -> str:
    trusted = f"the `ca` that {_FILE} names" if access.ca else f"the system's authorities, as {_FILE} names no `ca`"
    return f"It is checked with {trusted}: correct that, or give the server a certificate that it vouches for"


def _is_alert(error: ssl.SSLError) -> bool:
    return "ALERT" in (error.reason or "")


def _connected(address: Address) -> socket.socket:
    return socket.create_connection((address.host.strip("[]"), int(address.port)), _SECONDS)
