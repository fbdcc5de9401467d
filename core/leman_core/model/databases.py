"""Registered databases, and the access to the object stores that contain them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from leman_core.model.service_errors import DataLoss, NotFound, UnknownFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """The access to everything below a root. Empty fields use the defaults of Lance and pyarrow.

    Its credentials are not encrypted. So it is kept in memory and sent to workers, but never stored or logged.
    """

    #: A canonical location, such as `s3://bucket/teams`.
    root: str
    #: Url of the store's server, without a path.
    endpoint: str = ""
    #: Whether connections without TLS are allowed.
    allow_http: bool = False
    #: S3: the region for signing requests.
    region: str = ""
    #: S3: whether the bucket is part of the host's name.
    virtual_hosted: bool = False
    #: S3, Google Cloud Storage: whether requests are not signed.
    anonymous: bool = False
    #: S3.
    access_key_id: str = field(repr=False, default="")
    secret_access_key: str = field(repr=False, default="")
    session_token: str = field(repr=False, default="")
    #: Google Cloud Storage: an OAuth 2.0 access token.
    token: str = field(repr=False, default="")
    #: Azure.
    account_key: str = field(repr=False, default="")
    sas_token: str = field(repr=False, default="")
    tenant_id: str = ""
    client_id: str = ""
    client_secret: str = field(repr=False, default="")
    #: The canonical location of checkpoints of the tables below the root; empty: next to each table.
    checkpoint_uri: str = ""

    @property
    def scheme(self) -> str:
        return self.root.partition("://")[0]

    def covers(self, uri: str) -> bool:
        """Return whether a URI is the root or is below the root."""
        return uri == self.root or uri.startswith(f"{self.root}/")


@dataclass(frozen=True, slots=True)
class DatabaseLimits:
    """An executor's limits for the jobs of a database. None stands for the limit in the executor's settings."""

    max_running_jobs: int | None = None
    max_waiting_jobs: int | None = None


#: No limits.
NO_LIMITS = DatabaseLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredDatabase:
    """The registration of a database under a name. Times are seconds since the epoch."""

    name: str
    #: In canonical form.
    root: str
    description: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    limits: DatabaseLimits = NO_LIMITS
    created_at: float
    updated_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Registrations:
    """All registered databases at one moment."""

    by_name: Mapping[str, RegisteredDatabase] = field(default_factory=dict)
    #: Names with a damaged registration.
    damaged: frozenset[str] = frozenset()
    #: Names whose registration another release wrote.
    unknown: Mapping[str, UnknownFormat] = field(default_factory=dict)

    def get(self, name: str) -> RegisteredDatabase:
        """Return the registration of a name.

        Raises:
            NotFound: DATABASE_NOT_REGISTERED.
            DataLoss: REGISTRATION_DAMAGED.
            UnknownFormat: FORMAT_TOO_NEW.
        """
        if name in self.damaged:
            raise DataLoss("REGISTRATION_DAMAGED", describe_damage(name), name=name)
        if name in self.unknown:
            raise self.unknown[name]
        found = self.by_name.get(name)
        if found is None:
            raise NotFound(
                "DATABASE_NOT_REGISTERED",
                f"No database is registered as '{name}': check the name, register it, or give a path or uri",
                name=name,
            )
        return found

    def name_of(self, root: str) -> str:
        """Return the name of the database with that root; empty if it is not registered."""
        return next((database.name for database in self.by_name.values() if database.root == root), "")


def describe_damage(name: str) -> str:
    """Return the error text of a damaged registration."""
    return f"The registration of database '{name}' is damaged: register the database again"


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    """A caller's request: its id, and the digest of its body."""

    request_id: str
    body: str
