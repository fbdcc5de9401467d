"""This process's options of object stores, the endpoint of each, and the options in Lance's terms.

Lance and pyarrow use the environment for a store that no options cover.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Protocol

from leman_core.model.databases import StoreOptions
from leman_core.storage.locations import in_object_store


class StoreSource(Protocol):
    """A source of options. Safe for threads."""

    def stores(self) -> tuple[StoreOptions, ...]:
        """Return the current options: credentials may have changed."""
        ...

    def was_renewed(self, options: StoreOptions) -> bool:
        """Check whether options differ from those that the store may have just refused."""
        ...


class GivenStores:
    """Fixed options, such as those that an executor sends to a worker."""

    def __init__(self, stores: Iterable[StoreOptions] = ()) -> None:
        self._stores = tuple(stores)

    def stores(self) -> tuple[StoreOptions, ...]:
        """Return them; see `StoreSource`."""
        return self._stores

    def was_renewed(self, options: StoreOptions) -> bool:  # noqa: ARG002
        """Return False; see `StoreSource`."""
        return False


_source: StoreSource = GivenStores()


def set_store_source(source: StoreSource) -> None:
    """Use this source from now on."""
    global _source  # noqa: PLW0603 -- it is the process's
    _source = source


def options_of(uri: str) -> StoreOptions | None:
    """Return the options of a uri: those with the longest root; None: no options cover it."""
    if not in_object_store(uri):
        return None
    found = [options for options in _source.stores() if options.covers(uri)]
    return max(found, key=lambda options: len(options.root), default=None)


def were_renewed(uri: str) -> bool:
    """Check whether the options of a uri changed: a refused request may have had old ones."""
    options = options_of(uri)
    return options is not None and _source.was_renewed(options)


def is_left_out(uri: str) -> bool:
    """Return whether a place in a store has no options although others have."""
    return in_object_store(uri) and bool(_source.stores()) and options_of(uri) is None


def options_for(uris: Iterable[str]) -> tuple[StoreOptions, ...]:
    """Return the options of the stores of these uris, without duplicates.

    A process that uses no other places needs no other options.
    """
    found = (options_of(uri) for uri in uris)
    return tuple(dict.fromkeys(options for options in found if options is not None))


def checkpoint_places() -> tuple[str, ...]:
    """Return the configured places of checkpoints outside of tables, without a trailing `/`."""
    return tuple(options.checkpoint_uri.rstrip("/") for options in _source.stores() if options.checkpoint_uri)


#: Variables in which pyarrow and Lance look for an endpoint of S3.
_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def endpoint_of(place: str) -> str:
    """Return the url of a place's store by options or environment; empty: the provider's own."""
    options = options_of(place)
    endpoint = options.endpoint if options is not None else ""
    return endpoint or next((os.environ[name] for name in _VARIABLES if os.environ.get(name)), "")


def lance_options(uri: str) -> dict[str, str] | None:
    """Return Lance's `storage_options` for a uri; None: none."""
    options = options_of(uri)
    if options is None:
        return None
    authority = uri.partition("://")[2].partition("/")[0]
    named = _NAMED[options.scheme](options, authority)
    return {name: value for name, value in named.items() if value}


def _s3(options: StoreOptions, bucket: str) -> dict[str, str]:
    return {
        "aws_access_key_id": options.access_key_id,
        "aws_secret_access_key": options.secret_access_key,
        "aws_session_token": options.session_token,
        "aws_region": options.region,
        "aws_endpoint": _hosted(options.endpoint, bucket) if options.virtual_hosted else options.endpoint,
        "aws_virtual_hosted_style_request": _true(options.virtual_hosted),
        "aws_skip_signature": _true(options.anonymous),
        "allow_http": _true(options.allow_http),
    }


def _hosted(endpoint: str, bucket: str) -> str:
    """Return the endpoint with the bucket in front of the host, which Lance then uses as it is."""
    scheme, _, host = endpoint.partition("://")
    return f"{scheme}://{bucket}.{host}" if host else ""


def _gs(options: StoreOptions, _bucket: str) -> dict[str, str]:
    return {
        "google_bearer_token": options.token,
        "google_base_url": options.endpoint,
        "google_skip_signature": _true(options.anonymous),
        "allow_http": _true(options.allow_http),
    }


def _azure(options: StoreOptions, authority: str) -> dict[str, str]:
    account = account_of(authority)
    return {
        "azure_storage_account_name": account,
        "azure_storage_account_key": options.account_key,
        "azure_storage_sas_token": options.sas_token,
        "azure_storage_tenant_id": options.tenant_id,
        "azure_storage_client_id": options.client_id,
        "azure_storage_client_secret": options.client_secret,
        "azure_storage_endpoint": f"{options.endpoint}/{account}" if options.endpoint else "",
        "allow_http": _true(options.allow_http),
    }


def account_of(authority: str) -> str:
    """Return the storage account in `container@account.dfs.core.windows.net`."""
    return authority.partition("@")[2].partition(".")[0]


def _true(is_so: bool) -> str:  # noqa: FBT001 -- the one thing that it says
    return "true" if is_so else ""


_NAMED = {"s3": _s3, "gs": _gs, "abfss": _azure}
