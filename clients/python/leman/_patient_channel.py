"""A channel for generated stubs whose calls outlast a restart of the service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool

from leman._patience import Patience
from leman.v1 import annotations_pb2

Metadata = tuple[tuple[str, str], ...]


_LEVEL = descriptor_pb2.MethodOptions.IdempotencyLevel


def is_repeatable(path: str) -> bool:
    """Whether a method, `/package.Service/Method`, changes nothing, or the same when it is called twice: those that the
    published retry policy names."""
    return is_read(path) or _level(path) == _LEVEL.Value("IDEMPOTENT")


def is_read(path: str) -> bool:
    """Whether a method changes nothing."""
    options = _options(path)
    return _level(path) == _LEVEL.Value("NO_SIDE_EFFECTS") or bool(options.Extensions[annotations_pb2.access].reads)


def _level(path: str) -> int:
    return int(_options(path).idempotency_level)


def _options(path: str) -> descriptor_pb2.MethodOptions:
    method = descriptor_pool.Default().FindMethodByName(path.lstrip("/").replace("/", "."))
    options: descriptor_pb2.MethodOptions = method.GetOptions()
    return options


class Connections(Protocol):
    """What a patient channel asks of whoever knows where the services are."""

    def channel(self, service: str, *, reads: bool = False) -> grpc.Channel:
        """Give the channel to a service as it is known now; `reads`: for a call that changes nothing."""
        ...

    def metadata(self) -> Metadata:
        """Give what each call carries."""
        ...

    def patient(self) -> Patience:
        """Give a new measure of how long one call may wait for its service."""
        ...

    def wait_or_raise(self, service: str, error: Exception, patience: Patience, *, repeatable: bool = False) -> None:
        """Return when another try is worth it; raise the Leman error when not. `repeatable`: what the call does is the
        same when it is made twice, so that it is also made again where the service has too much to do."""
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

        repeatable, reads = is_repeatable(method), is_read(method)

        def call(request: Any, timeout: float | None = None) -> Any:
            patience = self._connections.patient()
            while True:
                channel = self._connections.channel(self._service, reads=reads)
                send = channel.unary_unary(method, *codecs, **options)
                try:
                    return send(request, timeout=timeout or self._timeout, metadata=self._connections.metadata())
                except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed
                    failure = error
                self._connections.wait_or_raise(self._service, failure, patience, repeatable=repeatable)

        return call

    def stream_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """Make a method of a stub that is sent a stream: it is opened once, and raises `grpc.RpcError`."""

        def call(requests: Any, timeout: float | None = None) -> Any:
            opened = self._connections.channel(self._service).stream_unary(method, *codecs, **options)
            return opened(requests, timeout=timeout or self._timeout, metadata=self._connections.metadata())

        return call

    def unary_stream(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        """Make a method of a stub that answers with a stream."""
        reads = is_read(method)

        def call(request: Any, timeout: float | None = None) -> Any:
            channel = self._connections.channel(self._service, reads=reads)
            opened = channel.unary_stream(method, *codecs, **options)
            return opened(request, timeout=timeout, metadata=self._connections.metadata())

        return call
