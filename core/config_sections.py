"""What sections of the settings are made of; `core.config` has them all."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)


def _sendable(token: SecretStr) -> SecretStr:
    """Return a token that a header can carry. The message must not tell it."""
    if not all("!" <= character <= "~" for character in token.get_secret_value()):
        raise ValueError("a token is made of visible ASCII characters, without blanks")
    return token


Token = Annotated[SecretStr, AfterValidator(_sendable)]
#: What a caller can be allowed: a role, each of which includes those before it, or the right to send code.
Grant: TypeAlias = Literal["reader", "runner", "editor", "admin", "service", "code"]
#: How a JWT may be signed: with a private key that the service does not have.
Algorithm: TypeAlias = Literal[
    "ES256", "ES384", "ES512", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"
]  # fmt: skip
#: Kinds of functions, and where the code of those in Python is.
FunctionKind: TypeAlias = Literal["scalar", "array", "record_batch", "sql", "pickled", "entrypoint"]


class Jwt(Section):
    """JSON Web Tokens of an OpenID Connect issuer, as callers' tokens."""

    issuer: str = ""
    """Url of the issuer, as in the claim `iss`; with it JWTs are taken. https, or http on loopback."""
    audience: str = ""
    """What has to stand in the claim `aud`."""
    jwks: str = ""
    """Url or path of the issuer's public keys (a JWK set); empty: where the issuer's discovery document says."""
    tls_ca: str = ""
    """Path of the CA certificates (PEM) that the issuer's certificate is checked with; empty: the system's."""
    algorithms: tuple[Algorithm, ...] = Field(
        default=("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"), min_length=1
    )
    """Signatures that are taken."""
    name_claim: str = "sub"
    """Claim with the caller's name."""
    roles_claim: str = "roles"
    """Claim with the caller's roles, as a list or as words between blanks; dots lead into objects
    (`realm_access.roles`)."""
    roles: dict[str, tuple[Grant, ...]] = Field(default_factory=dict)
    """What the words in that claim mean, as a JSON object of lists of roles. Empty: the words are roles; others are
    left out."""
    leeway_seconds: float = Field(default=30.0, ge=0, le=300)
    """By how much the clocks of the issuer and of this service may differ."""
    refresh_seconds: float = Field(default=3600.0, gt=0)
    """Seconds after which the public keys are read anew; a token with a key that is not known has them read at once,
    but not twice within half a minute."""
    timeout_seconds: float = Field(default=5.0, gt=0)
    """Longest wait for an answer of the issuer in seconds."""


class Udf(Section):
    """Which functions may be registered and run."""

    allow: tuple[FunctionKind, ...] = ("scalar", "array", "record_batch", "sql", "pickled", "entrypoint")
    """Kinds of functions, and where the code of Python functions may come from. A function needs its kind to stand here
    and, unless it is SQL, `pickled` or `entrypoint` too."""
    entrypoints: tuple[str, ...] = ()
    """Entrypoints that may be named, as patterns of `package.module:name` in which `*` stands for anything. Empty: all;
    as that is whatever is installed on the workers, registering one takes the right `code` then."""
