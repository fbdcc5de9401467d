"""Calls of function servers over Arrow Flight, and what their refusals mean.

A server is asked what it serves before it is given work: nothing is read from the status with which it refuses a
stream, as not every Flight library has every status.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import flight

from leman_core.functions.remote.protocol import DESCRIBE, FunctionDescription, ProtocolError, parse_description
from leman_core.functions.remote.tls_faults import tls_fault
from leman_core.model.errors import FailedPrecondition, LemanError, NotFound, Unavailable
from leman_core.model.work import ServerAccess

#: Reason of the error where TLS keeps a server from being reached.
TLS_FAILED = "FUNCTION_TLS_FAILED"

#: A server that does not say within so many seconds what it serves cannot be reached.
DESCRIBE_SECONDS = 5.0
#: Servers may end a connection that is asked more often than every five minutes whether it lives.
_KEEPALIVE = [("grpc.keepalive_time_ms", 330_000), ("grpc.keepalive_timeout_ms", 20_000)]
#: Answers in larger messages are not read; gRPC ends the call before it has them.
MOST_MESSAGE_BYTES = 256 << 20
#: Servers take no larger batches: the helpers' gRPC would end the connection, as if the server had died of it.
MOST_SENT_BYTES = MOST_MESSAGE_BYTES
#: A connection that failed is not to keep others from being made.
_OPTIONS = [
    *_KEEPALIVE,
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES),
]
_LONGEST = 500
#: How gRPC writes an address that a name was resolved to; in a uri `[` and `]` are escaped.
_RESOLVED = re.compile(r"\bipv(?:4:[\d.]+|6:(?:\[|%5B)[\w:.%]+?(?:\]|%5D)):\d+")
_MOST_DESCRIBED_BYTES = 4 << 20


def connect(access: ServerAccess) -> flight.FlightClient:
    """Return a client of a server; nothing is sent yet.

    Raises:
        FailedPrecondition: FUNCTION_ACCESS_DENIED, where the certificates cannot be used.
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
        raise denied(access.address, f"its certificates cannot be used: {shortened(error, access)}") from None


def call_options(access: ServerAccess, seconds: float | None = None) -> flight.FlightCallOptions:
    """Return the options of a call: the token, and how long it may take."""
    headers = [(b"authorization", f"Bearer {access.token}".encode())] if access.token else []
    return flight.FlightCallOptions(timeout=seconds, headers=headers)


def describe(client: flight.FlightClient, access: ServerAccess, function: str) -> FunctionDescription:
    """Return what a server says of a function.

    Raises:
        Unavailable: FUNCTION_UNAVAILABLE, where it cannot be reached.
        NotFound: FUNCTION_NOT_FOUND, where it has no function of that name.
        FailedPrecondition: FUNCTION_ACCESS_DENIED, where it refuses the credentials; FUNCTION_TLS_FAILED, where TLS
            with it fails; FUNCTION_PROTOCOL, where it is no function server.
    """
    address = access.address
    try:
        described = [parse_description(body) for body in _descriptions(client, access)]
    except (flight.FlightUnauthenticatedError, flight.FlightUnauthorizedError) as error:
        raise denied(address, f"it refuses these credentials: {shortened(error, access)}") from None
    except (flight.FlightUnavailableError, flight.FlightTimedOutError, flight.FlightCancelledError) as error:
        raise _away(access, error) from None
    except (ProtocolError, pa.ArrowException) as error:
        raise broken_protocol(address, shortened(error, access)) from None
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
    """Yield what a server says of its functions, as long as that is no more than it can have to say."""
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
    """Refuse a server whose function reads or gives other types; what its parameters are called does not matter.

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


def unavailable(message: str) -> Unavailable:
    """Return the error where no server answers."""
    return Unavailable("FUNCTION_UNAVAILABLE", message)


def _away(access: ServerAccess, error: Exception) -> LemanError:
    """Return the error where a server cannot be reached: what no waiting mends is not called unavailable."""
    if isinstance(error, flight.FlightTimedOutError):
        return unavailable(f"The function server {access.address} did not answer for {DESCRIBE_SECONDS:g} s")
    fault = tls_fault(access, str(error)) if isinstance(error, flight.FlightUnavailableError) else None
    if fault is None:
        return unavailable(f"The function server {access.address} cannot be reached: {shortened(error, access)}")
    return FailedPrecondition(
        TLS_FAILED, f"TLS with the function server {access.address} fails: {fault}", address=access.address
    )


def denied(address: str, what: str) -> FailedPrecondition:
    """Return the error where a server and these credentials do not fit together."""
    return FailedPrecondition(
        "FUNCTION_ACCESS_DENIED",
        f"The function server {address}: {what}. Correct what the file of LEMAN_UDF__REMOTE_CREDENTIALS says of it",
        address=address,
    )


def broken_protocol(address: str, what: str) -> LemanError:
    """Return the error where something else than a function server answers."""
    return FailedPrecondition(
        "FUNCTION_PROTOCOL",
        f"What answers at {address} does not serve functions as docs/remote_functions.md says: {what}",
        address=address,
    )


def shortened(error: Exception, access: ServerAccess) -> str:
    """Return what a Flight error says to people, without what gRPC says to those who look for bugs.

    A server may say in it what it was sent: the token is masked. Where the address's name led is not shown.
    """
    text = str(error).partition(". gRPC client debug context")[0].partition(". Detail: Python exception")[0]
    text = _RESOLVED.sub(lambda _: access.address, text)
    if access.token:
        text = text.replace(access.token, "***")
    return text.encode(errors="backslashreplace").decode()[:_LONGEST]


def _signature(inputs: tuple[pa.DataType, ...], output: pa.DataType) -> str:
    return f"({', '.join(map(str, inputs))}) -> {output}"
