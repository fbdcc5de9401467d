"""A collector in this process: it takes what services send by OTLP over gRPC, and keeps it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc

DEADLINE = 60.0


class Collector(metrics_service_pb2_grpc.MetricsServiceServicer):
    """`metrics`: the names that each service has sent, by the service's name."""

    def __init__(self) -> None:
        self.metrics: dict[str, set[str]] = {}
        self._news = threading.Condition()

    def Export(self, request, context):
        with self._news:
            for resource in request.resource_metrics:
                names = {metric.name for scope in resource.scope_metrics for metric in scope.metrics}
                self.metrics.setdefault(service_of(resource), set()).update(names)
            self._news.notify_all()
        return metrics_service_pb2.ExportMetricsServiceResponse()

    def until(self, true: Callable[[], bool]) -> None:
        """Wait until something is true of what was sent."""
        with self._news:
            assert self._news.wait_for(true, DEADLINE), self.metrics


def service_of(resource) -> str:
    return next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name")


@contextlib.contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    """A collector and its endpoint."""
    collector = Collector()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield collector, f"http://127.0.0.1:{port}"
    finally:
        server.stop(None)
