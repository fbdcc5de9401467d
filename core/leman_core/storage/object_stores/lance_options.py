"""What Lance calls the options of a store."""

from __future__ import annotations

from leman_core.model.store import StoreOptions
from leman_core.storage.object_stores.known import options_of


def lance_options(uri: str) -> dict[str, str] | None:
    """Return the `storage_options` with which Lance is to open what lies at a uri; None: it is told nothing."""
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
    """Return the endpoint with the bucket in front of the host: Lance takes it as it is then."""
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
