"""One object store for all tests here; without one they are skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.object_store.store_server import MODULE, VARIABLE, StoreServer, program, serving


@pytest.fixture(scope="session")
def store_program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The server's program."""
    found = program(tmp_path_factory.mktemp("go-programs"), build=bool(os.environ.get("LEMAN_LONG")))
    if found is None:
        pytest.skip(f"no versitygw: put it on PATH, name it in {VARIABLE}, or LEMAN_LONG=1 builds {MODULE}")
    return found


@pytest.fixture(scope="session")
def store(store_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """A server that runs."""
    with serving(store_program, tmp_path_factory.mktemp("store")) as server:
        yield server
