"""What tests of jobs share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """An empty database."""
    (tmp_path / "_leman").mkdir()
    return tmp_path
