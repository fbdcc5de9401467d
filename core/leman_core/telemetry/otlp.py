"""The collectors that OpenTelemetry's standard variables name, and the secrets among those variables.

OpenTelemetry's SDK itself reads the other variables: sampling, batches, intervals, certificates, resource attributes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import structlog

from leman_core.process import process_secrets
from leman_core.process.addresses import proxy_options

Signal = Literal["METRICS", "TRACES"]
_SIGNALS: tuple[Signal, ...] = ("METRICS", "TRACES")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Collector:
    """The arguments of a gRPC exporter."""

    endpoint: str
    headers: str = field(repr=False)

    @property
    def options(self) -> dict[str, Any]:
        """Return the arguments of an exporter, which reads the others from the environment."""
        parts = urlsplit(self.endpoint if "://" in self.endpoint else f"//{self.endpoint}")
        found: dict[str, Any] = {"channel_options": tuple(proxy_options(parts.netloc))}
        return found | ({"headers": self.headers} if self.headers else {})


def take_headers() -> None:
    """Remove the headers for collectors from the environment, which children inherit: they are secrets."""
    for name in _header_names():
        process_secrets.take_secret_env(name)


def collector_of(signal: Signal) -> Collector | None:
    """Return the collector of a signal, or None.

    An unsupported protocol is only logged, as the variables may be meant for other programs.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    endpoint = _variable(signal, "ENDPOINT")
    exporters = os.environ.get(f"OTEL_{signal}_EXPORTER", "otlp")
    if not endpoint or "otlp" not in exporters.split(","):
        return None
    protocol = _variable(signal, "PROTOCOL") or "grpc"
    if protocol != "grpc":
        _log.warning(
            "nothing is exported, because only OTLP over gRPC is supported: set OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
            signal=signal.lower(),
            protocol=protocol,
        )
        return None
    if "://" not in endpoint and not _variable(signal, "INSECURE"):
        _log.warning(
            "the collector is called with TLS, as its address has no scheme: without TLS, begin it with http://",
            signal=signal.lower(),
        )
    headers = (process_secrets.take_secret_env(name) for name in _header_names(signal))
    return Collector(endpoint, next(filter(None, headers), ""))


def _variable(signal: Signal, name: str) -> str:
    return os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_{name}") or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}", "")


def _header_names(*signals: Signal) -> list[str]:
    """Return the variables with headers, those of a signal first."""
    return [*(f"OTEL_EXPORTER_OTLP_{s}_HEADERS" for s in signals or _SIGNALS), "OTEL_EXPORTER_OTLP_HEADERS"]
