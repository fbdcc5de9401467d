"""The public keys of an issuer of JWTs: read once, kept, and read anew when they are old or one is missing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
import structlog

from leman_core.model.errors import InvalidArgument, Unavailable
from leman_core.server.addresses import is_loopback
from leman_core.settings import Jwt

#: Keys are not read again within this time, whatever tokens come.
_PAUSE_SECONDS = 30.0
_LARGEST_ANSWER = 1 << 20
#: What of a JWK is needed; what makes a key private is not looked at.
_PUBLIC = ("kty", "crv", "x", "y", "n", "e")
_KINDS = ("RSA", "EC", "OKP")
_DISCOVERY = "/.well-known/openid-configuration"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key, and which tokens it is for."""

    kid: str | None
    #: The one algorithm that it says it is for; empty: any that fits its kind.
    algorithm: str
    kind: str
    key: Any

    def fits(self, kid: str | None, algorithm: str) -> bool:
        """Tell whether a token with this header may be signed with it."""
        if kid is not None and self.kid is not None and kid != self.kid:
            return False
        return self.kind == _kind_of(algorithm) and self.algorithm in ("", algorithm)


class SigningKeys:
    """The keys of one issuer, for one event loop.

    Raises:
        InvalidArgument: BAD_SETTING.
    """

    def __init__(self, settings: Jwt) -> None:
        self._settings = settings
        place = settings.jwks or settings.issuer
        if not settings.jwks or "://" in place:
            try:
                _check_url(place)
            except ValueError as error:
                name = "JWKS" if settings.jwks else "ISSUER"
                raise InvalidArgument("BAD_SETTING", f"LEMAN_JWT__{name}: {error}") from None
        self._keys: tuple[SigningKey, ...] = ()
        self._tried = -_PAUSE_SECONDS
        self._read = False
        self._lock = asyncio.Lock()
        if settings.jwks and "://" not in settings.jwks:  # a file is there from the start
            self._keep(self._from_file())

    async def matching(self, kid: str | None, algorithm: str) -> list[SigningKey]:
        """Return the keys with which a token with this header may be signed.

        Raises:
            Unavailable: KEYS_UNAVAILABLE, where the issuer has not told its keys yet.
        """
        age = time.monotonic() - self._tried
        if not self._read or (age >= self._settings.refresh_seconds and age >= _PAUSE_SECONDS):
            await self._refresh()
        found = self._fitting(kid, algorithm)
        if not found and time.monotonic() - self._tried >= _PAUSE_SECONDS:
            await self._refresh()
            found = self._fitting(kid, algorithm)
        return found

    def _fitting(self, kid: str | None, algorithm: str) -> list[SigningKey]:
        return [key for key in self._keys if key.fits(kid, algorithm)]

    async def _refresh(self) -> None:
        """Read the keys, once for all who wait for them; those of before stay where that fails."""
        seen = self._tried
        async with self._lock:
            if self._tried == seen and (self._read or time.monotonic() - seen >= _PAUSE_SECONDS):
                self._tried = time.monotonic()
                try:
                    self._keep(await asyncio.to_thread(self._load))
                except (OSError, ValueError, HTTPException, jwt.PyJWTError) as error:
                    _log.error("public keys of the JWT issuer are not read", error=f"{type(error).__name__}: {error}")
        if not self._read:
            raise Unavailable(
                "KEYS_UNAVAILABLE",
                "the issuer of JWTs does not tell its public keys now, so that no token of it can be checked",
                retry_after_seconds=_PAUSE_SECONDS,
            )

    def _keep(self, keys: tuple[SigningKey, ...]) -> None:
        self._keys, self._read, self._tried = keys, True, time.monotonic()

    def _from_file(self) -> tuple[SigningKey, ...]:
        try:
            return self._load()
        except (OSError, ValueError, jwt.PyJWTError) as error:
            raise InvalidArgument("BAD_SETTING", f"LEMAN_JWT__JWKS: {type(error).__name__}: {error}") from None

    def _load(self) -> tuple[SigningKey, ...]:
        place = self._settings.jwks
        if not place:
            found = self._get(self._settings.issuer.rstrip("/") + _DISCOVERY)
            if found.get("issuer") != self._settings.issuer:
                raise ValueError("the discovery document is that of another issuer")
            place = _check_url(str(found.get("jwks_uri")))
        content = self._get(place) if "://" in place else json.loads(Path(place).read_bytes())
        return _keys_in(content)

    def _get(self, url: str) -> Mapping[str, Any]:
        context = ssl.create_default_context(cafile=self._settings.tls_ca or None)
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect)
        with opener.open(url, timeout=self._settings.timeout_seconds) as answer:
            body = answer.read(_LARGEST_ANSWER + 1)
        if len(body) > _LARGEST_ANSWER:
            raise ValueError(f"{url} answers with more than {_LARGEST_ANSWER} bytes")
        content = json.loads(body)
        if not isinstance(content, dict):
            raise ValueError(f"{url} answers with no JSON object")
        return content


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """What follows no redirect: keys come from where the settings say, or not at all."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None


def _check_url(url: str) -> str:
    """Return a url of which nobody on the way can change the answer.

    Raises:
        ValueError: It is none.
    """
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return url
    raise ValueError(f"'{url}' is no https url, and anybody on the way could give other keys")


def _keys_in(content: Any) -> tuple[SigningKey, ...]:
    """Return the public keys for signatures in a JWK set; keys of other kinds are left out."""
    listed = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(listed, list):
        raise ValueError("no JWK set: it has no list of keys")
    keys = []
    for entry in listed:
        if not isinstance(entry, dict) or entry.get("kty") not in _KINDS or entry.get("use", "sig") != "sig":
            continue
        with contextlib.suppress(jwt.PyJWTError):  # a curve that is for no signature
            public = jwt.PyJWK({name: value for name, value in entry.items() if name in _PUBLIC})
            keys.append(SigningKey(entry.get("kid"), entry.get("alg", ""), entry["kty"], public.key))
    if not keys:
        raise ValueError("the JWK set has no public key for signatures")
    return tuple(keys)


def _kind_of(algorithm: str) -> str:
    return {"ES": "EC", "Ed": "OKP"}.get(algorithm[:2], "RSA")
