"""The way of events of lineage to whoever keeps them: a file, or an HTTP endpoint. No job waits for it."""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog

from leman_core.server.addresses import is_loopback
from leman_core.settings import Lineage

_MOST_WAITING = 1000
_TIMEOUT_SECONDS = 5.0
_TRIES = 3
_PAUSE_SECONDS = 1.0
_TOLD_SECONDS = 600.0
_FAREWELL_SECONDS = 1.0

_log = structlog.get_logger(__name__)


class LineageSender:
    """Sends events one after the other from a thread; those that nobody takes are dropped, which is logged seldom."""

    def __init__(self, settings: Lineage) -> None:
        self._settings = settings
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue(_MOST_WAITING)
        self._opener = _opener(settings.url)
        self._stopping = threading.Event()
        self._dropped = 0
        self._told: float | None = None
        self._thread = threading.Thread(target=self._send_all, name="lineage", daemon=True)
        self._thread.start()

    def send(self, event: dict[str, Any]) -> None:
        """Send an event later; it is dropped where a thousand wait."""
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self._drop("a thousand events wait")

    def stop(self) -> None:
        """Send what waits, for a second at the most."""
        self._stopping.set()
        with contextlib.suppress(queue.Full):
            self._events.put_nowait(None)
        self._thread.join(_FAREWELL_SECONDS)

    def _send_all(self) -> None:
        while (event := self._events.get()) is not None:
            self._try(json.dumps(event).encode())

    def _try(self, event: bytes) -> None:
        for left in reversed(range(_TRIES)):
            try:
                self._write(event) if self._settings.file else self._post(event)
                return
            except (OSError, http.client.HTTPException) as error:  # urllib's errors are of the first kind
                if not left or self._stopping.wait(_PAUSE_SECONDS):
                    self._drop(str(error))
                    return

    def _write(self, event: bytes) -> None:
        with Path(self._settings.file).open("ab") as file:
            file.write(event + b"\n")

    def _post(self, event: bytes) -> None:
        key = self._settings.api_key.get_secret_value()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        request = urllib.request.Request(self._settings.url, event, headers)
        with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            answer.read()

    def _drop(self, why: str) -> None:
        self._dropped += 1
        now = time.monotonic()
        if self._told is None or now - self._told >= _TOLD_SECONDS:
            self._told = now
            _log.warning("events of lineage are dropped", dropped=self._dropped, error=why)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows none, which would take the key to another host."""

    def redirect_request(self, *_args: Any) -> None:
        """Return nothing: the answer is an error."""


def _opener(url: str) -> urllib.request.OpenerDirector:
    """Return what opens a url; calls on this machine never take the way through `http_proxy`."""
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if is_loopback(urlsplit(url).hostname or ""):
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)
