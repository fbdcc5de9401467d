"""What tests of the SDK share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import leman
from tests.unit.clients.fake_services import FakeLeman


@pytest.fixture
def fake() -> Iterator[FakeLeman]:
    """Services that answer what a test tells them to."""
    server = FakeLeman()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def db(fake: FakeLeman, tmp_path: Path) -> Iterator[leman.Database]:
    """A database that they serve."""
    with leman.connect(tmp_path, fake.address) as database:
        yield database
