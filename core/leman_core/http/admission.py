"""Whom the HTTP port answers at all: so many at once, pages of named origins, and no borrowed host name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from http import HTTPStatus

from leman_core.http.errors import HttpRefusal
from leman_core.http.exchange import Exchange
from leman_core.model.errors import InvalidArgument, ResourceExhausted
from leman_core.server.addresses import is_loopback
from leman_core.server.auth.authentication import asks
from leman_core.server.web_pages import bad_origin, is_foreign, names_host
from leman_core.settings import Settings

_REQUEST_HEADERS = "accept, authorization, connect-protocol-version, connect-timeout-ms, content-type, x-request-id"
_PREFLIGHT_SECONDS = "7200"


class Admission:
    """What decides about a request before its method is looked at.

    Raises:
        InvalidArgument: BAD_SETTING.
    """

    def __init__(self, settings: Settings) -> None:
        server = settings.server
        self._most = server.max_calls + server.max_streams  # bodies take memory before budgets of methods are asked
        self.running = 0
        self._anonymous = not asks(settings) or bool(server.anonymous_roles)
        self._local = is_loopback(server.host)
        self._origins = frozenset(_parts(server.http_origins))
        self._hosts = frozenset(name.lower() for name in _parts(server.http_hosts))
        self._check_origins()

    @contextlib.contextmanager
    def admitted(self, exchange: Exchange) -> Iterator[None]:
        """Count a request while it runs, and say to browsers what its page may read.

        Raises:
            ResourceExhausted: TOO_MANY_CALLS.
            HttpRefusal: HOST_NOT_LOCAL, ORIGIN_NOT_ALLOWED.
        """
        self._check_host(exchange.headers.get("host", ""))
        self._check_page(exchange)
        if self.running >= self._most:
            raise ResourceExhausted("TOO_MANY_CALLS", f"{self.running} requests are at work: try again later")
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def _check_origins(self) -> None:
        for origin in self._origins:
            if bad_origin(origin):
                raise InvalidArgument(
                    "BAD_SETTING",
                    f"LEMAN_SERVER__HTTP_ORIGINS: {origin!r} is no origin of a page: write https://name or "
                    "https://name:port, in lower case and without a path",
                )
        if "*" in self._origins and self._anonymous:
            raise InvalidArgument(
                "BAD_SETTING",
                "LEMAN_SERVER__HTTP_ORIGINS: with `*` every web page may call, and this service answers callers "
                "without a token. Name the origins, or set LEMAN_SERVER__TOKEN and no LEMAN_SERVER__ANONYMOUS_ROLES",
            )

    def _check_host(self, host: str) -> None:
        """Refuse names that a web page can have pointed here (DNS rebinding), where no token protects the service."""
        if not self._anonymous or names_host(host, local=self._local, allowed=self._hosts):
            return
        raise _forbidden(
            "HOST_NOT_LOCAL",
            f"{host[:200]!r} does not name this machine: call it 127.0.0.1 or localhost, or have "
            "LEMAN_SERVER__HTTP_HOSTS name it",
        )

    def _check_page(self, exchange: Exchange) -> None:
        """Refuse what a web page has sent, whatever its verb, unless its origin may call."""
        origin = exchange.headers.get("origin", "")
        if is_foreign(exchange.headers, exchange.own_origin, self._origins):
            page = f"a page of the origin {origin[:200]!r}" if origin else "a page of another site"
            message = f"{page} may not call this service: have LEMAN_SERVER__HTTP_ORIGINS name its origin"
            raise _forbidden("ORIGIN_NOT_ALLOWED", message)
        if not origin:
            return
        exchange.extra += [
            ("access-control-allow-origin", origin),
            ("access-control-expose-headers", "x-request-id, trailer-x-request-id, retry-after"),
            ("vary", "origin"),
        ]
        if exchange.method == "OPTIONS":
            exchange.extra += [
                ("access-control-allow-methods", "GET, POST"),
                ("access-control-allow-headers", _REQUEST_HEADERS),
                ("access-control-max-age", _PREFLIGHT_SECONDS),
            ]


def _parts(setting: str) -> Iterator[str]:
    return (part for part in map(str.strip, setting.split(",")) if part)


def _forbidden(reason: str, message: str) -> HttpRefusal:
    return HttpRefusal(HTTPStatus.FORBIDDEN, InvalidArgument(reason, message))
