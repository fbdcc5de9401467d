"""Logs that others make, write to and replace while one looks."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from leman_core.model.service_errors import Unavailable
from leman_core.storage import append_log
from leman_core.storage.append_log import AppendLog

SCHEMA = pa.schema([("x", pa.int64())])


def test_a_place_for_versions_without_one_is_looked_at_again(tmp_path, monkeypatch):
    uri = tmp_path / "log.lance"
    (uri / "_versions").mkdir(parents=True)
    pauses: list[float] = []

    def somebody_makes_it(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            AppendLog(str(tmp_path / "made.lance"), SCHEMA).create()
            for made in (tmp_path / "made.lance" / "_versions").iterdir():
                made.rename(uri / "_versions" / made.name)

    monkeypatch.setattr(append_log.time, "sleep", somebody_makes_it)
    log = AppendLog(str(uri), SCHEMA)
    log.create()
    assert log.read(["x"]) == []
    assert len(pauses) == 2


def test_a_log_whose_versions_are_gone_is_none(tmp_path, monkeypatch):
    (tmp_path / "log.lance" / "_versions").mkdir(parents=True)
    monkeypatch.setattr(append_log.time, "sleep", lambda _: None)
    with pytest.raises(Unavailable):
        AppendLog(str(tmp_path / "log.lance"), SCHEMA).read(["x"])


def test_a_folder_that_is_made_while_it_is_listed_is_listed_again(tmp_path, monkeypatch):
    folder = tmp_path / "log.lance" / "_versions"
    folder.mkdir(parents=True)
    (folder / "7.manifest").touch()

    class Making:
        """pyarrow, where the folder appears between its two looks at it."""

        asked = 0

        def get_file_info(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
            self.asked += 1
            if self.asked == 1:
                raise FileNotFoundError(selector.base_dir)
            return pafs.LocalFileSystem().get_file_info(selector)  # type: ignore[no-any-return]

    monkeypatch.setattr(append_log, "filesystem_of", lambda uri: (Making(), uri))
    assert append_log.manifest_versions(str(Path(folder).parent)) == [(7, "_versions/7.manifest")]


def _written(uri: str, *values: int) -> AppendLog:
    log = AppendLog(uri, SCHEMA)
    log.create()
    for value in values:
        log.append([{"x": value}])
    return log


def _values(uri: str) -> list[object]:
    return [row["x"] for row in AppendLog(uri, SCHEMA).read()]


def test_an_append_goes_on_from_an_open_version_without_opening_the_table(tmp_path, monkeypatch):
    uri = str(tmp_path / "log.lance")
    log = _written(uri, 1)
    base = log.snapshot()
    monkeypatch.setattr(log, "_write", lambda _: pytest.fail("the table was opened"))
    written = log.append([{"x": 2}], base)
    log.append([{"x": 3}], written)
    assert _values(uri) == [1, 2, 3]


def test_an_append_to_an_open_version_keeps_what_others_appended_since(tmp_path):
    uri = str(tmp_path / "log.lance")
    log = _written(uri, 1)
    base = log.snapshot()
    assert base is not None
    AppendLog(uri, SCHEMA).append([{"x": 2}])
    written = log.append([{"x": 3}], base)
    assert _values(uri) == [1, 2, 3]
    assert written.version == base.version + 2


def test_an_append_to_an_open_version_of_a_table_that_was_made_anew_leaves_that_whole(tmp_path):
    uri = str(tmp_path / "log.lance")
    log = _written(uri, 1, 2)
    base = log.snapshot()
    assert base is not None
    shutil.rmtree(uri)
    _written(uri, 10, 20)
    assert lance.dataset(uri).version == base.version
    log.append([{"x": 30}], base)
    assert _values(uri) == [10, 20, 30]


def test_an_append_to_an_open_version_of_a_table_that_is_gone_makes_it_as_any_append_does(tmp_path):
    uri = str(tmp_path / "log.lance")
    log = _written(uri, 1)
    base = log.snapshot()
    shutil.rmtree(uri)
    log.append([{"x": 2}], base)
    assert _values(uri) == [2]
