"""Reserve TCP ports on loopback while the processes that listen on them restart."""

from __future__ import annotations

import socket

from leman_core.model.service_errors import FailedPrecondition

HOST = "127.0.0.1"


class HeldPort:
    """A port to which this process is bound, without listening.

    The service binds the same port (`server.reuse_port`). Therefore callers always find the service at this port, and
    no other process takes the port while the service restarts.
    """

    def __init__(self, port: int = 0) -> None:
        """Bind the port; 0 for any free port.

        Raises:
            FailedPrecondition: PORT_IN_USE – another process uses the port.
        """
        if port:
            _check_free(port)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind((HOST, port))
        self.port: int = self._socket.getsockname()[1]

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def close(self) -> None:
        """Release the port."""
        self._socket.close()


def free_port() -> int:
    """Return a port that is free at present."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _check_free(port: int) -> None:
    """Raise FailedPrecondition (PORT_IN_USE) if another process uses the port.

    This binds the port without sharing it. A shared bind would succeed even if another process shares the port.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise FailedPrecondition("PORT_IN_USE", f"port {port} cannot be used: {error.strerror}") from None
