"""The PEM files that a side of TLS shows and believes; renewed ones hold for connections made from then on."""

from __future__ import annotations

import ssl
import threading
import time
from pathlib import Path
from typing import NamedTuple

_LOOK_SECONDS = 1.0


class Pem(NamedTuple):
    """Contents of files; None: there is no such file."""

    ca: bytes | None
    key: bytes | None
    cert: bytes | None


class TlsFiles:
    """PEM files that may be replaced at any time; looked at when somebody asks, once a second at most.

    While they do not fit one another, as one of them is replaced and another is not yet, those of before hold. An empty
    path is no file. Raises OSError where they cannot be used at first.
    """

    def __init__(self, ca: str, cert: str, key: str) -> None:
        self._paths = ca, key, cert
        self._lock = threading.Lock()
        self._looked = time.monotonic()
        self._pem = self._read()

    def current(self) -> Pem:
        """What the files have now; the same object while they have not changed."""
        with self._lock:
            if time.monotonic() - self._looked >= _LOOK_SECONDS:
                self._looked = time.monotonic()
                try:
                    found = self._read()
                except OSError:
                    return self._pem
                if found != self._pem:
                    self._pem = found
            return self._pem

    def _read(self) -> Pem:
        ca, key, cert = self._paths
        pem = self._contents()
        tried = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tried.set_ciphers("ALL:@SECLEVEL=0")  # gRPC says itself what is too weak
        if ca:
            tried.load_verify_locations(ca)
        if cert and key:
            tried.load_cert_chain(cert, key, password="")  # else it asks whoever sits at the terminal
        if self._contents() != pem:
            raise OSError("they are being replaced")
        return pem

    def _contents(self) -> Pem:
        return Pem(*(Path(path).read_bytes() if path else None for path in self._paths))
