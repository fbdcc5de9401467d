"""The file with the access to function servers; callers never send it.

    [[server]]
    address = "grpc+tls://*.features.internal:7443"  # wildcards as in LEMAN_UDF__REMOTE_ADDRESSES
    token_file = "/run/secrets/features"             # or token = "…"
    ca = "/etc/leman/features-ca.pem"                # or none: the system's
    cert = "/etc/leman/leman.pem"                    # for mTLS, with `key`
    key = "/etc/leman/leman-key.pem"

The first table that matches an address applies. The file is read whenever a function is registered or a job begins.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError, model_validator

from leman_core.functions.function_servers import access_denied
from leman_core.model.service_errors import FailedPrecondition
from leman_core.model.work import ServerAccess
from leman_core.process.addresses import Address, parse_address, parse_pattern
from leman_core.settings.sections import AddressPattern, Token


class _Server(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    address: AddressPattern
    token: Token = SecretStr("")
    token_file: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""
    insecure: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.token.get_secret_value() and self.token_file:
            raise ValueError("give token or token_file")
        if bool(self.cert) != bool(self.key):
            raise ValueError("cert and key belong together")
        return self


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    server: list[_Server] = []


def access_to(addresses: Iterable[str], path: str) -> tuple[ServerAccess, ...]:
    """Return the access to the servers at these addresses, from the current file.

    Args:
        addresses: Of servers of one function.
        path: Of the file; empty: there is none.

    Raises:
        FailedPrecondition: FUNCTION_ACCESS_DENIED – the file, or one that it names, cannot be read, or a token would be
            sent unencrypted.
    """
    servers = _read(path) if path else []
    return tuple(_access(text, servers) for text in addresses)


def _access(text: str, servers: list[_Server]) -> ServerAccess:
    address = parse_address(text)
    told = next((server for server in servers if address.matches(parse_pattern(server.address))), None)
    if told is None:
        return ServerAccess(str(address))
    try:
        token = _file(told.token_file).strip() if told.token_file else told.token.get_secret_value()
        access = ServerAccess(str(address), token, _file(told.ca), _file(told.cert), _file(told.key))
    except (OSError, UnicodeDecodeError) as error:
        raise access_denied(text, f"a file with its credentials cannot be read: {error}") from None
    if not all("!" <= character <= "~" for character in token):
        raise access_denied(text, "its token is not made of visible ASCII characters")
    if token and not _unseen(address) and not told.insecure:
        raise access_denied(text, "its token is not sent without TLS: serve it over grpc+tls, or set insecure = true")
    return access


def _unseen(address: Address) -> bool:
    return address.tls or address.loopback


def _file(path: str) -> str:
    return Path(path).read_text(encoding="utf-8") if path else ""


def _read(path: str) -> list[_Server]:
    try:
        return _Content.model_validate(tomllib.loads(Path(path).read_text(encoding="utf-8"))).server
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        wrong = str(error)
    raise FailedPrecondition(
        "FUNCTION_ACCESS_DENIED", f"The file {path} of LEMAN_UDF__REMOTE_CREDENTIALS cannot be used: {wrong}"
    )
