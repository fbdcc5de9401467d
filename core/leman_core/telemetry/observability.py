"""What one process of the services tells of itself: begun once it is the process that works, and ended with it."""

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
    """What is exported of a process; nothing, and no thread, where no one asks for it.

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
        """The TCP port of the page for Prometheus; None: there is none."""
        return None if self._metrics is None else self._metrics.port

    def stop(self) -> None:
        """Send what is left, unless the collector does not take it within a second."""
        exports = [export for export in (self._metrics, self._traces) if export is not None]
        farewells = [threading.Thread(target=export.stop, name="farewell", daemon=True) for export in exports]
        for farewell in farewells:
            farewell.start()
        deadline = time.monotonic() + _FAREWELL_SECONDS
        for farewell in farewells:
            farewell.join(max(0.0, deadline - time.monotonic()))


def _show_process() -> None:
    """Have the measures of this process show what the operating system knows of it."""
    process = psutil.Process()

    def cpu() -> list[tuple[float, Attributes]]:
        times = process.cpu_times()
        return [(times.user, {instruments.CPU_MODE: "user"}), (times.system, {instruments.CPU_MODE: "system"})]

    instruments.PROCESS_CPU.show(cpu)
    filesystems.show_request_counts()
    instruments.PROCESS_MEMORY.show(lambda: [(float(process.memory_info().rss), {})])


def _resource(service: str) -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - see above

    # the services share an environment, and are told apart all the same: OTEL_SERVICE_NAME does not count
    return Resource.create(
        {
            "service.name": f"leman-{service}",
            "service.version": release_version(),
            "service.instance.id": str(uuid.uuid4()),
        }
    )
