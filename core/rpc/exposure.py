"""How a server is exposed: what it refuses to start without, and its TLS."""

from __future__ import annotations

from pathlib import Path

import grpc

from core.config import Server, Settings
from core.errors import InvalidArgument
from core.rpc.addresses import is_loopback
from core.rpc.auth.authentication import asks
from core.rpc.auth.token_file import SHORTEST_TOKEN


def check_bind(settings: Settings) -> None:
    """Refuse a server that others can reach and that nothing protects, unless settings say that it may be so.

    Raises:
        InvalidArgument: INSECURE_BIND, ANONYMOUS_BIND, WEAK_TOKEN, BAD_SETTING.
    """
    server = settings.server
    if bool(server.tls_cert) != bool(server.tls_key):
        raise InvalidArgument("BAD_SETTING", "LEMAN_SERVER__TLS_CERT and LEMAN_SERVER__TLS_KEY go together")
    local = is_loopback(server.host)
    if not (local or server.tls_cert or server.allow_insecure_bind):
        raise InvalidArgument(
            "INSECURE_BIND",
            f"{server.host} can be reached from other machines: set LEMAN_SERVER__TLS_CERT and "
            "LEMAN_SERVER__TLS_KEY, or LEMAN_SERVER__ALLOW_INSECURE_BIND=true where the network is protected",
        )
    if (not local or server.tls_cert) and not server.allow_anonymous:
        _check_callers(settings)


def _check_callers(settings: Settings) -> None:
    server = settings.server
    if server.anonymous_roles or not asks(settings):
        raise InvalidArgument(
            "ANONYMOUS_BIND",
            f"{server.host} would answer everyone who can reach it: set LEMAN_SERVER__TOKEN, "
            "LEMAN_SERVER__TOKENS_FILE or LEMAN_JWT__ISSUER, which say what callers must send, and no "
            "LEMAN_SERVER__ANONYMOUS_ROLES, or LEMAN_SERVER__ALLOW_ANONYMOUS=true",
        )
    token = server.token.get_secret_value()
    if token and len(token) < SHORTEST_TOKEN:
        raise InvalidArgument(
            "WEAK_TOKEN",
            f"LEMAN_SERVER__TOKEN has {len(token)} characters, and whoever guesses it can run code: take "
            f"at least {SHORTEST_TOKEN}, for example what `openssl rand -base64 24` prints",
        )


def server_credentials(server: Server) -> grpc.ServerCredentials:
    """Return what a server shows of itself.

    Raises:
        InvalidArgument: BAD_SETTING.
    """
    try:
        key = Path(server.tls_key).read_bytes()
        chain = Path(server.tls_cert).read_bytes()
    except OSError as error:
        raise InvalidArgument("BAD_SETTING", f"TLS certificate or key cannot be read: {error}") from None
    return grpc.ssl_server_credentials([(key, chain)])
