"""What a side of TLS shows and believes, as its files have it now: renewed ones hold for connections made after."""

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
    """PEM files that may be replaced at any time. Any thread may ask.

    They are looked at when someone asks, once a second at most. While they cannot be read, or do not fit one another,
    as one of them is replaced and another is not yet, what was there before holds.

    Args:
        ca: Path of CA certificates; empty: none.
        cert: Path of a certificate chain; `key` that of its private key; empty: none.
        clock: Seconds, as `time.monotonic` counts them.

    Raises:
        OSError: A file cannot be read, or is none of its kind, or the key is not the certificate's.
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
        """Return what the files have now; the same object while they have not changed."""
        with self._lock:
            if self._clock() - self._looked >= _LOOK_SECONDS:
                self._looked = self._clock()
                self._look()
            return self._pem

    def context(self) -> ssl.SSLContext:
        """Return a context of a server that shows the certificate, made from the files as they are."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load(made)
        return made

    def _look(self) -> None:
        try:
            found = self._read()
        except OSError as error:
            if str(error) != self._trouble:
                _log.warning("TLS files cannot be used, those of before hold", files=self._paths, error=str(error))
            self._trouble = str(error)
            return
        self._trouble = ""
        if found != self._pem:
            self._pem = found
            _log.info("TLS files were renewed", files=self._paths)

    def _read(self) -> Pem:
        pem = self._contents()
        tried = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tried.set_ciphers("ALL:@SECLEVEL=0")  # gRPC says itself what is too weak
        self._load(tried)
        if self._contents() != pem:
            raise OSError("they are being replaced")
        return pem

    def _load(self, context: ssl.SSLContext) -> None:
        ca, key, cert = self._paths
        if cert:
            context.load_cert_chain(cert, key, password="")  # else it asks anyone who sits at the terminal
        if ca:
            context.load_verify_locations(ca)

    def _contents(self) -> Pem:
        return Pem(*(Path(path).read_bytes() if path else None for path in self._paths))


def settings_named(error: OSError, paths: Mapping[str, str]) -> str:
    """Return the settings that a failure of `TlsFiles` is about: that of the missing file, or all that are given.

    Args:
        paths: By the settings that name them; an empty one is not given.
    """
    given = [setting for setting, path in paths.items() if path]
    missing = [setting for setting in given if error.filename and paths[setting] == str(error.filename)]
    return ", ".join(missing or given)


def channel_credentials(ca: str, cert: str = "", key: str = "") -> grpc.ChannelCredentials:
    """Return credentials that believe the certificates of a CA, and show one where it is given.

    Raises:
        OSError: as `TlsFiles`.
    """
    return grpc.ssl_channel_credentials(*TlsFiles(ca=ca, cert=cert, key=key).current())


def server_credentials(files: TlsFiles, *, asks: bool) -> grpc.ServerCredentials:
    """Return credentials that show what the files have at each handshake.

    gRPC asks clients for a certificate and turns those away who have none, or does not ask.

    Args:
        asks: Clients have to show a certificate of the files' CA.
    """
    shown = files.current()

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal shown
        found = files.current()
        if found is shown:
            return None
        shown = found
        return _configuration(found)

    fetcher = cast("Callable[[], grpc.ServerCertificateConfiguration]", renewed)  # None is allowed: nothing is new
    return grpc.dynamic_ssl_server_credentials(_configuration(shown), fetcher, asks)


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key or b"", pem.cert or b"")], pem.ca)


def renew_at_handshakes(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Have each handshake of a server show what the files have then; `context` has what they had."""
    shown, renewed = files.current(), context

    def choose(connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> None:
        nonlocal shown, renewed
        found = files.current()
        if found is not shown:
            try:
                made = files.context()
            except OSError:
                return  # they are replaced again: the next handshake looks again
            shown, renewed = found, made
        connection.context = renewed

    context.sni_callback = choose  # OpenSSL asks it at every handshake, also where no name is sent
