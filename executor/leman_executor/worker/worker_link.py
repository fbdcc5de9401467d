"""The link between an executor and a worker: its messages, and the sockets that carry them.

A worker sends JSON after a length of four bytes. The executor responds to the first message with a `WorkContext`. The
job's secrets travel only on this link, never through Spark. The executor responds to later messages with a WorkUnit, or
with null if no units are left. During a unit, the executor sends null to ask the worker to store its computed rows and
return the unit. A WorkUnit without work only updates the options for object stores, and may come at any time.

A link to another machine uses TLS. The executor makes a certificate when it starts. Spark delivers the certificate to
the workers, which trust no other certificate.
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from leman_core.model.work import InFlightRows, ProgressReport, UnitOutcome

if TYPE_CHECKING:
    import ssl


LENGTH_BYTES = 4


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first message of a worker."""

    #: The job's key; see `leman_core.model.keys.job_key`.
    job_key: str
    secret: str
    #: The worker's name, for display.
    worker: str = ""


class WorkerTask(msgspec.Struct, frozen=True):
    """The arguments of a worker's Spark task: how to reach its executor. They contain no other secrets."""

    host: str
    port: int
    hello: Hello
    #: The only certificate that the executor may present, in PEM. If empty, the link is not encrypted.
    certificate: str = ""
    #: Identifies one version of a function in one environment. A process that has run this function may run no other.
    function: str = ""


class Running(msgspec.Struct, frozen=True, tag="running"):
    """The progress of the worker's current unit."""

    report: ProgressReport


class InFlight(msgspec.Struct, frozen=True, tag="in_flight"):
    """Rows that the worker is about to compute, or that it has stored."""

    in_flight: InFlightRows


class Alive(msgspec.Struct, frozen=True, tag="alive"):
    """A sign of life from a worker that has nothing else to report."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The outcome of the worker's unit."""

    outcome: UnitOutcome


WorkerMessage = Hello | Running | InFlight | Alive | Done


def framed(message: object) -> bytes:
    """Encode a message with its length prefix."""
    data = msgspec.json.encode(message)
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


_CONNECT_SECONDS = 30.0
_CHUNK = 1 << 18
#: Validity of the certificate before now (because clocks differ) and after now. It is used only while its executor
#: lives.
_EARLIER_DAYS, _VALID_DAYS = 7, 3650


class Link(Protocol):
    """A worker's end of the link. Only one thread may read at a time; others may send concurrently."""

    def send(self, data: bytes) -> None:
        """Send all of the data."""
        ...

    def receive(self, most: int) -> bytes:
        """Wait for data, and return at most `most` bytes of it. Return no bytes at the end of the stream."""
        ...

    def has_data(self) -> bool:
        """Return, without waiting, whether `receive` would return data at once.

        Raises:
            OSError: No data has arrived, or the executor has died.
        """
        ...

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        ...


class PlainLink:
    """An unencrypted link."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self.send, self.receive, self.fileno = connection.sendall, connection.recv, connection.fileno

    def has_data(self) -> bool:
        """See `Link`."""
        return bool(self._socket.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK))


class TlsLink:
    """A link over TLS.

    The TLS session works on buffers in memory, not on the socket, so that a thread that waits for data does not block
    the threads that send.

    Args:
        connection: The connected socket.
        certificate: The only certificate that the executor may present, in PEM.

    Raises:
        OSError: The executor presents another certificate, or none.
    """

    def __init__(self, connection: socket.socket, certificate: str) -> None:
        import ssl  # noqa: PLC0415 imported here, as workers of this machine start faster without it

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the certificate is the identity
        context.load_verify_locations(cadata=certificate)
        self._socket = connection
        self.fileno = connection.fileno
        self._wants_read: type[Exception] = ssl.SSLWantReadError
        self._ended: type[Exception] = ssl.SSLZeroReturnError
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._received, self._to_send)
        self._using, self._sending = threading.Lock(), threading.Lock()
        self._decrypted = b""
        self._shake_hands()

    def send(self, data: bytes) -> None:
        """See `Link`."""
        with self._sending:
            with self._using:
                self._session.write(data)
                sent = self._to_send.read()
            self._socket.sendall(sent)

    def receive(self, most: int) -> bytes:
        """See `Link`."""
        while not self._decrypted:
            if (data := self._decrypt()) is not None:
                self._decrypted = data
                break
            if not self._take_in():
                return b""
        data, self._decrypted = self._decrypted[:most], self._decrypted[most:]
        return data

    def has_data(self) -> bool:
        """See `Link`."""
        while not self._decrypted:
            if (data := self._decrypt()) is not None:
                self._decrypted = data
                break
            if not self._take_in(socket.MSG_DONTWAIT):
                break
        return bool(self._decrypted)

    def _shake_hands(self) -> None:
        while True:
            try:
                self._session.do_handshake()
            except self._wants_read:
                self._socket.sendall(self._to_send.read())
                if not self._take_in():
                    raise ConnectionResetError("the executor closed the connection during the TLS handshake") from None
            else:
                break
            finally:
                if self._to_send.pending:  # the last message, or the alert that rejects a certificate
                    with contextlib.suppress(OSError):
                        self._socket.sendall(self._to_send.read())

    def _decrypt(self) -> bytes | None:
        """Return decrypted bytes. They are empty at the end of the stream, and None if more data must arrive first."""
        with self._using:
            try:
                return self._session.read(_CHUNK)
            except self._wants_read:
                return None
            except self._ended:
                return b""

    def _take_in(self, flags: int = 0) -> bool:
        """Receive encrypted data from the executor. Return False at the end of the stream."""
        data = self._socket.recv(_CHUNK, flags)
        with self._using:
            self._received.write(data)
        return bool(data)


@contextlib.contextmanager
def connect_to_executor(host: str, port: int, certificate: str) -> Iterator[Link]:
    """Connect to an executor. `certificate` is as for `TlsLink`; if empty, the link is not encrypted.

    Raises:
        OSError: The executor is unreachable, or presents another certificate.
    """
    with socket.create_connection((host, port), timeout=_CONNECT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        link: Link = TlsLink(connection, certificate) if certificate else PlainLink(connection)
        connection.settimeout(None)
        yield link


def executor_tls() -> tuple[ssl.SSLContext, str]:
    """Make a certificate for this process. Return the server's TLS context, and the certificate in PEM.

    The private key is not left in any file.
    """
    import ssl  # noqa: PLC0415 imported here, as an executor without a cluster starts faster without it
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415

    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "leman executor")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=_EARLIER_DAYS))
        .not_valid_after(now + timedelta(days=_VALID_DAYS))
        .sign(key, hashes.SHA256())
    )
    certificate = made.public_bytes(serialization.Encoding.PEM)
    in_clear = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # sessions are not resumed
    with tempfile.TemporaryDirectory() as folder:  # readable only by this user; Python's ssl reads keys from files
        path = Path(folder, "executor.pem")
        path.write_bytes(in_clear + certificate)
        context.load_cert_chain(path)
    return context, certificate.decode()
