"""One object store for all tests here; without one they are skipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.object_store.store_server import Program, StoreServer, serving


@pytest.fixture(scope="session")
def store(store_program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """A server that runs."""
    with serving(store_program, tmp_path_factory.mktemp("store") / "objects") as server:
        yield server
