"""A channel for generated stubs whose calls outlast a restart of the service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import grpc

from leman._patience import Patience

Metadata = tuple[tuple[str, str], ...]


class Connections(Protocol):
    """What a patient channel asks of whoever knows where the services are."""

    def channel(self, service: str) -> grpc.Channel:
        """Give the channel to a service as it is known now."""
        ...

    def metadata(self) -> Metadata:
        """Give what each call carries."""
        ...

    def patient(self) -> Patience:
        """Give a new measure of how long one call may wait for its service."""
        ...

    def wait_or_raise(self, service: str, error: Exception, patience: Patience) -> None:
        """Return when another try is worth it; raise the Leman error when not."""
        ...


class PatientChannel:
    """Has as much of a `grpc.Channel` as a generated stub needs.

    Each call goes to where the service is at that moment. A unary one is sent again while the service is away. A stream
    is opened once; iterating over it raises `grpc.RpcError`.
    """

    def __init__(self, connections: Connections, service: str, timeout: float) -> None:
        """`timeout`: seconds that a unary call may take which names none."""
        self._connections = connections
        self._service = service
        self._timeout = timeout

    def unary_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """Make a method of a stub."""

        def call(request: Any, timeout: float | None = None) -> Any:
            patience = self._connections.patient()
            while True:
                send = self._connections.channel(self._service).unary_unary(method, *codecs, **options)
                try:
                    return send(request, timeout=timeout or self._timeout, metadata=self._connections.metadata())
                except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed
                    failure = error
                self._connections.wait_or_raise(self._service, failure, patience)

        return call

    def stream_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """Make a method of a stub that is sent a stream: it is opened once, and raises `grpc.RpcError`."""

        def call(requests: Any, timeout: float | None = None) -> Any:
            opened = self._connections.channel(self._service).stream_unary(method, *codecs, **options)
            return opened(requests, timeout=timeout or self._timeout, metadata=self._connections.metadata())

        return call

    def unary_stream(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """Make a method of a stub that answers with a stream."""

        def call(request: Any, timeout: float | None = None) -> Any:
            opened = self._connections.channel(self._service).unary_stream(method, *codecs, **options)
            return opened(request, timeout=timeout, metadata=self._connections.metadata())

        return call
