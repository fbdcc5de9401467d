"""Where OpenTelemetry's standard variables say that measures go, and what of them may not stay in the environment.

Those that are not named here (sampling, batches, intervals, certificates, resource attributes) are read by
OpenTelemetry's SDK itself.
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
    """What an exporter of gRPC is told."""

    endpoint: str
    headers: str = field(repr=False)

    @property
    def options(self) -> dict[str, Any]:
        """Return the arguments of an exporter; what is left out it reads from the environment."""
        parts = urlsplit(self.endpoint if "://" in self.endpoint else f"//{self.endpoint}")
        found: dict[str, Any] = {"channel_options": tuple(proxy_options(parts.netloc))}
        return found | ({"headers": self.headers} if self.headers else {})


def take_headers() -> None:
    """Take the headers for collectors out of the environment: they are secrets, and what is started inherits it."""
    for name in _header_names():
        process_secrets.take_secret_env(name)


def collector_of(signal: Signal) -> Collector | None:
    """Return where a signal goes; None: no one asked for it, or in a way that there is not, which is logged.

    A protocol that is not spoken is no reason not to start: the variables may be meant for other programs.
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
            "nothing is exported, as OTLP goes over gRPC here: set OTEL_EXPORTER_OTLP_PROTOCOL=grpc and its endpoint",
            signal=signal.lower(),
            protocol=protocol,
        )
        return None
    if "://" not in endpoint and not _variable(signal, "INSECURE"):
        _log.warning(
            "the collector is called with TLS, as its address has no scheme: where it speaks none, begin it with http://",
            signal=signal.lower(),
        )
    headers = (process_secrets.take_secret_env(name) for name in _header_names(signal))
    return Collector(endpoint, next(filter(None, headers), ""))


def _variable(signal: Signal, name: str) -> str:
    return os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_{name}") or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}", "")


def _header_names(*signals: Signal) -> list[str]:
    """Return the variables of headers, those of a signal before those of all."""
    return [*(f"OTEL_EXPORTER_OTLP_{s}_HEADERS" for s in signals or _SIGNALS), "OTEL_EXPORTER_OTLP_HEADERS"]
