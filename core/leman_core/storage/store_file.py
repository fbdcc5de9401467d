"""The file that configures object stores. It does not contain credentials, but says where they are.

    [[store]]
    root = "s3://lake/teams"                        # and everything below; of several roots the longest applies
    endpoint = "https://minio.internal:9000"
    region = "eu-central-1"
    access_key_id = { env = "LAKE_KEY_ID" }         # an environment variable of the services
    secret_access_key = { file = "/run/secrets/lake" }

    [[store]]
    root = "s3://models"
    region = "us-east-1"
    profile = "models"                              # in ~/.aws/credentials, or in `profile_file`
    checkpoint_uri = "s3://scratch/models"          # for checkpoints, which are otherwise in their tables' folders

When this file or one that it names changes, all are read again, so that short-lived credentials can be renewed.
"""

from __future__ import annotations

import configparser
import itertools
import os
import re
import threading
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from leman_core.model.databases import StoreOptions
from leman_core.model.service_errors import InvalidArgument
from leman_core.process import process_secrets
from leman_core.storage import object_stores
from leman_core.storage.locations import canonical_database, in_object_store

_ENDPOINT = re.compile(r"https?://[^/\s@]+")
#: The keys that an entry may have in addition to `_COMMON`, by the scheme of its root.
_S3_KEYS = frozenset({"access_key_id", "secret_access_key", "session_token"})
_OWN = {
    "s3": _S3_KEYS | {"region", "virtual_hosted", "anonymous", "profile", "profile_file"},
    "gs": frozenset({"token", "anonymous"}),
    "abfss": frozenset({"account_key", "sas_token", "tenant_id", "client_id", "client_secret"}),
}
_COMMON = frozenset({"root", "endpoint", "allow_http", "checkpoint_uri"})


class Reference(BaseModel):
    """Where a secret is: in an environment variable, or in a file."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    env: str = ""
    file: str = ""

    @model_validator(mode="before")
    @classmethod
    def _no_secret(cls, given: object) -> object:
        if not isinstance(given, dict):
            raise ValueError('secrets may not be in this file: write { env = "NAME" } or { file = "/path" }')
        return given

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.env) == bool(self.file):
            raise ValueError("give either env or file")
        return self


class Store(BaseModel):
    """An entry of the file: the options of one object store, or of a part of it."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    root: str
    endpoint: str = ""
    allow_http: bool = False
    region: str = ""
    virtual_hosted: bool = False
    anonymous: bool = False
    profile: str = ""
    profile_file: str = ""
    access_key_id: Reference | None = None
    secret_access_key: Reference | None = None
    session_token: Reference | None = None
    token: Reference | None = None
    account_key: Reference | None = None
    sas_token: Reference | None = None
    tenant_id: str = ""
    client_id: str = ""
    client_secret: Reference | None = None
    checkpoint_uri: str = ""

    @property
    def references(self) -> dict[str, Reference]:
        found = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: given for name, given in found if isinstance(given, Reference)}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.root = _in_a_store(self.root, "only these have options")
        scheme = self.root.partition("://")[0]
        alien = self.model_fields_set - _COMMON - _OWN[scheme]
        if alien:
            raise ValueError(f"{', '.join(sorted(alien))}: not an option for {scheme}://. Remove it")
        self._check_checkpoints()
        self._check_endpoint()
        getattr(self, f"_check_{scheme}")()
        return self

    def _check_checkpoints(self) -> None:
        if not self.checkpoint_uri:
            return
        try:
            self.checkpoint_uri = _in_a_store(self.checkpoint_uri, "checkpoints are kept apart only in these")
        except ValueError as error:
            raise ValueError(f"checkpoint_uri: {error}") from None
        if overlap(self.root, self.checkpoint_uri):
            raise ValueError(
                f"checkpoint_uri: '{self.checkpoint_uri}' and the root '{self.root}' overlap: name a place outside the "
                "root, or leave checkpoint_uri out to keep checkpoints in their tables' folders"
            )

    def _check_endpoint(self) -> None:
        if self.endpoint and not _ENDPOINT.fullmatch(self.endpoint):
            raise ValueError("endpoint has to be a url without a path, such as https://minio.internal:9000")
        if self.endpoint.startswith("http://") and not self.allow_http:
            raise ValueError("endpoint is without TLS: use https, or set allow_http = true to send data unencrypted")

    def _check_s3(self) -> None:
        if not self.region and not self.endpoint:
            raise ValueError("region is missing: give one, or an endpoint, for which region is us-east-1 by default")
        self.region = self.region or "us-east-1"
        given = self.references.keys() & _S3_KEYS
        if given and not {"access_key_id", "secret_access_key"} <= given:
            raise ValueError("access_key_id and secret_access_key belong together: give both")
        self._check_one(bool(given), bool(self.profile), self.anonymous)
        if self.profile_file and not self.profile:
            raise ValueError("profile_file needs profile: give the name of the profile to use")

    def _check_gs(self) -> None:
        self._check_one(self.token is not None, self.anonymous)

    def _check_abfss(self) -> None:
        client = bool(self.tenant_id), bool(self.client_id), self.client_secret is not None
        if any(client) and not all(client):
            raise ValueError("tenant_id, client_id and client_secret belong together: give all three")
        self._check_one(self.account_key is not None, self.sas_token is not None, any(client))

    def _check_one(self, *ways: bool) -> None:
        if sum(ways) > 1:
            raise ValueError("there is more than one kind of credentials: give one")


def overlap(place: str, other: str) -> bool:
    """Return whether two places are the same, or one is below the other."""
    first, second = f"{place}/", f"{other}/"
    return first.startswith(second) or second.startswith(first)


def _in_a_store(place: str, why: str) -> str:
    """Return the canonical form of a place in an object store. Raises ValueError for any other place."""
    try:
        found = canonical_database(place)
    except InvalidArgument as error:
        raise ValueError(error.message) from None
    if not in_object_store(found):
        raise ValueError(f"'{found}' is not in an object store: {why}")
    return found


class Content(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    store: list[Store] = []


_LOOK_SECONDS = 1.0
#: For how long after a change a refused request may be one that began with the old options.
_NEW_SECONDS = 30.0
#: How often to read files that change during the read.
_TRIES = 5
_Signature = tuple[tuple[int, ...] | None, ...]
_SETTING = "LEMAN_STORAGE__OPTIONS_FILE"
_PROFILES = "~/.aws/credentials"
#: Options that are copied from the file.
_PLAIN = (
    *("root", "endpoint", "allow_http", "region", "virtual_hosted", "anonymous", "tenant_id", "client_id"),
    "checkpoint_uri",
)
#: The name of each option in a profile.
_IN_PROFILE = {
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "session_token": "aws_session_token",
}

_log = structlog.get_logger(__name__)


class StoreFile:
    """The options in a file; see `leman_core.storage.object_stores.StoreSource`.

    If the file becomes unreadable or invalid, the last valid options stay in force, and the log reports it.

    Raises:
        InvalidArgument: BAD_SETTING – the file is unreadable or invalid at the start.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._looked_at = clock()
        self._renewed_at: dict[str, float] = {}
        self._stores, self._files, self._seen = _read_at_rest(path)

    def stores(self) -> tuple[StoreOptions, ...]:
        """Return the options in the files. They are at most a second old."""
        if self._clock() - self._looked_at >= _LOOK_SECONDS and self._lock.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._lock.release()
        return self._stores

    def was_renewed(self, options: StoreOptions) -> bool:
        """Return whether the options of this root have changed within the last half minute."""
        with self._lock:
            self._look()
        return self._clock() - self._renewed_at.get(options.root, -_NEW_SECONDS) < _NEW_SECONDS

    def _look(self) -> None:
        self._looked_at = self._clock()
        seen = _signature(self._files)
        if seen == self._seen:
            return
        self._seen = seen
        before = self._stores
        try:
            self._stores, self._files, self._seen = _read_at_rest(self._path)
        except InvalidArgument as error:
            _log.warning("options of object stores not reread: the last ones stay in force", why=error.message)
        else:
            self._renewed_at |= dict.fromkeys((s.root for s in self._stores if s not in before), self._looked_at)
            _log.info("options of object stores reread", roots=[store.root for store in self._stores])


def use_store_file(path: str) -> None:
    """Configure this process's object stores from a file. Call it before anything in the process starts.

    If `path` is empty, the environment configures them.

    Environment variables that the file names are removed from the environment, so that child processes do not inherit
    their secrets.

    Raises:
        InvalidArgument: BAD_SETTING.
    """
    if path:
        object_stores.set_store_source(StoreFile(path))


def forget_store_file() -> None:
    """Forget all options of object stores, and remove the variables that the options file names from the environment.

    For processes that need no object store and fork others, such as those that run functions.
    """
    for name in variables_in(os.environ.get(_SETTING, "")):
        process_secrets.take_secret_env(name)
    process_secrets.forget_secret_env()
    object_stores.set_store_source(object_stores.GivenStores())


def variables_in(path: str) -> frozenset[str]:
    """Return the environment variables that an options file names; none if the file cannot be read."""
    try:
        stores = _parsed(path) if path else []
    except InvalidArgument:
        return frozenset()
    return frozenset(given.env for store in stores for given in store.references.values() if given.env)


def _read_at_rest(path: str) -> tuple[tuple[StoreOptions, ...], tuple[str, ...], _Signature]:
    """Return what `_read` does, and the files' signature, which is empty if they kept changing during the reads."""
    before: _Signature = ()
    for _ in range(_TRIES):
        stores, files = _read(path)
        seen = _signature(files)
        if seen == before:
            return stores, files, seen
        before = seen
    return stores, files, ()  # the files may not match each other, so `_look` reads them again next time


def _read(path: str) -> tuple[tuple[StoreOptions, ...], tuple[str, ...]]:
    """Return the options, and the names of the files that they were read from."""
    stores = _parsed(path)
    files = {path: None}
    for store in stores:
        files |= dict.fromkeys(given.file for given in store.references.values() if given.file)
        if store.profile:
            files[_profiles_of(store)] = None
    roots = [store.root for store in stores]
    twice = sorted({root for root in roots if roots.count(root) > 1})
    if twice:
        raise _bad(path, f"{', '.join(twice)}: a root has more than one entry; keep one")
    _check_apart(path, stores)
    return tuple(_options(path, store) for store in stores), tuple(files)


def _check_apart(path: str, stores: list[Store]) -> None:
    """Refuse overlapping places of checkpoints, in which two tables could get the same folder."""
    for one, other in itertools.combinations((store for store in stores if store.checkpoint_uri), 2):
        if overlap(one.checkpoint_uri, other.checkpoint_uri):
            raise _bad(
                path,
                f"checkpoint_uri of {one.root} and of {other.root}: '{one.checkpoint_uri}' and "
                f"'{other.checkpoint_uri}' overlap. Give each a separate place",
            )


def _parsed(path: str) -> list[Store]:
    try:
        return Content.model_validate(tomllib.loads(Path(path).read_text(encoding="utf-8"))).store
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        wrong = str(error)
    raise _bad(path, wrong)


def _options(path: str, store: Store) -> StoreOptions:
    try:
        secrets = {name: _value(given) for name, given in store.references.items()}
        if store.profile:
            secrets = _profile(store)
    except configparser.Error as error:  # the message quotes the line, which may contain a secret
        line = f" in line {error.lineno}" if isinstance(error, configparser.MissingSectionHeaderError) else ""
        wrong = f"{_profiles_of(store)} is not a file of profiles ({type(error).__name__}{line})"
        raise _bad(path, f"credentials of {store.root} cannot be read: {wrong}") from None
    except (OSError, ValueError) as error:
        raise _bad(path, f"credentials of {store.root} cannot be read: {error}") from None
    if secrets.get("access_key_id") and not secrets.get("session_token") and os.environ.get("AWS_SESSION_TOKEN"):
        raise _bad(path, f"AWS_SESSION_TOKEN is set, and Lance would send it with the keys of {store.root}: unset it")
    given: dict[str, Any] = {name: getattr(store, name) for name in _PLAIN}
    given |= secrets
    return StoreOptions(**given)


def _value(given: Reference) -> str:
    if given.file:
        value = Path(given.file).read_text(encoding="utf-8").strip()
        if not value:
            raise ValueError(f"{given.file} is empty")
        return value
    found = process_secrets.take_secret_env(given.env)
    if not found:
        raise ValueError(f"the environment variable {given.env} is not set")
    return found


def _profiles_of(store: Store) -> str:
    return str(Path(store.profile_file or _PROFILES).expanduser())


def _profile(store: Store) -> dict[str, str]:
    place = _profiles_of(store)
    profiles = configparser.RawConfigParser()
    profiles.read_string(Path(place).read_text(encoding="utf-8"))
    if not profiles.has_section(store.profile):
        raise ValueError(f"{place} has no profile '{store.profile}'")
    found = {name: profiles.get(store.profile, key, fallback="") for name, key in _IN_PROFILE.items()}
    if not found["access_key_id"] or not found["secret_access_key"]:
        raise ValueError(f"profile '{store.profile}' of {place} has no aws_access_key_id or no aws_secret_access_key")
    return found


def _signature(files: tuple[str, ...]) -> _Signature:
    """Return numbers for each file that change with its content; None for a missing file."""
    return tuple(_state(file) for file in files)


def _state(file: str) -> tuple[int, ...] | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _bad(path: str, wrong: str) -> InvalidArgument:
    return InvalidArgument("BAD_SETTING", f"The file {path} of {_SETTING} cannot be used: {wrong}")
