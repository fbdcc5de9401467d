"""A log that somebody makes at the very moment when another one looks for it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from core.errors import Unavailable
from core.lance_io import append_log, damage
from core.lance_io.append_log import AppendLog

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

    monkeypatch.setattr(damage, "filesystem_of", lambda uri: (Making(), uri))
    assert damage.versions(str(Path(folder).parent)) == [(7, "_versions/7.manifest")]
