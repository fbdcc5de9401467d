"""What tests of the planner share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.planner.planner_lake import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A database with a table and a function."""
    return Lake(tmp_path)
