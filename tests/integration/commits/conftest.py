"""What tests of commits share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.commits.commit_helpers import Table, make_table
from tests.integration.commits.view_commit_helpers import View


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Four fragments of ten rows, with an empty computed column `c`."""
    return make_table(str(tmp_path / "t.lance"))


@pytest.fixture
def view(tmp_path: Path) -> View:
    """A view and its source, neither of which is made yet."""
    return View(str(tmp_path))
