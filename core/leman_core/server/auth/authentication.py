"""Who a call comes from, by what it shows."""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
from collections.abc import Mapping
from typing import Any, TypeAlias

import grpc

from leman_core.model.errors import Unauthenticated
from leman_core.server.auth.caller import ANONYMOUS, CODE, GRANTS, SERVICE, Caller, caller
from leman_core.server.auth.certificates import Certificates
from leman_core.server.auth.forwarded_identity import FORWARDED_BY, FRONT, behind
from leman_core.server.auth.jwt_tokens import JwtTokens
from leman_core.server.auth.token_file import KnownToken, TokenFile
from leman_core.settings import Settings

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Metadata: TypeAlias = Mapping[str, str | bytes]

#: What the one token of the settings opens: everything.
_EVERYTHING = ("admin", CODE, SERVICE)
_DOTS_OF_A_JWT = 2


class Authenticator:
    """What tells callers by their tokens, or by the certificates of their connections.

    The token of a known caller is found by its digest: nothing is compared that takes longer the more of it is right.

    Raises:
        InvalidArgument: BAD_SETTING.
    """

    def __init__(self, settings: Settings) -> None:
        server = settings.server
        own = server.token.get_secret_value()
        self._own = (
            {hashlib.sha256(own.encode()).digest(): KnownToken(caller("token", "token", _EVERYTHING))} if own else {}
        )
        self._file = TokenFile(server.tokens_file) if server.tokens_file else None
        self._jwts = JwtTokens(settings.jwt) if settings.jwt.issuer else None
        self._certificates = Certificates(server.tls_client_roles) if server.tls_client_ca else None
        self._asks = asks(settings)
        unsaid: tuple[str, ...] = () if self._asks else GRANTS
        roles = unsaid if server.anonymous_roles is None else server.anonymous_roles
        self._anonymous = caller(ANONYMOUS, ANONYMOUS, roles)

    async def caller_of(self, metadata: Metadata, context: Context, *, basic: bool = False) -> Caller:
        """Return who a call comes from. A token counts before a certificate.

        Args:
            basic: as `shown_token`.

        Raises:
            Unauthenticated: TOKEN_REQUIRED, TOKEN_INVALID, TOKEN_EXPIRED.
            Unavailable: KEYS_UNAVAILABLE.
        """
        given = metadata.get("authorization") if self._asks else None
        if given is None:
            return self._of_connection(metadata, context)
        token = shown_token(given, basic=basic)
        if token is None:
            raise _required()
        digest = hashlib.sha256(token).digest()
        found = self._find(digest)
        if found is None and self._jwts is not None and token.count(b".") == _DOTS_OF_A_JWT:
            return await self._jwts.caller_of(token.decode(errors="replace"), digest)
        if found is None:
            raise Unauthenticated("TOKEN_INVALID", "the token does not hold: it is wrong, or was withdrawn")
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
        found = shown if shown is None or in_front else behind(shown, metadata)
        if found is None:
            raise _required()
        return found

    def _find(self, digest: bytes) -> KnownToken | None:
        return self._own.get(digest) or (self._file.find(digest) if self._file is not None else None)


def asks(settings: Settings) -> bool:
    """Tell whether a server asks its callers who they are."""
    server = settings.server
    return bool(server.token.get_secret_value() or server.tokens_file or settings.jwt.issuer or server.tls_client_ca)


def _required() -> Unauthenticated:
    return Unauthenticated(
        "TOKEN_REQUIRED", "this service asks for a token: send it as `authorization: Bearer <token>`"
    )


def shown_token(given: str | bytes | None, *, basic: bool = False) -> bytes | None:
    """Return the token of a header; None where it has none. The scheme's case does not matter: RFC 9110, 11.1.

    Args:
        basic: It may also be the password of the scheme Basic, beside whichever user.
    """
    raw = given if isinstance(given, bytes) else (given or "").encode()
    scheme, _, token = raw.partition(b" ")
    token = token.strip(b" ")
    if basic and scheme.lower() == b"basic":
        return _password(token) or None
    return token or None if scheme.lower() == b"bearer" else None


def _password(credentials: bytes) -> bytes:
    """Return the password of RFC 7617; some clients leave out the padding."""
    bare = credentials.rstrip(b"=")
    try:
        decoded = base64.b64decode(bare + b"=" * (-len(bare) % 4), validate=True)
    except binascii.Error:
        return b""
    return decoded.partition(b":")[2]
