"""Structured logs: one line per event on standard error, with service, request_id and job_id bound by context.

Modules log through `structlog.get_logger(__name__)`; lines of the standard library's loggers go the same way. Secrets
of the settings, and passwords in URLs, are masked in the finished line, wherever they come from.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast
from urllib.parse import unquote, urlsplit

import structlog
from pydantic import BaseModel, SecretStr
from structlog.typing import EventDict, Processor, WrappedLogger

from leman_core.process.process_secrets import MASK, without_passwords
from leman_core.settings import Settings

_CHATTY = ("py4j", "asyncio")
#: Loggers of exporters, which log each attempt to reach a collector that is away.
_EXPORTERS, _EXPORTER_SECONDS = "opentelemetry.", 600.0
#: gRPC's logger, and the error that it logs with a traceback when a caller is gone.
_GRPC, _CALLER_GONE = "grpc._cython.cygrpc", "ExecuteBatchError"


def configure(settings: Settings, service: str, stream: TextIO | None = None) -> None:
    """Set up logging for this process.

    Args:
        service: Added to every line.
        stream: Standard error by default.
    """
    out = stream or sys.stderr
    level = logging.getLevelNamesMapping()[settings.log.level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _service_name(service),
            structlog.processors.format_exc_info,
            _masked(_renderer(out, json_lines=settings.log.json_lines), secrets_of(settings)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", _Unfailing(out))),
    )
    logging.basicConfig(level=level, handlers=[_ToStructlog()], force=True)
    grpc = logging.getLogger(_GRPC)
    grpc.addFilter(_no_news)
    # debug records refer to servers that are being freed: a handler that keeps one crashes the process
    grpc.setLevel(max(level, logging.INFO))
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))


@contextlib.contextmanager
def bound(**values: str) -> Iterator[None]:
    """Add values (such as `job_id`) to every line that is logged in this context."""
    with structlog.contextvars.bound_contextvars(**values):
        yield


def _no_news(record: logging.LogRecord) -> bool:
    """Return whether a line of gRPC says more than that a caller hung up, which the call's own line says."""
    error = record.exc_info[1] if record.exc_info else None
    return type(error).__name__ != _CALLER_GONE


def secrets_of(settings: BaseModel) -> list[str]:
    """Return every secret in the settings, including passwords in URLs, longest first."""
    found: set[str] = set()
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr):
            found |= _forms(value.get_secret_value())
        elif isinstance(value, BaseModel):
            found |= set(secrets_of(value))
    return sorted(found, key=len, reverse=True)


def _forms(secret: str) -> set[str]:
    password = urlsplit(secret).password if "://" in secret else None
    plain = {secret, password or "", unquote(password or "")} - {""}
    return plain | {json.dumps(text)[1:-1] for text in plain}


def _service_name(service: str) -> Processor:
    def add(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event.setdefault("service", service)
        return event

    return add


def _renderer(out: TextIO, *, json_lines: bool) -> Processor:
    if json_lines:
        return structlog.processors.JSONRenderer(default=str)
    return structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)


def _masked(render: Processor, secrets: list[str]) -> Processor:
    def masked(logger: WrappedLogger, method: str, event: EventDict) -> str:
        line = str(render(logger, method, event))
        for secret in secrets:
            line = line.replace(secret, MASK)
        return without_passwords(line)

    return masked


class _Unfailing:
    """A stream that drops lines if the disk is full, so that no call or job fails because of its log."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        """Write the text if possible."""
        with contextlib.suppress(OSError):
            self._out.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush if possible."""
        with contextlib.suppress(OSError):
            self._out.flush()


class _SeldomOfExporters(logging.Filter):
    """Pass one line every ten minutes from each logger of an exporter."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(_EXPORTERS):
            return True
        last = self._passed.get(record.name)
        if last is not None and record.created - last < _EXPORTER_SECONDS:
            return False
        self._passed[record.name] = record.created
        record.exc_info = None
        return True


class _ToStructlog(logging.Handler):
    """Pass lines of the standard library's loggers to structlog."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(_SeldomOfExporters())

    def emit(self, record: logging.LogRecord) -> None:
        event: dict[str, Any] = {"logger": record.name}
        if record.exc_info and record.exc_info[1] is not None:
            event["exc_info"] = record.exc_info
        structlog.get_logger().log(record.levelno, record.getMessage(), **event)
