"""Authenticate callers by token, JWT or client certificate (mTLS).

A file of tokens is reloaded when it changes. A caller's name may have several tokens, so that an old and a new one can
both be valid for some time:

    [[token]]
    name = "nightly"
    roles = ["runner"]
    sha256 = "9f86d081…"          # or token = "…" in the clear
    expires = 2027-01-01T00:00:00Z # optional

JWTs come from an OpenID Connect issuer. Its public keys are cached. They are reloaded when they are old, or when a
token names an unknown key.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import datetime
import hashlib
import json
import math
import ssl
import time
import tomllib
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlsplit

import grpc
import jwt
import structlog
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, SecretStr, ValidationError

from leman_core.model.service_errors import InvalidArgument, Unauthenticated, Unavailable
from leman_core.process.addresses import is_loopback
from leman_core.server.callers import (
    ANONYMOUS,
    CODE,
    FORWARDED_BY,
    FRONT,
    GRANTS,
    SERVICE,
    UNNAMED,
    Caller,
    forwarded_caller,
    make_caller,
)
from leman_core.settings import Grant, Jwt, Settings, Token

#: Prefixes of certificates' names in the settings, with gRPC's names for those properties.
_PROPERTIES = {
    "CN": "x509_common_name",
    "DNS": "peer_dns",
    "URI": "peer_uri",
    "EMAIL": "peer_email",
}


class Certificates:
    """Finds callers by their client certificates, which TLS has verified.

    Args:
        roles: The roles of callers, by a name in their certificates such as `DNS:etl.example`.

    Raises:
        InvalidArgument: BAD_SETTING.
    """

    def __init__(self, roles: Mapping[str, Iterable[str]]) -> None:
        self._roles: dict[tuple[str, str], tuple[str, ...]] = {}
        for name, given in roles.items():
            kind, _, value = name.partition(":")
            if kind not in _PROPERTIES or not value:
                known = ", ".join(f"{kind}:" for kind in _PROPERTIES)
                raise InvalidArgument(
                    "BAD_SETTING",
                    f"LEMAN_SERVER__TLS_CLIENT_ROLES: '{name}' is not a certificate name with its kind: write one of "
                    f"{known}, followed by the name",
                )
            self._roles[_PROPERTIES[kind], value] = tuple(given)

    def caller_of(self, shown: Mapping[str, Iterable[bytes]]) -> Caller | None:
        """Return the caller of a certificate; None if no name in it is known.

        Args:
            shown: gRPC's authentication context of the connection.
        """
        names = [
            (kind, value.decode("utf-8", "replace")) for kind in _PROPERTIES.values() for value in shown.get(kind, ())
        ]
        known = [name for name in names if name in self._roles]
        if not known:
            return None
        return make_caller(known[0][1], "certificate", (role for name in known for role in self._roles[name]))


#: Keys are not read again within this time, even if unknown ones are needed.
_PAUSE_SECONDS = 30.0
_LARGEST_ANSWER = 1 << 20
#: The public fields of a JWK. Private ones are ignored.
_PUBLIC = ("kty", "crv", "x", "y", "n", "e")
_KINDS = ("RSA", "EC", "OKP")
_DISCOVERY = "/.well-known/openid-configuration"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key, and the properties that decide which tokens it may verify."""

    kid: str | None
    #: The only algorithm of the key; empty if it may be any for a key of its kind.
    algorithm: str
    kind: str
    key: Any

    def fits(self, kid: str | None, algorithm: str) -> bool:
        """Return whether the key may have signed a token with this header."""
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
        if settings.jwks and "://" not in settings.jwks:  # a file has to exist from the start
            self._keep(self._from_file())

    async def matching(self, kid: str | None, algorithm: str) -> list[SigningKey]:
        """Return the keys that may have signed a token with this header.

        Raises:
            Unavailable: KEYS_UNAVAILABLE – the issuer's keys have never been read.
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
        """Reload the keys, once for all callers that wait for them. If that fails, keep the old keys."""
        seen = self._tried
        async with self._lock:
            if self._tried == seen and (self._read or time.monotonic() - seen >= _PAUSE_SECONDS):
                self._tried = time.monotonic()
                try:
                    self._keep(await asyncio.to_thread(self._load))
                except (OSError, ValueError, HTTPException, jwt.PyJWTError) as error:
                    _log.error("public keys of the JWT issuer not read", error=f"{type(error).__name__}: {error}")
        if not self._read:
            raise Unavailable(
                "KEYS_UNAVAILABLE",
                "the JWT issuer's public keys cannot be read now, so its tokens cannot be checked: try again later",
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
    """Refuses redirects, so that keys come only from the url in the settings."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None


def _check_url(url: str) -> str:
    """Check that the answer of a URL cannot be changed in transit, and return the URL.

    Raises:
        ValueError: The URL is neither https nor on loopback.
    """
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return url
    raise ValueError(f"'{url}' is not an https URL, so others could replace its keys in transit: use https")


def _keys_in(content: Any) -> tuple[SigningKey, ...]:
    """Return the public signature keys of a JWK set, without its other keys."""
    listed = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it is not a JWK set: it has no list of keys")
    keys = []
    for entry in listed:
        if not isinstance(entry, dict) or entry.get("kty") not in _KINDS or entry.get("use", "sig") != "sig":
            continue
        with contextlib.suppress(jwt.PyJWTError):  # such as a curve that is not for signatures
            public = jwt.PyJWK({name: value for name, value in entry.items() if name in _PUBLIC})
            keys.append(SigningKey(entry.get("kid"), entry.get("alg", ""), entry["kty"], public.key))
    if not keys:
        raise ValueError("the JWK set has no public key for signatures")
    return tuple(keys)


def _kind_of(algorithm: str) -> str:
    return {"ES": "EC", "Ed": "OKP"}.get(algorithm[:2], "RSA")


#: How long a verified token is trusted before it is verified again. It is short, so that a withdrawn key soon stops
#: working.
_TRUST_SECONDS = 60.0
_MOST_REMEMBERED = 10_000
_LONGEST_NAME = 128


class JwtTokens:
    """Verify JWTs (signature, issuer, audience, time), and read names and roles from their claims.

    Raises:
        InvalidArgument: BAD_SETTING.
    """

    def __init__(self, settings: Jwt) -> None:
        if not settings.audience:
            raise InvalidArgument(
                "BAD_SETTING",
                "LEMAN_JWT__AUDIENCE is empty, so the issuer's tokens for other services would be valid here: set it",
            )
        self._settings = settings
        self._keys = SigningKeys(settings)
        self._known: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()

    async def caller_of(self, token: str, digest: bytes) -> Caller:
        """Return the caller of a token.

        Args:
            digest: The sha256 of the token.

        Raises:
            Unauthenticated: TOKEN_INVALID, TOKEN_EXPIRED.
            Unavailable: KEYS_UNAVAILABLE.
        """
        known = self._known.get(digest)
        if known is not None and time.time() < known[1]:
            return known[0]
        claims = await self._claims(token)
        found = self._caller(claims)
        until = min(float(claims["exp"]) + self._settings.leeway_seconds, time.time() + _TRUST_SECONDS)
        self._known[digest] = (found, until)
        self._known.move_to_end(digest)
        if len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        return found

    async def _claims(self, token: str) -> Mapping[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise _invalid("it is not a JWT") from None
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self._settings.algorithms:
            raise _invalid("this service does not accept the algorithm of its signature")
        for key in await self._keys.matching(kid, algorithm):
            claims = self._verified(token, key, algorithm)
            if claims is not None:
                return claims
        raise _invalid("it is not signed with a key of the issuer")

    def _verified(self, token: str, key: SigningKey, algorithm: str) -> Mapping[str, Any] | None:
        """Return the claims of a token; None if another key signed it."""
        try:
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=self._settings.leeway_seconds,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.InvalidSignatureError, jwt.InvalidKeyError):
            return None
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("TOKEN_EXPIRED", "the token has expired: get another one") from None
        except jwt.InvalidAudienceError:
            raise _invalid("it is for another audience") from None
        except jwt.InvalidIssuerError:
            raise _invalid("it is from another issuer") from None
        except jwt.ImmatureSignatureError:
            raise _invalid("it is not valid yet") from None
        except (jwt.PyJWTError, TypeError, ValueError):
            raise _invalid("it is damaged, or a required claim is missing") from None
        return claims

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        name = _claim(claims, self._settings.name_claim)
        if not isinstance(name, str) or not name:
            raise _invalid(f"its claim '{self._settings.name_claim}' is missing or is not a name")
        words = _words(_claim(claims, self._settings.roles_claim))
        meant = self._settings.roles
        roles = [role for word in words for role in meant.get(word, ())] if meant else words
        return make_caller(name[:_LONGEST_NAME], "jwt", roles)


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return the claim with the name `path`, or else the one at that path of names joined by dots."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _words(claim: Any) -> list[str]:
    if isinstance(claim, str):
        return claim.split()
    return [word for word in claim if isinstance(word, str)] if isinstance(claim, list) else []


def _invalid(why: str) -> Unauthenticated:
    return Unauthenticated("TOKEN_INVALID", f"the token is not valid: {why}")


_LOOK_SECONDS = 1.0
#: The fewest characters of a token if other machines can reach the server.
SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class KnownToken:
    """The caller of a token, and its expiry in seconds since the epoch."""

    caller: Caller
    expires: float = math.inf


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: Annotated[str, Field(min_length=1, max_length=128)]
    roles: list[Grant]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    token: Token = SecretStr("")
    expires: AwareDatetime | None = None


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    token: list[_Entry] = []


class TokenFile:
    """The tokens in a file.

    A change is noticed within a second, and at once if an unknown token arrives. If the file becomes unreadable or
    invalid, the tokens stay as they were, and the log reports an error.

    Raises:
        InvalidArgument: BAD_SETTING – the file cannot be read at the start.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._looked = time.monotonic()
        self._seen = self._state()
        self._known = self._read()

    def find(self, digest: bytes) -> KnownToken | None:
        """Return the token with this sha256, if the file has it."""
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._look()
        found = self._known.get(digest)
        if found is None and self._look():
            found = self._known.get(digest)
        return found

    def _look(self) -> bool:
        """Reload the file if it changed. Return whether the tokens changed."""
        self._looked = time.monotonic()
        state = self._state()
        if state == self._seen:
            return False
        self._seen = state
        try:
            self._known = self._read()
        except InvalidArgument as error:
            _log.error("tokens stay as they were", error=error.message)
            return False
        _log.info("tokens read", tokens=len(self._known))
        return True

    def _state(self) -> tuple[int, ...] | None:
        """Return a value that changes when the file is written or replaced."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev

    def _read(self) -> Mapping[bytes, KnownToken]:
        try:
            content = _Content.model_validate(tomllib.loads(self._path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError) as error:
            raise self._bad(f"cannot be read: {type(error).__name__}") from None
        except tomllib.TOMLDecodeError as error:
            raise self._bad(f"is not TOML: {error}") from None
        except ValidationError as error:
            wrong = error.errors(include_input=False, include_context=False)
            listed = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in wrong)
            raise self._bad(f"is invalid: {listed}") from None
        known: dict[bytes, KnownToken] = {}
        for entry in content.token:
            digest = self._digest(entry)
            if digest in known:
                raise self._bad(f"has the same token twice, for '{known[digest].caller.name}' and '{entry.name}'")
            known[digest] = KnownToken(make_caller(entry.name, "token", entry.roles), _seconds(entry.expires))
        return known

    def _digest(self, entry: _Entry) -> bytes:
        token = entry.token.get_secret_value()
        if bool(token) == bool(entry.sha256):
            raise self._bad(f"needs exactly one of token and sha256 for '{entry.name}'")
        if entry.sha256:
            return bytes.fromhex(entry.sha256)
        if len(token) < SHORTEST_TOKEN:
            raise self._bad(f"has a token of less than {SHORTEST_TOKEN} characters for '{entry.name}'")
        return hashlib.sha256(token.encode()).digest()

    def _bad(self, problem: str) -> InvalidArgument:
        return InvalidArgument("BAD_SETTING", f"LEMAN_SERVER__TOKENS_FILE: {self._path} {problem}")


def _seconds(end: datetime.datetime | None) -> float:
    return math.inf if end is None else end.timestamp()


Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Metadata: TypeAlias = Mapping[str, str | bytes]

#: The roles of the token in the settings.
_EVERYTHING = ("admin", CODE, SERVICE)
_DOTS_OF_A_JWT = 2


class Authenticator:
    """Identify callers by their tokens, or by the certificates of their connections.

    Tokens are looked up by digest, so the time of a lookup does not reveal how much of a guessed token is right.

    Raises:
        InvalidArgument: BAD_SETTING.
    """

    def __init__(self, settings: Settings) -> None:
        server = settings.server
        own = server.token.get_secret_value()
        self._own = (
            {hashlib.sha256(own.encode()).digest(): KnownToken(make_caller(UNNAMED, "token", _EVERYTHING))}
            if own
            else {}
        )
        self._file = TokenFile(server.tokens_file) if server.tokens_file else None
        self._jwts = JwtTokens(settings.jwt) if settings.jwt.issuer else None
        self._certificates = Certificates(server.tls_client_roles) if server.tls_client_ca else None
        self._asks = authenticates_callers(settings)
        unsaid: tuple[str, ...] = () if self._asks else GRANTS
        roles = unsaid if server.anonymous_roles is None else server.anonymous_roles
        self._anonymous = make_caller(ANONYMOUS, ANONYMOUS, roles)

    async def caller_of(self, metadata: Metadata, context: Context, *, basic: bool = False) -> Caller:
        """Return the caller of a call. A token takes precedence over a certificate.

        Args:
            metadata: The call's metadata.
            context: The call's gRPC context.
            basic: See `bearer_token`.

        Raises:
            Unauthenticated: TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED.
            Unavailable: KEYS_UNAVAILABLE.
        """
        given = metadata.get("authorization") if self._asks else None
        if given is None:
            return self._of_connection(metadata, context)
        token = bearer_token(given, basic=basic)
        if token is None:
            raise _required()
        digest = hashlib.sha256(token).digest()
        found = self._find(digest)
        if found is None and self._jwts is not None and token.count(b".") == _DOTS_OF_A_JWT:
            return await self._jwts.caller_of(token.decode(errors="replace"), digest)
        if found is None:
            raise Unauthenticated("TOKEN_INVALID", "the token is not valid: it is wrong, or was withdrawn")
        if found.expires <= time.time():
            raise Unauthenticated("TOKEN_EXPIRED", "the token has expired: get another one", caller=found.caller.name)
        return found.caller

    def _of_connection(self, metadata: Metadata, context: Context) -> Caller:
        shown = None
        in_front = metadata.get(FORWARDED_BY) == FRONT
        if self._certificates is not None and not in_front:
            shown = self._certificates.caller_of(context.auth_context())
        if shown is None and self._anonymous.roles:
            shown = self._anonymous
        found = shown if shown is None or in_front else forwarded_caller(shown, metadata)
        if found is None:
            raise _required()
        return found

    def _find(self, digest: bytes) -> KnownToken | None:
        return self._own.get(digest) or (self._file.find(digest) if self._file is not None else None)


def authenticates_callers(settings: Settings) -> bool:
    """Return whether a server with these settings authenticates its callers."""
    server = settings.server
    return bool(server.token.get_secret_value() or server.tokens_file or settings.jwt.issuer or server.tls_client_ca)


def _required() -> Unauthenticated:
    return Unauthenticated(
        "TOKEN_REQUIRED", "this service requires a token: send it as `authorization: Bearer <token>`"
    )


def bearer_token(given: str | bytes | None, *, basic: bool = False) -> bytes | None:
    """Return the token in a header, or None. The scheme's case does not matter (RFC 9110, 11.1).

    Args:
        given: The value of the header `authorization`.
        basic: Whether the token may also be the password of the scheme Basic, with any user.
    """
    raw = given if isinstance(given, bytes) else (given or "").encode()
    scheme, _, token = raw.partition(b" ")
    token = token.strip(b" ")
    if basic and scheme.lower() == b"basic":
        return _password(token) or None
    return token or None if scheme.lower() == b"bearer" else None


def _password(credentials: bytes) -> bytes:
    """Return the password in Basic credentials (RFC 7617), whose base64 may lack its padding."""
    bare = credentials.rstrip(b"=")
    try:
        decoded = base64.b64decode(bare + b"=" * (-len(bare) % 4), validate=True)
    except binascii.Error:
        return b""
    return decoded.partition(b":")[2]
