"""A client of function servers, for planner and workers: the protocol `leman.function.v1`, and its errors.

docs/remote_functions.md describes the protocol, which runs over Arrow Flight. Before callers send batches to a server,
they ask for its functions, to learn whether the server can compute the batches. They cannot learn it from the status of
a refused stream, because not every Flight library can send every status. gRPC reports an absent server and a TLS error
alike. So after a failed connection this module tries a TLS handshake itself to find the cause.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import flight

from leman._format.value_casts import check_utf8
from leman_core.model.service_errors import FailedPrecondition, LemanError, NotFound, Unavailable
from leman_core.model.work import ServerAccess
from leman_core.process.addresses import Address, parse_address

PROTOCOL = "leman.function.v1"
#: The action that asks a server for its functions.
DESCRIBE = f"{PROTOCOL}.describe"
#: Keys in the metadata of the schema with which a server begins its side of a stream.
FUNCTION_KEY, VERSION_KEY = b"leman.function", b"leman.version"
_VERSION = re.compile(r"[A-Za-z0-9_.-]{1,128}")
#: The most characters of an error class's name, and the most base classes, that are kept.
_LONGEST_NAME = 200
_MOST_BASES = 64


class ProtocolError(ValueError):
    """A server's answer violates the protocol."""


@dataclass(frozen=True, slots=True)
class FunctionDescription:
    """A server's description of one of its functions."""

    function: str
    version: str
    #: Its parameters, in order.
    inputs: pa.Schema
    output: pa.DataType

    @property
    def input_types(self) -> tuple[pa.DataType, ...]:
        return tuple(self.inputs.types)


@dataclass(frozen=True, slots=True)
class BatchError:
    """A server's report of a batch for which its function failed."""

    #: The names of the error's class (or of its equivalent in the server's language) and of its base classes.
    kind: str
    bases: tuple[str, ...]
    message: str
    traceback: str


def parse_stream(schema: pa.Schema) -> tuple[str, str]:
    """Return the function and its version that the schema of a server's stream names.

    Raises:
        ProtocolError: It does not name them, or does not have exactly one column.
    """
    told = schema.metadata or {}
    if len(schema) != 1 or FUNCTION_KEY not in told or VERSION_KEY not in told:
        raise ProtocolError("a stream's schema needs the function and its version as metadata, and exactly one column")
    try:
        return told[FUNCTION_KEY].decode(), told[VERSION_KEY].decode()
    except UnicodeDecodeError:
        raise ProtocolError("a stream's function or version is not UTF-8") from None


def stream_command(function: str, version: str) -> bytes:
    """Return the command that opens a stream for a function."""
    return json.dumps({"protocol": PROTOCOL, "function": function, "version": version}).encode()


def parse_description(body: bytes) -> FunctionDescription:
    """Parse one result of the action `DESCRIBE`.

    Raises:
        ProtocolError: It is not a valid description.
    """
    told = _object(body)
    output = _schema(told, "output")
    if len(output) != 1:
        raise ProtocolError(f"'output' has {len(output)} fields, not one")
    inputs, version = _schema(told, "inputs"), _text(told, "version")
    if not _VERSION.fullmatch(version):
        raise ProtocolError("'version' is not 1 to 128 letters, digits, '_', '.' and '-'")
    if len(set(inputs.names)) < len(inputs):
        raise ProtocolError("two fields of 'inputs' have the same name")
    if pa.types.is_null(output.field(0).type):
        raise ProtocolError("'output' is of type null: no value could be stored")
    return FunctionDescription(_text(told, "function"), version, inputs, output.field(0).type)


def parse_error(metadata: bytes) -> BatchError:
    """Parse the metadata that a server sends instead of a batch, if its function failed.

    Raises:
        ProtocolError: It is not a valid error.
    """
    told = _object(metadata).get("error")
    if not isinstance(told, dict):
        raise ProtocolError("the server answered a batch with neither a batch nor an error")
    bases = told.get("bases", [])
    return BatchError(
        kind=_name(_text(told, "type")),
        bases=tuple(_name(str(base)) for base in bases[:_MOST_BASES]) if isinstance(bases, list) else (),
        message=str(told.get("message", "")),
        traceback=str(told.get("traceback", "")),
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        raise ProtocolError("an answer is not JSON") from None
    if not isinstance(told, dict):
        raise ProtocolError("an answer is not a JSON object")
    return told


def _name(told: str) -> str:
    """Return a server's text for storage and terminals: cut to a safe length, with `?` for control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in told[:_LONGEST_NAME])


def _text(told: dict[str, Any], key: str) -> str:
    value = told.get(key)
    if not isinstance(value, str) or not value:
        raise ProtocolError(f"'{key}' is missing, empty or not a string")
    return value


def _schema(told: dict[str, Any], key: str) -> pa.Schema:
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(_text(told, key), validate=True)))
        check_utf8(schema)
    except (binascii.Error, pa.ArrowException, OSError, ValueError) as error:
        raise ProtocolError(f"'{key}' is not an Arrow schema in base64: {error}") from None
    return schema


_SECONDS = 2.0
#: gRPC's errors that a TLS problem may have caused.
_SENTENCE = re.compile(r"failed to connect|handshake|empty address list", re.IGNORECASE)
#: gRPC's errors for a failed handshake, and for a certificate of another name.
_HANDSHAKE = re.compile(r"(Ssl handshake failed|Peer name|Hostname verification|Cannot check peer).*", re.IGNORECASE)
_FILE = "the file of LEMAN_UDF__REMOTE_CREDENTIALS"


def tls_fault(access: ServerAccess, said: str) -> str | None:
    """Return what is wrong with TLS between this client and a server, and how to correct it.

    Args:
        access: The access to the server.
        said: gRPC's error.

    Returns:
        None if the connection failed for another reason, or for an unknown one.
    """
    if not _SENTENCE.search(said):
        return None
    address = parse_address(access.address)
    if not address.tls:
        return _hidden_tls(address)
    if "empty address list" in said:
        return f"`ca`, `cert` or `key` are not valid PEM, or do not match: correct them in {_FILE}"
    with contextlib.suppress(OSError):  # the server is down, or closed the connection
        fault = _handshake_fault(address, access)
        if fault is not None:
            return fault
    told = _HANDSHAKE.search(said)
    return f"{told[0]}. {_verified(access)}" if told else None


def _hidden_tls(address: Address) -> str | None:
    """Return the problem if the server uses TLS although its address has the scheme without it."""
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
    return f"the server speaks TLS, but its address is one without TLS: register the function at {there}"


def _handshake_fault(address: Address, access: ServerAccess) -> str | None:
    """Return why a TLS handshake fails, or None. Raises OSError if the server is down or closes the connection."""
    try:
        strict = ssl.create_default_context(cadata=access.ca or None)
    except (ssl.SSLError, ValueError):
        return f"`ca` is not a valid PEM certificate: correct it in {_FILE}"
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
                f"the server does not speak TLS ({error.reason}): set up TLS in it, or register the function at "
                f"{instead}"
            )
        with secured:
            if secured.selected_alpn_protocol() != "h2":
                return (
                    "the server does not accept HTTP/2 over TLS (ALPN h2): it is not a Flight server, or a proxy in "
                    "front of it does not pass HTTP/2 on"
                )
            return _refused_later(secured, access)


def _refused_later(secured: ssl.SSLSocket, access: ServerAccess) -> str | None:
    """Return the problem if the server requires a client certificate. In TLS 1.3 it says so only after a handshake."""
    secured.settimeout(_SECONDS)
    try:
        secured.recv(1)
    except ssl.SSLError as error:
        return _asked_for_ours(access) if _is_alert(error) else None
    return None


def _asked_for_ours(access: ServerAccess) -> str | None:
    if access.cert:  # this module's handshake does not send it, so the refusal means nothing
        return None
    return f"the server asks for a client certificate: add `cert` and `key` for its address to {_FILE}"


def _verified(access: ServerAccess) -> str:
    trusted = f"the `ca` in {_FILE}" if access.ca else f"the system's authorities, as {_FILE} has no `ca` for it"
    return f"The certificate was checked with {trusted}: correct that, or give the server a certificate signed by it"


def _is_alert(error: ssl.SSLError) -> bool:
    return "ALERT" in (error.reason or "")


def _connected(address: Address) -> socket.socket:
    return socket.create_connection((address.host.strip("[]"), int(address.port)), _SECONDS)


#: The reason of the error for a connection that TLS prevents.
TLS_FAILED = "FUNCTION_TLS_FAILED"

#: A server that does not describe its functions within this time counts as unreachable.
DESCRIBE_SECONDS = 5.0
#: gRPC servers may close a connection whose client sends keepalives more often than every five minutes.
_KEEPALIVE = [("grpc.keepalive_time_ms", 330_000), ("grpc.keepalive_timeout_ms", 20_000)]
#: gRPC ends a call whose answer is larger.
MOST_MESSAGE_BYTES = 256 << 20
#: Largest batch to send: for a larger one a server's gRPC closes the connection, which looks like a crash.
MOST_SENT_BYTES = MOST_MESSAGE_BYTES
#: A pool for each client, so that the backoff after one failed connection does not delay others to the same server.
_OPTIONS = [
    *_KEEPALIVE,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
]
_LONGEST = 500
#: gRPC's form of a resolved address. In a URI, `[` and `]` are escaped.
_RESOLVED = re.compile(r"\bipv(?:4:[\d.]+|6:(?:\[|%5B)[\w:.%]+?(?:\]|%5D)):\d+")
_MOST_DESCRIBED_BYTES = 4 << 20


def connect_server(access: ServerAccess) -> flight.FlightClient:
    """Return a client of a server. It connects with its first call.

    Raises:
        FailedPrecondition: FUNCTION_ACCESS_DENIED – the certificates are invalid.
    """
    try:
        return flight.FlightClient(
            access.address,
            tls_root_certs=access.ca.encode() or None,
            cert_chain=access.cert.encode() or None,
            private_key=access.key.encode() or None,
            generic_options=_OPTIONS,
        )
    except (pa.ArrowException, ValueError) as error:
        raise access_denied(
            access.address, f"the certificates for it are invalid: {short_error_text(error, access)}"
        ) from None


def call_options(access: ServerAccess, seconds: float | None = None) -> flight.FlightCallOptions:
    """Return the options of a call: the server's token, and a timeout."""
    headers = [(b"authorization", f"Bearer {access.token}".encode())] if access.token else []
    return flight.FlightCallOptions(timeout=seconds, headers=headers)


def describe_function(client: flight.FlightClient, access: ServerAccess, function: str) -> FunctionDescription:
    """Return a server's description of a function.

    Raises:
        Unavailable: FUNCTION_UNAVAILABLE – the server cannot be reached.
        NotFound: FUNCTION_NOT_FOUND – the server has no function of that name.
        FailedPrecondition: FUNCTION_ACCESS_DENIED – the server refuses the credentials; FUNCTION_TLS_FAILED – TLS
            with it fails; FUNCTION_PROTOCOL – it is not a function server.
    """
    address = access.address
    try:
        described = [parse_description(body) for body in _descriptions(client, access)]
    except (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError) as error:
        raise access_denied(address, f"it refuses these credentials: {short_error_text(error, access)}") from None
    except (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError) as error:
        raise _away(access, error) from None
    except (ProtocolError, pa.ArrowException) as error:
        raise broken_protocol(address, short_error_text(error, access)) from None
    named = [each for each in described if each.function == function]
    if len(named) > 1:
        raise broken_protocol(address, f"it describes '{function}' {len(named)} times")
    if named:
        return named[0]
    raise NotFound(
        "FUNCTION_NOT_FOUND",
        f"The function server {address} has no function '{function}'. Its functions: "
        f"{', '.join(sorted(each.function for each in described)) or 'none'}",
        address=address,
        function=function,
    )


def _descriptions(client: flight.FlightClient, access: ServerAccess) -> Iterator[bytes]:
    """Yield a server's descriptions of its functions, and raise ProtocolError if they are too large together."""
    left = _MOST_DESCRIBED_BYTES
    for result in client.do_action(flight.Action(DESCRIBE, b""), call_options(access, DESCRIBE_SECONDS)):
        left -= len(result.body) + 1
        if left < 0:
            raise ProtocolError(f"the descriptions of its functions exceed {_MOST_DESCRIBED_BYTES >> 20} MiB")
        yield result.body.to_pybytes()


def check_version(address: str, told: FunctionDescription, version: str) -> None:
    """Refuse a server that does not serve this version of the function.

    Raises:
        FailedPrecondition: FUNCTION_VERSION_MISMATCH.
    """
    if told.version != version:
        raise FailedPrecondition(
            "FUNCTION_VERSION_MISMATCH",
            f"The function server {address} serves version {told.version} of function '{told.function}', not "
            f"{version}. Register version {told.version} and use it for the column, or start servers with version "
            f"{version}",
            address=address,
            served=told.version,
            version=version,
        )


def check_signature(
    address: str, told: FunctionDescription, inputs: tuple[pa.DataType, ...], output: pa.DataType
) -> None:
    """Refuse a server whose function has other types. Names of parameters may differ.

    Raises:
        FailedPrecondition: FUNCTION_SIGNATURE_MISMATCH.
    """
    if told.input_types != inputs or told.output != output:
        raise FailedPrecondition(
            "FUNCTION_SIGNATURE_MISMATCH",
            f"The function server {address} has '{told.function}' with the types "
            f"{_signature(told.input_types, told.output)}, not {_signature(inputs, output)}. Leave the types out when "
            "you register it, or correct them",
            address=address,
        )


def server_unavailable(message: str) -> Unavailable:
    """Return the error for a function whose servers do not answer."""
    return Unavailable("FUNCTION_UNAVAILABLE", message)


def _away(access: ServerAccess, error: Exception) -> LemanError:
    """Return the error for a server that cannot be reached. A TLS problem is not UNAVAILABLE: a retry cannot help."""
    if isinstance(error, flight.FlightTimedOutError):
        return server_unavailable(f"The function server {access.address} did not answer for {DESCRIBE_SECONDS:g} s")
    fault = tls_fault(access, str(error)) if isinstance(error, flight.FlightUnavailableError) else None
    if fault is None:
        return server_unavailable(
            f"The function server {access.address} cannot be reached: {short_error_text(error, access)}"
        )
    return FailedPrecondition(
        TLS_FAILED, f"TLS with the function server {access.address} fails: {fault}", address=access.address
    )


def access_denied(address: str, what: str) -> FailedPrecondition:
    """Return the error for a server that cannot be used with the configured credentials; `what` says why."""
    return FailedPrecondition(
        "FUNCTION_ACCESS_DENIED",
        f"The function server {address}: {what}. Correct its entry in the file of LEMAN_UDF__REMOTE_CREDENTIALS",
        address=address,
    )


def broken_protocol(address: str, what: str) -> LemanError:
    """Return the error for a server that violates the protocol; `what` says how."""
    return FailedPrecondition(
        "FUNCTION_PROTOCOL",
        f"The server at {address} does not follow the protocol of docs/remote_functions.md: {what}. Correct the "
        "address, or the server",
        address=address,
    )


def short_error_text(error: Exception, access: ServerAccess) -> str:
    """Return the text of a Flight error for users, without gRPC's debugging details.

    The text may quote the request, so the token is masked. The server's address replaces resolved IP addresses.
    """
    text = str(error).partition(". gRPC client debug context")[0].partition(". Detail: Python exception")[0]
    text = _RESOLVED.sub(lambda _: access.address, text)
    if access.token:
        text = text.replace(access.token, "***")
    return text.encode(errors="backslashreplace").decode()[:_LONGEST]


def _signature(inputs: tuple[pa.DataType, ...], output: pa.DataType) -> str:
    return f"({', '.join(map(str, inputs))}) -> {output}"
