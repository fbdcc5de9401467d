"""The latest version of a table is found while others clean up."""

from datetime import timedelta

import lance
import pyarrow as pa
import pytest

from leman_core.model.service_errors import NotFound
from leman_core.storage import opening
from leman_core.storage.opening import has_versions, open_latest
from leman_core.storage.scan import reading_row_ids


@pytest.fixture
def calls(monkeypatch):
    """What Lance was asked to open."""
    asked, opened = [], lance.dataset

    def dataset(uri, **options):
        asked.append(uri)
        return opened(uri, **options)

    monkeypatch.setattr(opening.lance, "dataset", dataset)
    return asked


def table_of(path, rows=1):
    return lance.write_dataset(pa.table({"x": list(range(rows))}), path, mode="append" if rows > 1 else "create")


def test_a_version_that_is_cleaned_away_while_it_is_opened_is_looked_for_again(tmp_path, monkeypatch):
    uri = str(tmp_path / "t.lance")
    table_of(uri)
    opened, asked = lance.dataset, []

    def dataset(_uri, **_options):
        """Lance saw version 1 in the listing; then others wrote version 2 and cleaned up."""
        asked.append(uri)
        if len(asked) > 1:
            return opened(uri)
        table_of(uri, rows=2).cleanup_old_versions(timedelta(0), retain_versions=1)
        return opened(uri, version=1)

    monkeypatch.setattr(opening.lance, "dataset", dataset)
    assert open_latest(uri).version == 2
    assert len(asked) == 2


def test_a_table_that_does_not_exist_is_looked_for_once(tmp_path, calls):
    with pytest.raises(ValueError, match="was not found"):
        open_latest(str(tmp_path / "none.lance"))
    assert len(calls) == 1
    assert not has_versions(str(tmp_path / "none.lance"))


def test_a_table_that_cannot_be_read_is_not_tried_for_ever(tmp_path, calls):
    uri = tmp_path / "t.lance"
    table_of(str(uri))
    for manifest in (uri / "_versions").glob("*.manifest"):
        manifest.write_bytes(b"nonsense")
    with pytest.raises((ValueError, OSError)):
        open_latest(str(uri))
    assert 1 < len(calls) < 10


def test_row_ids_of_a_version_that_was_cleaned_up_are_not_damaged(tmp_path):
    """Another program may compact and clean up a table while its rows are read: a new plan does not need the files."""
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"id": range(20)}), uri, enable_stable_row_ids=True, max_rows_per_file=5)
    lance.dataset(uri).delete("id % 5 = 1")
    old = lance.dataset(uri)
    lance.dataset(uri).update({"id": "id + 100"}, where="id % 5 = 2")
    lance.dataset(uri).optimize.compact_files()
    lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
    scanners = [one.scanner(columns=[], with_row_id=True, include_deleted_rows=True) for one in old.get_fragments()]
    with pytest.raises(NotFound) as refused, reading_row_ids(uri, old.version):
        [scanner.to_table() for scanner in scanners]
    assert refused.value.reason == "VERSION_NOT_FOUND"
