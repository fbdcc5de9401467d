"""How an object store is reached: what services are told of it, and what their workers are given."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How everything below a root is reached. What is empty is as Lance and pyarrow find it by themselves.

    Credentials stand here as they are: it is kept in memory, and travels to workers, but is never stored or logged.
    """

    #: A place in its canonical form, such as `s3://bucket/teams`.
    root: str
    #: Url of the store's server, without a path.
    endpoint: str = ""
    #: Whether it may be spoken with without TLS.
    allow_http: bool = False
    #: S3: the region that requests are signed for.
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
    #: Where checkpoints of the tables below the root lie, in its canonical form; empty: beside each table.
    checkpoint_uri: str = ""

    @property
    def scheme(self) -> str:
        return self.root.partition("://")[0]

    def covers(self, uri: str) -> bool:
        """Tell whether a uri is the root, or lies below it."""
        return uri == self.root or uri.startswith(f"{self.root}/")
