"""How a server is exposed: what it refuses to start without, its addresses, its TLS."""

from __future__ import annotations

from urllib.parse import urlsplit

import grpc

from leman_core.model.errors import InvalidArgument
from leman_core.server.addresses import is_loopback
from leman_core.server.auth.authentication import asks
from leman_core.server.auth.token_file import SHORTEST_TOKEN
from leman_core.server.bind_failures import bind_failure, bracketed
from leman_core.server.tls import TlsFiles, server_credentials, settings_named
from leman_core.settings import Server, Settings


def check_bind(settings: Settings) -> None:
    """Refuse a server that others can reach and that nothing protects, and one that would send tokens to other machines
    in the clear, unless settings say that it may be so.

    Raises:
        InvalidArgument: INSECURE_BIND, ANONYMOUS_BIND, WEAK_TOKEN, INSECURE_PEER, BAD_SETTING.
    """
    server = settings.server
    if bool(server.tls_cert) != bool(server.tls_key):
        raise InvalidArgument("BAD_SETTING", "LEMAN_SERVER__TLS_CERT and LEMAN_SERVER__TLS_KEY go together")
    if server.tls_client_ca and not server.tls_cert:
        raise InvalidArgument("BAD_SETTING", "LEMAN_SERVER__TLS_CLIENT_CA needs TLS: set LEMAN_SERVER__TLS_CERT, too")
    if (server.tls_client_roles or server.mtls_port) and not server.tls_client_ca:
        raise InvalidArgument("BAD_SETTING", "clients show certificates only where LEMAN_SERVER__TLS_CLIENT_CA is set")
    local = is_loopback(server.host)
    if not (local or server.tls_cert or server.allow_insecure_bind):
        raise InvalidArgument(
            "INSECURE_BIND",
            f"{server.host} can be reached from other machines: set LEMAN_SERVER__TLS_CERT and "
            "LEMAN_SERVER__TLS_KEY, or LEMAN_SERVER__ALLOW_INSECURE_BIND=true where the network is protected",
        )
    if (not local or server.tls_cert) and not server.allow_anonymous:
        _check_callers(settings)
    if not server.allow_insecure_bind:
        _check_peers(settings)
        _check_lineage(settings)


def _check_peers(settings: Settings) -> None:
    """Refuse peers elsewhere that are to be called without TLS, with a token of one's own or of callers."""
    peers = settings.peers
    if peers.tls_ca or not (peers.token.get_secret_value() or asks(settings)):
        return
    for name in ("planner", "executor", "commit_coordinator"):
        address: str = getattr(peers, name)
        if address and not is_loopback(address.rpartition(":")[0]):
            raise InvalidArgument(
                "INSECURE_PEER",
                f"tokens would go to the {name.replace('_', ' ')} at {address} in the clear: set LEMAN_PEERS__TLS_CA, "
                "or LEMAN_SERVER__ALLOW_INSECURE_BIND=true where the network is protected",
            )


def _check_lineage(settings: Settings) -> None:
    lineage = settings.lineage
    url = urlsplit(lineage.url)
    if lineage.api_key.get_secret_value() and url.scheme == "http" and not is_loopback(url.hostname or ""):
        raise InvalidArgument(
            "BAD_SETTING",
            f"LEMAN_LINEAGE__API_KEY would go to {url.hostname} in the clear: have LEMAN_LINEAGE__URL begin with "
            "https://, or set LEMAN_SERVER__ALLOW_INSECURE_BIND=true where the network is protected",
        )


def _check_callers(settings: Settings) -> None:
    server = settings.server
    if server.anonymous_roles or not asks(settings):
        raise InvalidArgument(
            "ANONYMOUS_BIND",
            f"{server.host} would answer everyone who can reach it: set LEMAN_SERVER__TOKEN, "
            "LEMAN_SERVER__TOKENS_FILE, LEMAN_JWT__ISSUER or LEMAN_SERVER__TLS_CLIENT_CA, which say what callers must "
            "show, and no LEMAN_SERVER__ANONYMOUS_ROLES, or LEMAN_SERVER__ALLOW_ANONYMOUS=true",
        )
    token = server.token.get_secret_value()
    if token and len(token) < SHORTEST_TOKEN:
        raise InvalidArgument(
            "WEAK_TOKEN",
            f"LEMAN_SERVER__TOKEN has {len(token)} characters, and whoever guesses it can run code: take "
            f"at least {SHORTEST_TOKEN}, for example what `openssl rand -base64 24` prints",
        )


def bind(server: Server, to: grpc.aio.Server) -> int:
    """Bind the address of the settings, and the one for clients with certificates where there are two.

    Returns:
        The port of the first.

    Raises:
        InvalidArgument: BAD_SETTING.
        Unavailable: BIND_FAILED.
    """
    if not server.tls_cert:
        return _bound(to, server, "port", None)
    if server.mtls_port:
        _bound(to, server, "mtls_port", _credentials(server, asks=True))
    asks_here = bool(server.tls_client_ca) and not server.mtls_port
    return _bound(to, server, "port", _credentials(server, asks=asks_here))


def _bound(to: grpc.aio.Server, server: Server, setting: str, credentials: grpc.ServerCredentials | None) -> int:
    port: int = getattr(server, setting)
    address = f"{bracketed(server.host)}:{port}"
    try:
        if credentials is None:
            return to.add_insecure_port(address)
        return to.add_secure_port(address, credentials)
    except RuntimeError as error:
        names = {"host_setting": "LEMAN_SERVER__HOST", "port_setting": f"LEMAN_SERVER__{setting.upper()}"}
        raise bind_failure("cannot listen", server.host, port, **names, error=error) from None


def _credentials(server: Server, *, asks: bool) -> grpc.ServerCredentials:
    """Return what a server shows of itself, and what clients have to show where it `asks`."""
    try:
        files = TlsFiles(ca=server.tls_client_ca if asks else "", cert=server.tls_cert, key=server.tls_key)
    except OSError as error:
        paths = {
            "LEMAN_SERVER__TLS_CERT": server.tls_cert,
            "LEMAN_SERVER__TLS_KEY": server.tls_key,
            "LEMAN_SERVER__TLS_CLIENT_CA": server.tls_client_ca if asks else "",
        }
        said = f"{settings_named(error, paths)}: the TLS certificate or key cannot be read, or used: {error}"
        raise InvalidArgument("BAD_SETTING", said) from None
    return server_credentials(files, asks=asks)
