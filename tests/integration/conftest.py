"""What integration tests of several rooms share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.call_log import CallLog

if TYPE_CHECKING:
    from tests.integration.types.types_pipeline import Pipeline


@pytest.fixture
def call_log(tmp_path: Path) -> CallLog:
    """Gives functions that write down what they are called with."""
    return CallLog(tmp_path)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Planner, worker and commits in this process, over tables of its own."""
    from tests.integration.types.types_pipeline import Pipeline

    made = Pipeline(tmp_path_factory.mktemp("pipeline"))
    yield made
    made.close()
