"""A file of tokens, with their names, roles and ends; read anew when it changes.

    [[token]]
    name = "nightly"
    roles = ["runner"]
    sha256 = "9f86d081…"          # or token = "…" in the clear
    expires = 2027-01-01T00:00:00Z # or none

A name may stand there several times: old and new tokens hold side by side.
"""

from __future__ import annotations

import datetime
import hashlib
import math
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, SecretStr, ValidationError

from leman_core.model.errors import InvalidArgument
from leman_core.server.auth.caller import Caller, caller
from leman_core.settings import Grant, Token

_LOOK_SECONDS = 1.0
#: Least length of a token where others than this machine may guess at it.
SHORTEST_TOKEN = 16

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KnownToken:
    """Whom a token stands for, and until when, in seconds since the epoch."""

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
    """The tokens of a file as it is now.

    A change is noticed within a second, and at once where a token comes that is not known. A file that has gone, or
    cannot be understood, leaves the tokens as they were, and an error in the log.

    Raises:
        InvalidArgument: BAD_SETTING, where it cannot be read to begin with.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._looked = time.monotonic()
        self._seen = self._state()
        self._known = self._read()

    def find(self, digest: bytes) -> KnownToken | None:
        """Return what the file says of a token, by the sha256 of it."""
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._look()
        found = self._known.get(digest)
        if found is None and self._look():
            found = self._known.get(digest)
        return found

    def _look(self) -> bool:
        """Read the file where it is another one than it was; tell whether that gave other tokens."""
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
        """Return what changes when somebody writes the file, or puts another one in its place."""
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
            raise self._bad(f"is no TOML: {error}") from None
        except ValidationError as error:
            wrong = error.errors(include_input=False, include_context=False)
            listed = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in wrong)
            raise self._bad(f"is wrong: {listed}") from None
        known: dict[bytes, KnownToken] = {}
        for entry in content.token:
            digest = self._digest(entry)
            if digest in known:
                raise self._bad(f"has the same token twice, for '{known[digest].caller.name}' and '{entry.name}'")
            known[digest] = KnownToken(caller(entry.name, "token", entry.roles), _seconds(entry.expires))
        return known

    def _digest(self, entry: _Entry) -> bytes:
        token = entry.token.get_secret_value()
        if bool(token) == bool(entry.sha256):
            raise self._bad(f"gives for '{entry.name}' not one of token and sha256")
        if entry.sha256:
            return bytes.fromhex(entry.sha256)
        if len(token) < SHORTEST_TOKEN:
            raise self._bad(f"gives for '{entry.name}' a token of less than {SHORTEST_TOKEN} characters")
        return hashlib.sha256(token.encode()).digest()

    def _bad(self, problem: str) -> InvalidArgument:
        return InvalidArgument("BAD_SETTING", f"LEMAN_SERVER__TOKENS_FILE: {self._path} {problem}")


def _seconds(end: datetime.datetime | None) -> float:
    return math.inf if end is None else end.timestamp()
