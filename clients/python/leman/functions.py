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

import math
import signal
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from leman._function_calls import Served, served
from leman._function_flight import BearerTokens, FunctionFlight
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
#: A server that stops and has no batch at work waits so long for answers to be on their way.
_IDLE_SECONDS, _LOOK_SECONDS = 0.5, 0.05


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
        options = {
            "location": f"{'grpc+tls' if tls_cert else 'grpc'}://{bracketed}:{port}",
            "tls_certificates": [(Path(tls_cert).read_bytes(), Path(tls_key).read_bytes())] if tls_cert else None,
            "verify_client": bool(tls_client_ca),
            "root_certificates": Path(tls_client_ca).read_bytes() if tls_client_ca else None,
            "middleware": {_AUTH: BearerTokens(token)} if token else None,
        }
        try:
            self._flight = FunctionFlight(held, **options)
        except pa.ArrowException:  # "did not start properly"
            _check_free(host, port)
            raise

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._flight.port)

    def stop(self, grace_seconds: float = 10.0) -> bool:
        """Take no more streams, end each one after the batch at work, and tell whether all of these ended in time.

        Connections on which no batch is at work are cut; who sends another one sends it to another server.
        """
        self._flight.stopping.set()
        ending = threading.Thread(target=self._flight.shutdown, name="function-server-stop", daemon=True)
        ending.start()
        end = time.monotonic() + grace_seconds
        idle_since = math.inf
        while ending.is_alive() and (now := time.monotonic()) < end and now - idle_since < _IDLE_SECONDS:
            ending.join(_LOOK_SECONDS)
            idle_since = math.inf if self._flight.batches_at_work else min(idle_since, now)
        in_time = not self._flight.batches_at_work
        if ending.is_alive():
            self._flight.cut()
            ending.join(_IDLE_SECONDS)
        return in_time

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
