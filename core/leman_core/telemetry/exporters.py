"""The exporters of measures and spans; imported only where one is asked for.

The way of spans out of a process. Imported only where traces are asked for.

The way of measures out of a process: a page that Prometheus reads, and OTLP to a collector.

Imported only where metrics are asked for, and begun in the process that measures: threads do not survive a fork.
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
    """The spans of one process on their way to a collector, from now until `stop`.

    Which traces are sampled, and how many spans wait at the most, the SDK reads from its variables.
    """

    def __init__(self, collector: Collector, resource: Resource) -> None:
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(**collector.options)))
        tracing.start_tracing(self._provider.get_tracer(_TRACER))

    def stop(self) -> None:
        """Make no spans any more, and send what is left, which blocks for as long as the collector takes."""
        tracing.stop_tracing()
        self._provider.shutdown()


METER = "leman"


class MetricsExport:
    """The readers of one process's measures, from now until `stop`.

    Args:
        settings: whether there is a page, and where.
        collector: None: nothing goes there.

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
        """The TCP port of the page; None: there is none."""
        return None if self._page is None else self._page.server_port

    def stop(self) -> None:
        """Measure no more, and send what is left, which blocks for as long as the collector takes."""
        for instrument in instruments.ALL:
            instrument.bind(None)
        closing = threading.Thread(target=self._close_page, name="metrics page", daemon=True)
        closing.start()
        self._provider.shutdown()
        closing.join()

    def _close_page(self) -> None:
        """End the page's thread, which takes half a second, and give its port back."""
        if self._page is not None:
            self._page.shutdown()
            self._page.server_close()


def _guarded(page: WSGIApplication, *, local: bool) -> WSGIApplication:
    """Return the page for all but web pages, whatever the verb; see `leman_core.process.addresses`."""

    def answer(request: WSGIEnvironment, begin: StartResponse) -> Iterable[bytes]:
        headers = {"origin": request.get("HTTP_ORIGIN", ""), "sec-fetch-site": request.get("HTTP_SEC_FETCH_SITE", "")}
        host = request.get("HTTP_HOST", "")
        named = not local or is_allowed_host(host, local=True, allowed=())
        if named and not is_foreign(headers, f"http://{host}", ()):
            return page(request, begin)
        begin("403 Forbidden", [("content-type", "text/plain")])
        return [b"web pages may not read this, and its address is 127.0.0.1 or localhost\n"]

    return answer
