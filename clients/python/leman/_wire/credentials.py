"""Addresses of services, tokens, and the PEM files of TLS. Does not import grpc, as function servers use it."""

from __future__ import annotations

import ipaddress
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from leman.errors import InvalidArgument

_ADDRESS = re.compile(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s:/,@\[\]]+):([0-9]+)", re.ASCII)
_GRPC_SCHEME = "dns:///"
_LARGEST_PORT = 65535
_SUCH_AS = "such as 'leman.internal:7443'"


def parse_addresses(endpoint: str | Sequence[str]) -> tuple[str, ...]:
    """Return the endpoints, each once. A str may list several with commas. Raises InvalidArgument."""
    given: Any = endpoint
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise _bad(given, f"is not host:port, {_SUCH_AS}, nor several of these")
    named = tuple(given.split(",") if isinstance(given, str) else given)
    if not named or named == ("",):
        raise InvalidArgument(f"endpoint is empty: give host:port of a service, {_SUCH_AS}")
    return tuple(dict.fromkeys(map(_address, named)))


def is_loopback(address: str) -> bool:
    """Return whether host:port is a loopback address."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def _address(given: Any) -> str:
    if not isinstance(given, str):
        raise _bad(given, f"is not a str like host:port, {_SUCH_AS}")
    address = given.strip().removeprefix(_GRPC_SCHEME)
    scheme, separator, rest = address.partition("://")
    if separator:
        place = rest.strip("/") or "host:port"
        raise _bad(address, f"is a URL: leave {scheme}:// out and give {place} (for TLS with tls_ca=)")
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise _bad(address, f"is not host:port, {_SUCH_AS}")
    if not 1 <= int(found[1]) <= _LARGEST_PORT:
        raise _bad(address, f"has no valid port: give one from 1 to {_LARGEST_PORT}")
    return address


def _bad(given: Any, what: str) -> InvalidArgument:
    return InvalidArgument(f"endpoint={given!r} {what}")


class Token:
    """A fixed token, or a function that returns tokens.

    The function is called before the first call, and again whenever its token is refused. Thread-safe: all threads use
    the token that it returned last.
    """

    def __init__(self, given: str | Callable[[], str] | None) -> None:
        """None means no token. Raises InvalidArgument, also for an empty token."""
        if given is not None and not isinstance(given, str) and not callable(given):
            raise InvalidArgument(f"token is a text, or a function that returns one, not a {type(given).__name__}")
        if given == "":
            raise InvalidArgument("the token is empty: leave it out if the services ask for none")
        self._source = given if callable(given) else None
        self._last = None if callable(given) else checked_token(given or "")

    def __bool__(self) -> bool:
        """Whether there is a token, or a function that returns one."""
        return self._source is not None or bool(self._last)

    def __call__(self) -> str:
        """Return the token for calls, or "" for none."""
        if self._last is None:
            self.renew()
        return self._last or ""

    def renew(self) -> bool:
        """Call the function again. Return False if there is none. Raises InvalidArgument, and the function's errors."""
        if self._source is None:
            return False
        found = self._source()
        if not isinstance(found, str):
            raise InvalidArgument(f"the source of tokens returned a {type(found).__name__}, not a text")
        if not found:
            raise InvalidArgument("the source of tokens returned an empty token")
        self._last = checked_token(found)
        return True


def checked_token(token: str) -> str:
    """Return the token. Raises InvalidArgument, without the token in its text, if no call can carry it."""
    if not all("!" <= letter <= "~" for letter in token):
        raise InvalidArgument(
            "the token has a blank, a line end or a letter beyond ASCII, and calls cannot carry it: remove these, for"
            " example with open(path).read().strip()"
        )
    return token


_LOOK_SECONDS = 1.0


class Pem(NamedTuple):
    """Contents of the PEM files, each None if there is no such file."""

    ca: bytes | None
    key: bytes | None
    cert: bytes | None


class TlsFiles:
    """PEM files that may be replaced at any time. They are checked on use, at most once a second.

    While the files do not match because only some of them were replaced, the earlier contents are used. An empty path
    means no file. Raises OSError if the files cannot be used at first.
    """

    def __init__(self, ca: str, cert: str, key: str) -> None:
        self._paths = ca, key, cert
        self._lock = threading.Lock()
        self._looked = time.monotonic()
        self._pem = self._read()

    def current(self) -> Pem:
        """Return the contents of the files, the same object as long as they are unchanged."""
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
        tried.set_ciphers("ALL:@SECLEVEL=0")  # gRPC reports weak keys itself
        if ca:
            tried.load_verify_locations(ca)
        if cert and key:
            tried.load_cert_chain(cert, key, password="")  # without a password, OpenSSL would ask on the terminal
        if self._contents() != pem:
            raise OSError("they are being replaced")
        return pem

    def _contents(self) -> Pem:
        return Pem(*(Path(path).read_bytes() if path else None for path in self._paths))
