"""Exporters of metrics (a page for Prometheus, OTLP) and spans (OTLP).

Imported only if something is exported, and started in the process that measures, as threads do not survive a fork.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIServer

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client import CollectorRegistry, start_http_server

from leman_core.process.addresses import LISTEN_ERRORS, bind_failure, is_allowed_host, is_foreign, is_loopback
from leman_core.settings import Metrics
from leman_core.telemetry import instruments, tracing
from leman_core.telemetry.otlp import Collector

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


_TRACER = "leman"


class TracesExport:
    """Export the spans of one process to a collector until `stop`.

    The SDK reads sampling and batching from its own variables.
    """

    def __init__(self, collector: Collector, resource: Resource) -> None:
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(**collector.options)))
        tracing.start_tracing(self._provider.get_tracer(_TRACER))

    def stop(self) -> None:
        """Stop making spans and send the rest; block until the collector has them."""
        tracing.stop_tracing()
        self._provider.shutdown()


METER = "leman"


class MetricsExport:
    """Export the metrics of one process until `stop`.

    Args:
        settings: Of the page for Prometheus.
        collector: None: nothing is sent.

    Raises:
        Unavailable: BIND_FAILED.
    """

    def __init__(self, settings: Metrics, collector: Collector | None, resource: Resource) -> None:
        self._page: WSGIServer | None = None
        readers: list[MetricReader] = []
        if settings.port >= 0:
            registry = CollectorRegistry()
            readers.append(PrometheusMetricReader(registry=registry, scope_info_enabled=False))
            try:
                self._page, _ = start_http_server(settings.port, settings.host, registry)
            except LISTEN_ERRORS as error:
                names = {"host_setting": "LEMAN_METRICS__HOST", "port_setting": "LEMAN_METRICS__PORT"}
                refused = bind_failure("cannot serve metrics", settings.host, settings.port, **names, error=error)
                raise refused from None
            page = self._page.get_app()
            assert page is not None
            self._page.set_app(_guarded(page, local=is_loopback(settings.host)))
        if collector is not None:
            readers.append(PeriodicExportingMetricReader(OTLPMetricExporter(**collector.options)))
        self._provider = MeterProvider(readers, resource, shutdown_on_exit=False)
        meter = self._provider.get_meter(METER)
        for instrument in instruments.ALL:
            instrument.bind(meter)

    @property
    def port(self) -> int | None:
        """Return the TCP port of the page, or None."""
        return None if self._page is None else self._page.server_port

    def stop(self) -> None:
        """Stop measuring and send the rest; block until the collector has it."""
        for instrument in instruments.ALL:
            instrument.bind(None)
        closing = threading.Thread(target=self._close_page, name="metrics page", daemon=True)
        closing.start()
        self._provider.shutdown()
        closing.join()

    def _close_page(self) -> None:
        """Stop the page's thread, which takes half a second, and release its port."""
        if self._page is not None:
            self._page.shutdown()
            self._page.server_close()


def _guarded(page: WSGIApplication, *, local: bool) -> WSGIApplication:
    """Return the page, but refuse requests of web pages with any verb; see `leman_core.process.addresses`."""

    def answer(request: WSGIEnvironment, begin: StartResponse) -> Iterable[bytes]:
        headers = {"origin": request.get("HTTP_ORIGIN", ""), "sec-fetch-site": request.get("HTTP_SEC_FETCH_SITE", "")}
        host = request.get("HTTP_HOST", "")
        named = not local or is_allowed_host(host, local=True, allowed=())
        if named and not is_foreign(headers, f"http://{host}", ()):
            return page(request, begin)
        begin("403 Forbidden", [("content-type", "text/plain")])
        return [b"web pages may not read this; its address is 127.0.0.1 or localhost\n"]

    return answer
