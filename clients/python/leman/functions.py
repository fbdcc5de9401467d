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

import operator
import signal
import socket
import threading
from collections.abc import Iterable, Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from leman._functions.function_serving import BearerTokens, FunctionFlight, Listener, Served, served
from leman._functions.udf_decorator import UDF
from leman._wire.credentials import Pem, TlsFiles, checked_token
from leman.errors import InvalidArgument, UdfDefinitionError

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa

__all__ = ["DEFAULT_PORT", "FunctionServer", "Served", "serve", "served"]

#: The port on which function servers listen where nothing else is said.
DEFAULT_PORT = 7815
_AUTH = "authorization"
_LAST_PORT = 65_535


class FunctionServer:
    """Serves functions from the moment it is made until `stop`, or the end of its `with` block.

    Args:
        functions: made by `leman.udf`, or by `served` where a function does not say itself which types it reads.
        host: Address to listen on. Any but a loopback one should have a token and TLS.
        port: 0: any free one, see `port`.
        token: What callers have to send as `authorization: Bearer <token>`; None: nothing, anyone who reaches it calls
        it.
        tls_cert: Path of the certificate chain (PEM); with `tls_key` it turns TLS on.
        tls_key: Path of its private key (PEM).
        tls_client_ca: Path of the CA certificates (PEM) that callers' certificates are checked with; empty: they need
            none.

    The three files may be renewed in place: connections that are made a second later find the new ones, and streams
    that run then end by themselves. While they do not fit one another, those of before hold.

    Raises:
        UdfDefinitionError: There is no function, one is not made by `leman.udf`, or does not say what it reads, or two
            have one name.
        InvalidArgument: The token is none that a call can carry, or empty; the port is none; options contradict each
            other.
        OSError: The port is taken, the host is none of this machine, or a file cannot be read.
    """

    def __init__(
        self,
        functions: Iterable[UDF | Served],
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        token: str | None = None,
        tls_cert: str = "",
        tls_key: str = "",
        tls_client_ca: str = "",
    ) -> None:
        port, expected = _checked_port(port), _checked_token(token)
        if not isinstance(host, str):
            raise InvalidArgument(f"host is a str, not a {type(host).__name__}")
        if bool(tls_cert) != bool(tls_key):
            raise InvalidArgument("TLS needs both tls_cert and tls_key")
        if tls_client_ca and not tls_cert:
            raise InvalidArgument("tls_client_ca needs tls_cert and tls_key")
        bracketed = f"[{host}]" if ":" in host else host
        held = _checked_functions(functions)
        files = TlsFiles(tls_client_ca, tls_cert, tls_key) if tls_cert else None
        scheme = "grpc+tls" if files is not None else "grpc"

        def listen(at: int, pem: Pem | None) -> FunctionFlight:
            return FunctionFlight(
                held,
                location=f"{scheme}://{bracketed}:{at}",
                tls_certificates=[(pem.cert, pem.key)] if pem is not None else None,
                verify_client=bool(tls_client_ca),
                root_certificates=pem.ca if pem is not None else None,
                middleware={_AUTH: BearerTokens(expected)} if expected is not None else None,
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
        """Take no more streams, end each one after the batch at work, and return whether all of these ended in time.

        Connections on which no batch is at work are cut; who sends another one sends it to another server.
        """
        return self._listener.stop(grace_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _checked_port(port: object) -> int:
    """Raises InvalidArgument for what is no port."""
    number = -1 if isinstance(port, bool) or not hasattr(port, "__index__") else operator.index(port)
    if not 0 <= number <= _LAST_PORT:
        raise InvalidArgument(f"port is an int from 0 (any free one) to {_LAST_PORT}, not {port!r}")
    return number


def _checked_token(token: object) -> str | None:
    """Raises InvalidArgument, which does not show it, for what is neither None nor a token that calls can carry."""
    if token is None:
        return None
    if not isinstance(token, str):
        raise InvalidArgument(f"token is a str, or None for a server that asks for none, not a {type(token).__name__}")
    if not token:
        raise InvalidArgument("token is empty: give the token that callers have to send, or None to let anyone call it")
    return checked_token(token)


def _checked_functions(functions: object) -> list[Served]:
    """Raises UdfDefinitionError where something is no function for a server, or nothing is given."""
    if not isinstance(functions, Iterable) or isinstance(functions, UDF | Served):
        raise UdfDefinitionError(f"functions is a list of functions, not a {type(functions).__name__}")
    held = [each if isinstance(each, Served) else served(each) for each in functions]
    if not held:
        raise UdfDefinitionError("functions is empty: a function server needs one to serve")
    return held


def _check_free(host: str, port: int) -> None:
    """Raise the OSError with which no one can listen there, if that is so."""
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
