"""Certificates of servers and channels, read from files that may be replaced while the process runs."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, cast

import grpc
import structlog

_LOOK_SECONDS = 1.0
_log = structlog.get_logger(__name__)


class Pem(NamedTuple):
    """Contents of files; None: there is no such file."""

    ca: bytes | None
    key: bytes | None
    cert: bytes | None


class TlsFiles:
    """PEM files that may be replaced at any time, for any thread.

    The files are checked at most once a second, on use. While they cannot be read or do not match, because only some
    are replaced yet, the previous contents stay in use.

    Args:
        ca: Path of CA certificates; empty: none.
        cert: Path of a certificate chain; empty: none.
        key: Path of its private key.
        clock: Returns seconds.

    Raises:
        OSError: A file cannot be read, is invalid, or the key does not match the certificate.
    """

    def __init__(
        self, *, ca: str = "", cert: str = "", key: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._paths = ca, key, cert
        self._clock = clock
        self._lock = threading.Lock()
        self._looked, self._trouble = clock(), ""
        self._pem = self._read()

    def current(self) -> Pem:
        """Return the contents of the files; the same object until they change."""
        with self._lock:
            if self._clock() - self._looked >= _LOOK_SECONDS:
                self._looked = self._clock()
                self._look()
            return self._pem

    def context(self) -> ssl.SSLContext:
        """Return a server's context with the current certificate."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load(made)
        return made

    def _look(self) -> None:
        try:
            found = self._read()
        except OSError as error:
            if str(error) != self._trouble:
                _log.warning("TLS files cannot be used, previous ones stay", files=self._paths, error=str(error))
            self._trouble = str(error)
            return
        self._trouble = ""
        if found != self._pem:
            self._pem = found
            _log.info("TLS files were renewed", files=self._paths)

    def _read(self) -> Pem:
        pem = self._contents()
        tried = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tried.set_ciphers("ALL:@SECLEVEL=0")  # gRPC decides itself what is too weak
        self._load(tried)
        if self._contents() != pem:
            raise OSError("they are being replaced")
        return pem

    def _load(self, context: ssl.SSLContext) -> None:
        ca, key, cert = self._paths
        if cert:
            context.load_cert_chain(cert, key, password="")  # otherwise OpenSSL prompts at the terminal
        if ca:
            context.load_verify_locations(ca)

    def _contents(self) -> Pem:
        return Pem(*(Path(path).read_bytes() if path else None for path in self._paths))


def settings_named(error: OSError, paths: Mapping[str, str]) -> str:
    """Return the settings behind an error of `TlsFiles`: the setting of the missing file, else all that are set.

    Args:
        paths: Paths by setting; empty: not set.
    """
    given = [setting for setting, path in paths.items() if path]
    missing = [setting for setting in given if error.filename and paths[setting] == str(error.filename)]
    return ", ".join(missing or given)


def channel_credentials(ca: str, cert: str = "", key: str = "") -> grpc.ChannelCredentials:
    """Return credentials that trust a CA and show a certificate, if one is given.

    Raises:
        OSError: As `TlsFiles`.
    """
    return grpc.ssl_channel_credentials(*TlsFiles(ca=ca, cert=cert, key=key).current())


def server_credentials(files: TlsFiles, *, asks: bool) -> grpc.ServerCredentials:
    """Return credentials that use the current files at each handshake.

    Args:
        asks: Whether clients have to show a certificate of the files' CA.
    """
    shown = files.current()

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal shown
        found = files.current()
        if found is shown:
            return None
        shown = found
        return _configuration(found)

    fetcher = cast("Callable[[], grpc.ServerCertificateConfiguration]", renewed)  # None is allowed: nothing changed
    return grpc.dynamic_ssl_server_credentials(_configuration(shown), fetcher, asks)


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key or b"", pem.cert or b"")], pem.ca)


def renew_at_handshakes(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Use the current files at each handshake of a server, whose `context` has their earlier contents."""
    shown, renewed = files.current(), context

    def choose(connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        nonlocal shown, renewed
        found = files.current()
        if found is not shown:
            try:
                made = files.context()
            except OSError:
                return  # the files are being replaced again: the next handshake retries
            shown, renewed = found, made
        connection.context = renewed

    context.sni_callback = choose  # OpenSSL calls it at every handshake, with or without a name
