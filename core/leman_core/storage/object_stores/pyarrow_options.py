"""What pyarrow calls the options of a store."""

from __future__ import annotations

import datetime
import functools
import os
from typing import Any

import pyarrow.fs as pafs

from leman_core.model.store import StoreOptions
from leman_core.storage.object_stores.lance_options import account_of

#: File systems that are kept: each keeps connections.
_KEPT = 64
#: pyarrow wants to know when a token ends. Who gave it gives another one in time.
_YEARS = datetime.timedelta(days=3650)
#: How often a request to S3 is sent again, after 25 ms and then twice as long each time, 3 s in all. pyarrow's own
#: strategy tries three times: with 7 failures in 100 requests a history was not read every few thousand.
_S3_RETRIES = 7


def filesystem_with(options: StoreOptions, uri: str) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a uri that the options cover, and the path in it.

    Raises:
        OSError: the storage of the uri cannot be used.
    """
    authority, _, path = uri.partition("://")[2].partition("/")
    container = authority.partition("@")[0]
    # one that another process has made does not outlive a fork
    return _made(options, authority, os.getpid()), f"{container}/{path}".rstrip("/")


@functools.lru_cache(_KEPT)
def _made(options: StoreOptions, authority: str, _process: int) -> pafs.FileSystem:
    return _MADE[options.scheme](options, authority)


def _s3(options: StoreOptions, _bucket: str) -> pafs.FileSystem:
    scheme, _, host = options.endpoint.partition("://")
    place: dict[str, Any] = {"endpoint_override": host, "scheme": scheme} if host else {}
    if host:  # many a server takes no body with its checksum behind it, or loses its place in the connection
        os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    return pafs.S3FileSystem(
        access_key=options.access_key_id or None,
        secret_key=options.secret_access_key or None,
        session_token=options.session_token or None,
        region=options.region,
        anonymous=options.anonymous,
        force_virtual_addressing=options.virtual_hosted,
        retry_strategy=pafs.AwsDefaultS3RetryStrategy(max_attempts=_S3_RETRIES),
        allow_delayed_open=True,  # a small file is one request, and not three
        **place,
    )


def _gs(options: StoreOptions, _bucket: str) -> pafs.FileSystem:
    scheme, _, host = options.endpoint.partition("://")
    given: dict[str, Any] = {"endpoint_override": host, "scheme": scheme} if host else {}
    if options.token:
        given["access_token"] = options.token
        given["credential_token_expiration"] = datetime.datetime.now(datetime.UTC) + _YEARS
    return pafs.GcsFileSystem(anonymous=options.anonymous, **given)


def _azure(options: StoreOptions, authority: str) -> pafs.FileSystem:
    scheme, _, host = options.endpoint.partition("://")
    place = {f"{service}_storage_{part}": value for service in ("blob", "dfs") for part, value in _parts(scheme, host)}
    return pafs.AzureFileSystem(
        account_of(authority),
        account_key=options.account_key or None,
        sas_token=f"?{options.sas_token}" if options.sas_token else None,
        tenant_id=options.tenant_id or None,
        client_id=options.client_id or None,
        client_secret=options.client_secret or None,
        **place,
    )


def _parts(scheme: str, host: str) -> tuple[tuple[str, str], ...]:
    return (("scheme", scheme), ("authority", host)) if host else ()


_MADE = {"s3": _s3, "gs": _gs, "abfss": _azure}
