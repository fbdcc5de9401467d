"""The histories of `tests/integration/stateful` over a table in an object store, also in a far and unreliable one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from benchmarks.delaying_proxy import DelayingProxy, Harm
from core.domain.store import StoreOptions
from core.stores import known
from tests.integration.stateful.test_machine import LONG, Machine, run
from tests.object_store.options import FAR, FAR_SECONDS
from tests.object_store.store_server import BUCKET, KEY_ID, SECRET, StoreServer


class StoreMachine(Machine):
    """Its table, checkpoints and functions lie in the store."""

    def place(self) -> str:
        """A database of its own for each history."""
        return f"s3://{BUCKET}/machine-{uuid.uuid4().hex}"


@pytest.fixture
def proxy(store: StoreServer) -> Iterator[DelayingProxy]:
    """What this process reaches the store by."""
    with DelayingProxy(store.port) as running:
        reached = StoreOptions(
            root=f"s3://{BUCKET}",
            endpoint=f"http://127.0.0.1:{running.port}",
            allow_http=True,
            region="us-east-1",
            access_key_id=KEY_ID,
            secret_access_key=SECRET,
        )
        known.use(known.GivenStores([reached]))
        yield running
        known.use(known.GivenStores())


@pytest.mark.timeout(3600 if LONG else 300)
def test_histories_in_a_store_agree_with_the_oracle(proxy):
    assert run(StoreMachine, 40 if LONG else 2, 8) >= 0.5
    assert proxy.requests.total() > 100, "the table is in the store"


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_histories_in_a_far_and_unreliable_store_agree_with_the_oracle(proxy):
    proxy.harm, proxy.delay_seconds = FAR, FAR_SECONDS
    try:
        assert run(StoreMachine, 3, 6) >= 0.5
    finally:
        proxy.harm, proxy.delay_seconds = Harm(), 0.0
