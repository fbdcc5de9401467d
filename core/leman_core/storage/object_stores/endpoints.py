"""Where the store of a place answers, as far as settings and environment say."""

from __future__ import annotations

import os

from leman_core.storage.object_stores.known import options_of

#: Where pyarrow and Lance look for an endpoint of S3 that no options name.
_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def endpoint_of(place: str) -> str:
    """Return the url that options or environment give for the store of a place; empty: the provider's own."""
    options = options_of(place)
    endpoint = options.endpoint if options is not None else ""
    return endpoint or next((os.environ[name] for name in _VARIABLES if os.environ.get(name)), "")
