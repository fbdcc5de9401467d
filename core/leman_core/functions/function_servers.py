"""Clients of function servers, for planner and workers: the protocol, calls, and the meaning of refusals.

docs/remote_functions.md describes the protocol `leman.function.v1` over Arrow Flight. A server is asked for its
functions before it gets work: the status of a refused stream is not used, as not every Flight library has every status.
gRPC reports a missing server and a wrong use of TLS alike, so after a failed connection a handshake of our own finds
the cause.
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
#: Keys in the metadata of the schema that answers a stream.
FUNCTION_KEY, VERSION_KEY = b"leman.function", b"leman.version"
_VERSION = re.compile(r"[A-Za-z0-9_.-]{1,128}")
#: Most letters of an error's name that a server sends.
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

    #: Name of the error's class, or of the language's equivalent, and of its base classes.
    kind: str
    bases: tuple[str, ...]
    message: str
    traceback: str


def parse_stream(schema: pa.Schema) -> tuple[str, str]:
    """Return the function and the version in the first schema of a stream.

    Raises:
        ProtocolError: It names none, or does not have one column.
    """
    told = schema.metadata or {}
    if len(schema) != 1 or FUNCTION_KEY not in told or VERSION_KEY not in told:
        raise ProtocolError("a stream's schema lacks its function, its version or its one column")
    try:
        return told[FUNCTION_KEY].decode(), told[VERSION_KEY].decode()
    except UnicodeDecodeError:
        raise ProtocolError("a stream's function or version is not UTF-8") from None


def stream_command(function: str, version: str) -> bytes:
    """Return the command of a stream: the function of its batches."""
    return json.dumps({"protocol": PROTOCOL, "function": function, "version": version}).encode()


def parse_description(body: bytes) -> FunctionDescription:
    """Parse one answer of `DESCRIBE`.

    Raises:
        ProtocolError: It is invalid.
    """
    told = _object(body)
    output = _schema(told, "output")
    if len(output) != 1:
        raise ProtocolError(f"'output' has {len(output)} fields, not one")
    inputs, version = _schema(told, "inputs"), _text(told, "version")
    if not _VERSION.fullmatch(version):
        raise ProtocolError("'version' is not 1 to 128 letters, digits, '_', '.' and '-'")
    if len(set(inputs.names)) < len(inputs):
        raise ProtocolError("two fields of 'inputs' have one name")
    if pa.types.is_null(output.field(0).type):
        raise ProtocolError("'output' is of type null: no value could be stored")
    return FunctionDescription(_text(told, "function"), version, inputs, output.field(0).type)


def parse_error(metadata: bytes) -> BatchError:
    """Parse the error in place of a batch.

    Raises:
        ProtocolError: It is invalid.
    """
    told = _object(metadata).get("error")
    if not isinstance(told, dict):
        raise ProtocolError("neither a batch nor an error answers a batch")
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
    """Return a name for storage and display: of limited length, and without characters that move a cursor."""
    return "".join(letter if letter.isprintable() else "?" for letter in told[:_LONGEST_NAME])


def _text(told: dict[str, Any], key: str) -> str:
    value = told.get(key)
    if not isinstance(value, str) or not value:
        raise ProtocolError(f"'{key}' is missing, or not a text")
    return value


def _schema(told: dict[str, Any], key: str) -> pa.Schema:
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(_text(told, key), validate=True)))
        check_utf8(schema)
    except (binascii.Error, pa.ArrowException, OSError, ValueError) as error:
        raise ProtocolError(f"'{key}' is not an Arrow schema in base64: {error}") from None
    return schema


_SECONDS = 2.0
_SENTENCE = re.compile(r"failed to connect|handshake|empty address list", re.IGNORECASE)
#: gRPC's errors of a failed handshake, and of a certificate for another name.
_HANDSHAKE = re.compile(r"(Ssl handshake failed|Peer name|Hostname verification|Cannot check peer).*", re.IGNORECASE)
_FILE = "the file of LEMAN_UDF__REMOTE_CREDENTIALS"


def tls_fault(access: ServerAccess, said: str) -> str | None:
    """Return how TLS prevents a connection to a server, and advice; None: another cause, or unknown.

    Args:
        access: The access to the server.
        said: gRPC's error.
    """
    if not _SENTENCE.search(said):
        return None
    address = parse_address(access.address)
    if not address.tls:
        return _hidden_tls(address)
    if "empty address list" in said:
        return f"`ca`, `cert` or `key` are not valid PEM, or do not match: correct them in {_FILE}"
    with contextlib.suppress(OSError):  # it is away, or hung up
        fault = _handshake_fault(address, access)
        if fault is not None:
            return fault
    told = _HANDSHAKE.search(said)
    return f"{told[0]}. {_verified(access)}" if told else None


def _hidden_tls(address: Address) -> str | None:
    """Return the problem of a server that uses TLS although its address does not say so."""
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
    """Return the problem of a handshake; OSError: the server is away, or hung up."""
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
                f"the server does not speak TLS ({error.reason}): have it do so, or register the function at {instead}"
            )
        with secured:
            if secured.selected_alpn_protocol() != "h2":
                return "the server does not agree to HTTP/2 over TLS (ALPN h2): no Flight server, or a proxy in front"
            return _refused_later(secured, access)


def _refused_later(secured: ssl.SSLSocket, access: ServerAccess) -> str | None:
    """Return the problem of a server that requires a client certificate: with TLS 1.3 it fails after the handshake."""
    secured.settimeout(_SECONDS)
    try:
        secured.recv(1)
    except ssl.SSLError as error:
        return _asked_for_ours(access) if _is_alert(error) else None
    return None


def _asked_for_ours(access: ServerAccess) -> str | None:
    if access.cert:  # our own handshake sends none
        return None
    return f"the server asks for a certificate: name `cert` and `key` for its address in {_FILE}"


def _verified(access: ServerAccess) -> str:
    trusted = f"the `ca` that {_FILE} names" if access.ca else f"the system's authorities, as {_FILE} names no `ca`"
    return f"It is checked with {trusted}: correct that, or give the server a certificate that it vouches for"


def _is_alert(error: ssl.SSLError) -> bool:
    return "ALERT" in (error.reason or "")


def _connected(address: Address) -> socket.socket:
    return socket.create_connection((address.host.strip("[]"), int(address.port)), _SECONDS)


#: Reason of the error if TLS prevents a connection to a server.
TLS_FAILED = "FUNCTION_TLS_FAILED"

#: A server that does not describe its functions within this time counts as unreachable.
DESCRIBE_SECONDS = 5.0
#: Servers may close a connection with keepalives more often than every five minutes.
_KEEPALIVE = [("grpc.keepalive_time_ms", 330_000), ("grpc.keepalive_timeout_ms", 20_000)]
#: Larger answers are not read; gRPC ends the call before it has them.
MOST_MESSAGE_BYTES = 256 << 20
#: Servers take no larger batches: the helpers' gRPC would close the connection, as if the server had died of it.
MOST_SENT_BYTES = MOST_MESSAGE_BYTES
#: A failed connection must not prevent others.
_OPTIONS = [
    *_KEEPALIVE,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
]
_LONGEST = 500
#: gRPC's form of a resolved address; in a uri `[` and `]` are escaped.
_RESOLVED = re.compile(r"\bipv(?:4:[\d.]+|6:(?:\[|%5B)[\w:.%]+?(?:\]|%5D)):\d+")
_MOST_DESCRIBED_BYTES = 4 << 20


def connect_server(access: ServerAccess) -> flight.FlightClient:
    """Return a client of a server; nothing is sent yet.

    Raises:
        FailedPrecondition: FUNCTION_ACCESS_DENIED – the certificates cannot be used.
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
            access.address, f"its certificates cannot be used: {short_error_text(error, access)}"
        ) from None


def call_options(access: ServerAccess, seconds: float | None = None) -> flight.FlightCallOptions:
    """Return the options of a call: the token, and the timeout."""
    headers = [(b"authorization", f"Bearer {access.token}".encode())] if access.token else []
    return flight.FlightCallOptions(timeout=seconds, headers=headers)


def describe_function(client: flight.FlightClient, access: ServerAccess, function: str) -> FunctionDescription:
    """Return a server's description of a function.

    Raises:
        Unavailable: FUNCTION_UNAVAILABLE – it cannot be reached.
        NotFound: FUNCTION_NOT_FOUND – it has no function of that name.
        FailedPrecondition: FUNCTION_ACCESS_DENIED – it refuses the credentials; FUNCTION_TLS_FAILED – TLS with it
            fails; FUNCTION_PROTOCOL – it is not a function server.
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
        f"The function server {address} has no function '{function}'. It has "
        f"{', '.join(sorted(each.function for each in described)) or 'none'}",
        address=address,
        function=function,
    )


def _descriptions(client: flight.FlightClient, access: ServerAccess) -> Iterator[bytes]:
    """Yield a server's descriptions of its functions, up to a size limit."""
    left = _MOST_DESCRIBED_BYTES
    for result in client.do_action(flight.Action(DESCRIBE, b""), call_options(access, DESCRIBE_SECONDS)):
        left -= len(result.body) + 1
        if left < 0:
            raise ProtocolError(f"it describes its functions in more than {_MOST_DESCRIBED_BYTES >> 20} MiB")
        yield result.body.to_pybytes()


def check_version(address: str, told: FunctionDescription, version: str) -> None:
    """Refuse a server that serves another version.

    Raises:
        FailedPrecondition: FUNCTION_VERSION_MISMATCH.
    """
    if told.version != version:
        raise FailedPrecondition(
            "FUNCTION_VERSION_MISMATCH",
            f"The function server {address} serves version {told.version} of function '{told.function}', not "
            f"{version}. Register version {told.version} and give it to the column, or start servers of {version}",
            address=address,
            served=told.version,
            version=version,
        )


def check_signature(
    address: str, told: FunctionDescription, inputs: tuple[pa.DataType, ...], output: pa.DataType
) -> None:
    """Refuse a server whose function has other types; the names of its parameters do not matter.

    Raises:
        FailedPrecondition: FUNCTION_SIGNATURE_MISMATCH.
    """
    if told.input_types != inputs or told.output != output:
        raise FailedPrecondition(
            "FUNCTION_SIGNATURE_MISMATCH",
            f"At the function server {address} '{told.function}' is {_signature(told.input_types, told.output)}, not "
            f"{_signature(inputs, output)}. Leave the types out, or correct them",
            address=address,
        )


def server_unavailable(message: str) -> Unavailable:
    """Return the error if no server answers."""
    return Unavailable("FUNCTION_UNAVAILABLE", message)


def _away(access: ServerAccess, error: Exception) -> LemanError:
    """Return the error of an unreachable server: a cause that waiting does not fix is not called unavailable."""
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
    """Return the error if a server refuses these credentials."""
    return FailedPrecondition(
        "FUNCTION_ACCESS_DENIED",
        f"The function server {address}: {what}. Correct its entry in the file of LEMAN_UDF__REMOTE_CREDENTIALS",
        address=address,
    )


def broken_protocol(address: str, what: str) -> LemanError:
    """Return the error if something other than a function server answers."""
    return FailedPrecondition(
        "FUNCTION_PROTOCOL",
        f"The server at {address} does not follow docs/remote_functions.md: {what}",
        address=address,
    )


def short_error_text(error: Exception, access: ServerAccess) -> str:
    """Return a Flight error for users, without gRPC's debugging details.

    It may quote the request, so the token is masked. Resolved addresses are not shown.
    """
    text = str(error).partition(". gRPC client debug context")[0].partition(". Detail: Python exception")[0]
    text = _RESOLVED.sub(lambda _: access.address, text)
    if access.token:
        text = text.replace(access.token, "***")
    return text.encode(errors="backslashreplace").decode()[:_LONGEST]


def _signature(inputs: tuple[pa.DataType, ...], output: pa.DataType) -> str:
    return f"({', '.join(map(str, inputs))}) -> {output}"
