"""What is left of a table that was dropped under its jobs."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from leman_core.model import keys
from leman_core.storage import checkpoint_store
from leman_core.storage.checkpoint_store import remove_leftovers

COLUMN_FILE = keys.column_file_name("f" * 32, "a1", partial=False)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Checkpoints and a column file, and no table."""
    for file in ("_checkpoints/one.lance", f"data/{COLUMN_FILE}"):
        (tmp_path / "t.lance" / file).parent.mkdir(parents=True)
        (tmp_path / "t.lance" / file).touch()
    return tmp_path / "t.lance"


def files(place: Path) -> list[str]:
    return sorted(str(file.relative_to(place)) for file in place.rglob("*") if file.is_file())


def test_where_there_is_no_table_all_of_it_goes(place):
    remove_leftovers(str(place))
    assert not place.exists()
    remove_leftovers(str(place))


def test_where_there_is_a_table_nothing_goes(place):
    lance.write_dataset(pa.table({"n": [1]}), str(place))
    before = files(place)
    remove_leftovers(str(place))
    assert files(place) == before
    assert f"data/{COLUMN_FILE}" in before


def test_files_of_a_table_that_is_being_made_stay(place):
    (place / "data" / "0b1c.lance").touch()
    remove_leftovers(str(place))
    assert files(place) == ["data/0b1c.lance"]


def test_where_it_cannot_be_told_nothing_goes(place, monkeypatch):
    class Silent:
        """A store that does not answer."""

        def get_file_info(self, _paths: object) -> list[pafs.FileInfo]:
            raise OSError("no answer")

    monkeypatch.setattr(checkpoint_store, "filesystem_of", lambda uri: (Silent(), uri))
    before = files(place)
    with pytest.raises(OSError, match="no answer"):
        remove_leftovers(str(place))
    assert files(place) == before
