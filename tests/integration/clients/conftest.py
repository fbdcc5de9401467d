"""What the first pages of the clients ask for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from tests.conftest import System


@pytest.fixture
def beside_lake(system: System, tmp_path: Path) -> Iterator[Path]:
    """A folder as it is after `leman up lake` there. Tables that are made in the lake go again."""
    (tmp_path / "lake").symlink_to(system.database)
    with system.connect(system.database) as database:
        before = database.table_names()
        yield tmp_path
        for name in set(database.table_names()) - set(before):
            database.drop_table(name)


def first_program(page: Path, language: str) -> tuple[str, str]:
    """The first program of a page, and what it prints, as the page says."""
    shown = re.search(rf"```{language}\n(.*?)```.*?\bprints\n\n```\n(.*?)```", page.read_text(), re.DOTALL)
    assert shown is not None
    return shown[1], shown[2]


def large_value(lake: Path) -> str:
    """Make a table of two values, the first of which has 300 MB, and return its name."""
    lake.mkdir(exist_ok=True)
    values = pa.array([b"x" * 300_000_000, b"x"], pa.large_binary())
    lance.write_dataset(pa.table({"b": values}), lake / "large.lance", enable_stable_row_ids=True)
    return "large"
