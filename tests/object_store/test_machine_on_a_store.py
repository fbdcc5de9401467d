"""The histories of `tests/integration/stateful` over a table in an object store, also in a far and unreliable one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from benchmarks.delaying_proxy import DelayingProxy, Harm
from tests.integration.stateful.test_machine import Machine, run
from tests.object_store import in_process
from tests.object_store.options import FAR, FAR_SECONDS
from tests.object_store.store_server import BUCKET, StoreServer


class StoreMachine(Machine):
    """Its table, checkpoints and functions lie in the store."""

    def place(self) -> str:
        """A database of its own for each history."""
        return f"s3://{BUCKET}/machine-{uuid.uuid4().hex}"


@pytest.fixture
def proxy(store: StoreServer) -> Iterator[DelayingProxy]:
    """What this process reaches the store by."""
    with in_process.reached(store) as running:
        yield running


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_histories_in_a_store_agree_with_the_oracle(proxy):
    assert run(StoreMachine, 40, 8) >= 0.5
    assert proxy.requests.total() > 100, "the table is in the store"


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_histories_in_a_far_and_unreliable_store_agree_with_the_oracle(proxy):
    proxy.harm, proxy.delay_seconds = FAR, FAR_SECONDS
    try:
        assert run(StoreMachine, 3, 6) >= 0.5
    finally:
        proxy.harm, proxy.delay_seconds = Harm(), 0.0
