"""Serve functions from a process of your own: the kind *remote* (docs/remote_functions.md).

A server holds the functions that it is given, each called with a batch at a time, whichever kind it is. Register them
with `Database.register_remote`.

    import leman, leman.functions

    @leman.udf
    def word_count(text: str) -> int:
        return len(text.split())

    leman.functions.serve([word_count], port=7815)
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterable, Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from leman._function_calls import Served, served
from leman._function_flight import BearerTokens, FunctionFlight
from leman._function_listener import Listener
from leman._tls_files import Pem, TlsFiles
from leman._udf import UDF
from leman.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa

__all__ = ["DEFAULT_PORT", "FunctionServer", "Served", "serve", "served"]

#: The port on which function servers listen where nothing else is said.
DEFAULT_PORT = 7815
_AUTH = "authorization"


class FunctionServer:
    """Serves functions from the moment it is made until `stop`, or the end of its `with` block.

    Args:
        functions: made by `leman.udf`, or by `served` where a function does not say itself which types it reads.
        host: Address to listen on. Any but a loopback one should have a token and TLS.
        port: 0: any free one, see `port`.
        token: What callers have to send as `authorization: Bearer <token>`; empty: nothing.
        tls_cert: Path of the certificate chain (PEM); with `tls_key` it turns TLS on.
        tls_key: Path of its private key (PEM).
        tls_client_ca: Path of the CA certificates (PEM) that callers' certificates are checked with; empty: they need
            none.

    The three files may be renewed in place: connections that are made a second later find the new ones, and streams
    that run then end by themselves. While they do not fit one another, those of before hold.

    Raises:
        UdfDefinitionError: A function does not say what it reads, or two have one name.
        InvalidArgument: The options contradict each other.
        OSError: The port is taken, the host is none of this machine, or a file cannot be read.
    """

    def __init__(
        self,
        functions: Iterable[UDF | Served],
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        token: str = "",
        tls_cert: str = "",
        tls_key: str = "",
        tls_client_ca: str = "",
    ) -> None:
        if bool(tls_cert) != bool(tls_key):
            raise InvalidArgument("TLS needs both tls_cert and tls_key")
        if tls_client_ca and not tls_cert:
            raise InvalidArgument("tls_client_ca needs tls_cert and tls_key")
        bracketed = f"[{host}]" if ":" in host else host
        held = [function if isinstance(function, Served) else served(function) for function in functions]
        files = TlsFiles(tls_client_ca, tls_cert, tls_key) if tls_cert else None
        scheme = "grpc+tls" if files is not None else "grpc"

        def listen(at: int, pem: Pem | None) -> FunctionFlight:
            return FunctionFlight(
                held,
                location=f"{scheme}://{bracketed}:{at}",
                tls_certificates=[(pem.cert, pem.key)] if pem is not None else None,
                verify_client=bool(tls_client_ca),
                root_certificates=pem.ca if pem is not None else None,
                middleware={_AUTH: BearerTokens(token)} if token else None,
            )

        try:
            self._listener = Listener(port, files, listen)
        except pa.ArrowException:  # "did not start properly"
            _check_free(host, port)
            raise

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._listener.port

    def stop(self, grace_seconds: float = 10.0) -> bool:
        """Take no more streams, end each one after the batch at work, and tell whether all of these ended in time.

        Connections on which no batch is at work are cut; who sends another one sends it to another server.
        """
        return self._listener.stop(grace_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _check_free(host: str, port: int) -> None:
    """Raise the OSError with which nobody can listen there, if that is so."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError as error:
            told = f"{error.strerror}; give another port, or 0 for any free one"
            raise OSError(error.errno, f"a function server cannot listen on {host}:{port}: {told}") from None


def serve(functions: Sequence[UDF | Served], **options: Any) -> None:
    """Serve functions until the process is asked to end (SIGTERM, or Ctrl-C); call it in the main thread.

    `options`: those of `FunctionServer`, which says what is raised.
    """
    asked = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with FunctionServer(functions, **options):
            asked.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
