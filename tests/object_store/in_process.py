"""An object store that this process reaches by itself, without services."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from benchmarks.delaying_proxy import DelayingProxy
from leman_core.model.databases import StoreOptions
from leman_core.storage import object_stores
from tests.object_store.store_server import BUCKET, KEY_ID, SECRET, StoreServer


@contextlib.contextmanager
def reached(store: StoreServer) -> Iterator[DelayingProxy]:
    """Give this process the store's options, by way of a proxy that counts."""
    with DelayingProxy(store.port) as running:
        options = StoreOptions(
            root=f"s3://{BUCKET}",
            endpoint=f"http://127.0.0.1:{running.port}",
            allow_http=True,
            region="us-east-1",
            access_key_id=KEY_ID,
            secret_access_key=SECRET,
        )
        object_stores.set_store_source(object_stores.GivenStores([options]))
        try:
            yield running
        finally:
            object_stores.set_store_source(object_stores.GivenStores())
