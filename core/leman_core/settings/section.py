"""What every section of the settings is made of."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr

from leman_core.functions.remote_addresses import parse_pattern
from leman_core.server.addresses import host_and_port


class Section(BaseModel):
    """Base of all sections."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)


def _sendable(token: SecretStr) -> SecretStr:
    """Return a token that a header can carry. The message must not tell it."""
    if not all("!" <= character <= "~" for character in token.get_secret_value()):
        raise ValueError("a token is made of visible ASCII characters, without blanks")
    return token


def _pattern(text: str) -> str:
    parse_pattern(text)
    return text


def _host_and_port(text: str) -> str:
    if text:
        host_and_port(text)
    return text


#: host:port of a service; empty: not given.
ServiceAddress = Annotated[str, AfterValidator(_host_and_port)]
#: A pattern of addresses of function servers.
AddressPattern = Annotated[str, AfterValidator(_pattern)]
Token = Annotated[SecretStr, AfterValidator(_sendable)]
#: What a caller can be allowed: a role, each of which includes those before it, or the right to send code.
Grant: TypeAlias = Literal["reader", "runner", "editor", "admin", "service", "code"]
#: How a JWT may be signed: with a private key that the service does not have.
Algorithm: TypeAlias = Literal[
    "ES256", "ES384", "ES512", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"
]  # fmt: skip
#: Kinds of functions, and where the code of those in Python is.
FunctionKind: TypeAlias = Literal["scalar", "array", "record_batch", "sql", "remote", "pickled", "entrypoint"]
