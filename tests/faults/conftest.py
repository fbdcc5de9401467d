"""One embedded system for all fault tests, started again by the ones that end it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import leman
from tests.faults.lake import Evidence, Lake, settings


@pytest.fixture(scope="package")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Started by whoever connects first. The settings are in our own environment, as it is the SDK that starts it."""
    running = Lake(tmp_path_factory.mktemp("faults") / "lake")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings(running.armed).items():
            patch.setenv(name, value)
        yield running
        running.stop()


@pytest.fixture
def db(lake: Lake) -> Iterator[leman.Database]:
    with lake.connect() as database:
        yield database


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(tmp_path, tmp_path.name)
