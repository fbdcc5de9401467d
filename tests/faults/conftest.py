"""One embedded system for all fault tests but those that end it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import leman
from tests.faults.lake import Lake


@pytest.fixture(scope="package")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    running = Lake(tmp_path_factory.mktemp("faults") / "lake")
    running.start()
    yield running
    running.stop()


@pytest.fixture
def db(lake: Lake) -> Iterator[leman.Database]:
    """Found as a user finds it, so that it also finds it again."""
    with lake.connect() as database:
        yield database
