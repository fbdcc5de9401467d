"""What tests of workers share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.executor.executor_helpers import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A table, and what computes its fragments."""
    return Lab(tmp_path)
