"""An entry of the file of object stores, and what makes it wrong; see `leman_core.storage.object_stores.store_file`."""

from __future__ import annotations

import re
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from leman_core.model.errors import InvalidArgument
from leman_core.storage.locations import canonical_database, in_object_store

_ENDPOINT = re.compile(r"https?://[^/\s@]+")
#: What an entry may say, by the store that its root lies in; beside those of all.
_S3_KEYS = frozenset({"access_key_id", "secret_access_key", "session_token"})
_OWN = {
    "s3": _S3_KEYS | {"region", "virtual_hosted", "anonymous", "profile", "profile_file"},
    "gs": frozenset({"token", "anonymous"}),
    "abfss": frozenset({"account_key", "sas_token", "tenant_id", "client_id", "client_secret"}),
}
_COMMON = frozenset({"root", "endpoint", "allow_http", "checkpoint_uri"})


class Reference(BaseModel):
    """Where a secret stands."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    env: str = ""
    file: str = ""

    @model_validator(mode="before")
    @classmethod
    def _no_secret(cls, given: object) -> object:
        if not isinstance(given, dict):
            raise ValueError('a secret does not stand in this file: write { env = "NAME" } or { file = "/path" }')
        return given

    @model_validator(mode="after")
    def _one(self) -> Self:
        if bool(self.env) == bool(self.file):
            raise ValueError("give env or file")
        return self


class Store(BaseModel):
    """An entry."""

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
            raise ValueError(f"{', '.join(sorted(alien))}: no options of {scheme}://")
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
                f"checkpoint_uri: '{self.checkpoint_uri}' and the root '{self.root}' lie within each other: name a "
                "place beside the root, or leave it out, and checkpoints lie in their tables' folders"
            )

    def _check_endpoint(self) -> None:
        if self.endpoint and not _ENDPOINT.fullmatch(self.endpoint):
            raise ValueError("endpoint is a url without a path, such as https://minio.internal:9000")
        if self.endpoint.startswith("http://") and not self.allow_http:
            raise ValueError("endpoint is without TLS: set allow_http = true if that is meant")

    def _check_s3(self) -> None:
        if not self.region and not self.endpoint:
            raise ValueError("region is missing; only with an endpoint it may be left out, and is us-east-1 then")
        self.region = self.region or "us-east-1"
        given = self.references.keys() & _S3_KEYS
        if given and not {"access_key_id", "secret_access_key"} <= given:
            raise ValueError("access_key_id and secret_access_key belong together")
        self._check_one(bool(given), bool(self.profile), self.anonymous)
        if self.profile_file and not self.profile:
            raise ValueError("profile_file needs profile")

    def _check_gs(self) -> None:
        self._check_one(self.token is not None, self.anonymous)

    def _check_abfss(self) -> None:
        client = bool(self.tenant_id), bool(self.client_id), self.client_secret is not None
        if any(client) and not all(client):
            raise ValueError("tenant_id, client_id and client_secret belong together")
        self._check_one(self.account_key is not None, self.sas_token is not None, any(client))

    def _check_one(self, *ways: bool) -> None:
        if sum(ways) > 1:
            raise ValueError("there is more than one kind of credentials: give one")


def overlap(place: str, other: str) -> bool:
    """Tell whether two places are one, or one lies below the other."""
    first, second = f"{place}/", f"{other}/"
    return first.startswith(second) or second.startswith(first)


def _in_a_store(place: str, why: str) -> str:
    """Return the canonical form of a place in an object store. Raises ValueError where it is none."""
    try:
        found = canonical_database(place)
    except InvalidArgument as error:
        raise ValueError(error.message) from None
    if not in_object_store(found):
        raise ValueError(f"'{found}' lies in no object store: {why}")
    return found


class Content(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    store: list[Store] = []
