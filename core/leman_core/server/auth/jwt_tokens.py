"""JWTs of an OpenID Connect issuer, as callers' tokens."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jwt

from leman_core.model.errors import InvalidArgument, Unauthenticated
from leman_core.server.auth.caller import Caller, caller
from leman_core.server.auth.signing_keys import SigningKey, SigningKeys
from leman_core.settings import Jwt

#: A token that was checked is not checked again for so long: by then a key that was withdrawn counts no more.
_TRUST_SECONDS = 60.0
_MOST_REMEMBERED = 10_000
_LONGEST_NAME = 128


class JwtTokens:
    """What checks JWTs: signature, issuer, audience, time; and reads name and roles from their claims.

    Raises:
        InvalidArgument: BAD_SETTING.
    """

    def __init__(self, settings: Jwt) -> None:
        if not settings.audience:
            raise InvalidArgument(
                "BAD_SETTING",
                "LEMAN_JWT__AUDIENCE is empty: without it what the issuer made for any other service would hold here",
            )
        self._settings = settings
        self._keys = SigningKeys(settings)
        self._known: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()

    async def caller_of(self, token: str, digest: bytes) -> Caller:
        """Return whom a token stands for.

        Args:
            digest: the sha256 of the token.

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
            raise _invalid("it is no JWT") from None
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self._settings.algorithms:
            raise _invalid("it is signed in a way that this service does not take")
        for key in await self._keys.matching(kid, algorithm):
            claims = self._verified(token, key, algorithm)
            if claims is not None:
                return claims
        raise _invalid("it is not signed with a key of the issuer")

    def _verified(self, token: str, key: SigningKey, algorithm: str) -> Mapping[str, Any] | None:
        """Return the claims of a token; None where it is signed with another key."""
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
            raise _invalid("it is of another issuer") from None
        except jwt.ImmatureSignatureError:
            raise _invalid("it does not hold yet") from None
        except (jwt.PyJWTError, TypeError, ValueError):
            raise _invalid("it lacks a claim, or is damaged") from None
        return claims

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        name = _claim(claims, self._settings.name_claim)
        if not isinstance(name, str) or not name:
            raise _invalid(f"it has no claim '{self._settings.name_claim}' with a name")
        words = _words(_claim(claims, self._settings.roles_claim))
        meant = self._settings.roles
        roles = [role for word in words for role in meant.get(word, ())] if meant else words
        return caller(name[:_LONGEST_NAME], "jwt", roles)


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim by its name, which may have dots in it, or by the way to it."""
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
    return Unauthenticated("TOKEN_INVALID", f"the token does not hold: {why}")
