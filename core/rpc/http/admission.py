"""Whom the HTTP port answers at all: so many at once, pages of named origins, and no borrowed host name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http import HTTPStatus
from urllib.parse import urlsplit

from core.config import Settings
from core.errors import InvalidArgument, ResourceExhausted
from core.rpc.addresses import is_loopback
from core.rpc.auth.authentication import asks
from core.rpc.http.errors import HttpRefusal
from core.rpc.http.exchange import Exchange

_REQUEST_HEADERS = "accept, authorization, connect-protocol-version, connect-timeout-ms, content-type, x-request-id"
_PREFLIGHT_SECONDS = "7200"


class Admission:
    """What decides about a request before its method is looked at."""

    def __init__(self, settings: Settings) -> None:
        server = settings.server
        self._most = server.max_calls + server.max_streams  # bodies take memory before budgets of methods are asked
        self.running = 0
        self._origins = {origin.strip() for origin in server.http_origins.split(",") if origin.strip()}
        # Whoever reaches loopback is let in without a token: a web page could, under a name of its own that it has
        # pointed at this machine (DNS rebinding). It cannot name the machine itself.
        self._local_names_only = is_loopback(server.host) and (not asks(settings) or bool(server.anonymous_roles))

    @contextlib.contextmanager
    def admitted(self, exchange: Exchange) -> Iterator[None]:
        """Count a request while it runs, and say to browsers what its page may read.

        Raises:
            ResourceExhausted: TOO_MANY_CALLS.
            HttpRefusal: HOST_NOT_LOCAL, ORIGIN_NOT_ALLOWED.
        """
        self._check_host(exchange.headers.get("host", ""))
        self._tell_browsers(exchange)
        if self.running >= self._most:
            raise ResourceExhausted("TOO_MANY_CALLS", f"{self.running} requests are at work: try again later")
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def _check_host(self, host: str) -> None:
        if not self._local_names_only:
            return
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            name = ""
        if not is_loopback(name):
            raise _forbidden("HOST_NOT_LOCAL", f"{host!r} does not name this machine: call it 127.0.0.1 or localhost")

    def _tell_browsers(self, exchange: Exchange) -> None:
        origin = exchange.headers.get("origin")
        preflight = exchange.method == "OPTIONS"
        if origin is None or not ({origin, "*"} & self._origins):
            if preflight:
                raise _forbidden("ORIGIN_NOT_ALLOWED", "pages of this origin may not call: LEMAN_SERVER__HTTP_ORIGINS")
            return
        exchange.extra += [
            ("access-control-allow-origin", origin),
            ("access-control-expose-headers", "x-request-id, trailer-x-request-id, retry-after"),
            ("vary", "origin"),
        ]
        if preflight:
            exchange.extra += [
                ("access-control-allow-methods", "GET, POST"),
                ("access-control-allow-headers", _REQUEST_HEADERS),
                ("access-control-max-age", _PREFLIGHT_SECONDS),
            ]


def _forbidden(reason: str, message: str) -> HttpRefusal:
    return HttpRefusal(HTTPStatus.FORBIDDEN, InvalidArgument(reason, message))
