"""One embedded system for all fault tests, started again by the ones that end it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import leman
from tests.faults.lake import CallLog, Lake, armed_lake


@pytest.fixture(scope="package")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with armed_lake(tmp_path_factory.mktemp("faults")) as running:
        yield running


@pytest.fixture
def db(lake: Lake) -> Iterator[leman.Database]:
    with lake.connect() as database:
        yield database


@pytest.fixture
def call_log(tmp_path: Path) -> CallLog:
    return CallLog(tmp_path, tmp_path.name)
