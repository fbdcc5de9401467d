"""What one process of the services tells of itself: begun once it is the process that works, and ended with it."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING

from core.config import Settings
from core.observability.otlp import collector_of
from core.release import version

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

    from core.observability.metrics_export import MetricsExport

#: How long a process that ends waits for a collector.
_FAREWELL_SECONDS = 1.0


class Observability:
    """What is exported of a process; nothing, and no thread, where nobody asks for it.

    Raises:
        Unavailable: BIND_FAILED.
    """

    def __init__(self, settings: Settings, service: str) -> None:
        self._metrics: MetricsExport | None = None
        collector = collector_of("METRICS")
        if settings.metrics.port >= 0 or collector is not None:
            from core.observability.metrics_export import MetricsExport  # noqa: PLC0415 - half a second of imports

            self._metrics = MetricsExport(settings.metrics, collector, _resource(service))

    @property
    def metrics_port(self) -> int | None:
        """The TCP port of the page for Prometheus; None: there is none."""
        return None if self._metrics is None else self._metrics.port

    def stop(self) -> None:
        """Send what is left, unless the collector does not take it within a second."""
        metrics = self._metrics
        if metrics is not None:
            farewell = threading.Thread(target=metrics.stop, name="metrics", daemon=True)
            farewell.start()
            farewell.join(_FAREWELL_SECONDS)


def _resource(service: str) -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - see above

    # the services share an environment, and are told apart all the same: OTEL_SERVICE_NAME does not count
    return Resource.create(
        {
            "service.name": f"leman-{service}",
            "service.version": version(),
            "service.instance.id": str(uuid.uuid4()),
        }
    )
