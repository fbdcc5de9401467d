"""The way of measures out of a process: a page that Prometheus reads, and OTLP to a collector.

Imported only where metrics are asked for, and begun in the process that measures: threads do not survive a fork.
"""

from __future__ import annotations

import threading
from wsgiref.simple_server import WSGIServer

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, start_http_server

from core.config import Metrics
from core.observability import measures
from core.observability.otlp import Collector
from core.rpc.bind_failures import LISTEN_ERRORS, bind_failure

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
        if collector is not None:
            readers.append(PeriodicExportingMetricReader(OTLPMetricExporter(**collector.options)))
        self._provider = MeterProvider(readers, resource, shutdown_on_exit=False)
        meter = self._provider.get_meter(METER)
        for instrument in measures.ALL:
            instrument.bind(meter)

    @property
    def port(self) -> int | None:
        """The TCP port of the page; None: there is none."""
        return None if self._page is None else self._page.server_port

    def stop(self) -> None:
        """Measure no more, and send what is left, which blocks for as long as the collector takes."""
        for instrument in measures.ALL:
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
