"""Metrics and traces of one service process, from the start of its work to its end."""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING

import psutil

from leman_core.process.release import release_version
from leman_core.settings import Settings
from leman_core.storage import filesystems
from leman_core.telemetry import instruments
from leman_core.telemetry.instruments import Attributes
from leman_core.telemetry.otlp import collector_of

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

    from leman_core.telemetry.exporters import MetricsExport, TracesExport

#: How long a process that ends waits for a collector.
_FAREWELL_SECONDS = 1.0


class Observability:
    """Export metrics and traces as the settings say; without any, load nothing and start no thread.

    Raises:
        Unavailable: BIND_FAILED.
    """

    def __init__(self, settings: Settings, service: str) -> None:
        self._metrics: MetricsExport | None = None
        self._traces: TracesExport | None = None
        measures, traces = collector_of("METRICS"), collector_of("TRACES")
        if settings.metrics.port < 0 and measures is None and traces is None:
            return
        resource = _resource(service)
        _show_process()
        if settings.metrics.port >= 0 or measures is not None:
            from leman_core.telemetry.exporters import MetricsExport  # noqa: PLC0415 - half a second of imports

            self._metrics = MetricsExport(settings.metrics, measures, resource)
        if traces is not None:
            from leman_core.telemetry.exporters import TracesExport  # noqa: PLC0415 - as above

            self._traces = TracesExport(traces, resource)

    @property
    def metrics_port(self) -> int | None:
        """Return the TCP port of the page for Prometheus, or None."""
        return None if self._metrics is None else self._metrics.port

    def stop(self) -> None:
        """Send the rest to the collector, for at most a second."""
        exports = [export for export in (self._metrics, self._traces) if export is not None]
        farewells = [threading.Thread(target=export.stop, name="farewell", daemon=True) for export in exports]
        for farewell in farewells:
            farewell.start()
        deadline = time.monotonic() + _FAREWELL_SECONDS
        for farewell in farewells:
            farewell.join(max(0.0, deadline - time.monotonic()))


def _show_process() -> None:
    """Show this process's CPU time and memory."""
    process = psutil.Process()

    def cpu() -> list[tuple[float, Attributes]]:
        times = process.cpu_times()
        return [(times.user, {instruments.CPU_MODE: "user"}), (times.system, {instruments.CPU_MODE: "system"})]

    instruments.PROCESS_CPU.show(cpu)
    filesystems.show_request_counts()
    instruments.PROCESS_MEMORY.show(lambda: [(float(process.memory_info().rss), {})])


def _resource(service: str) -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - loaded only for exports

    # the services may share an environment and still need different names, so OTEL_SERVICE_NAME is ignored
    return Resource.create(
        {
            "service.name": f"leman-{service}",
            "service.version": release_version(),
            "service.instance.id": str(uuid.uuid4()),
        }
    )
