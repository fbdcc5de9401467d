"""A store that does not answer is no damage, and no empty history: nothing is set aside, dropped or started again."""

from __future__ import annotations

from unittest import mock

import lance
import pyarrow as pa
import pytest

from leman_core.model.service_errors import Unavailable
from leman_core.storage import append_log, documents
from leman_core.storage.append_log import AppendLog
from leman_core.storage.database_registry import DatabaseRegistry
from leman_core.storage.storage_errors import store_failed

BUSY = "LanceError(IO): Generic S3 error: Error performing GET http://s/b in 9s, after 10 retries - 503 Slow Down"
SCHEMA = pa.schema([("x", pa.int64())])


@pytest.mark.parametrize(
    ("said", "is_failure"),
    [
        (BUSY, True),
        ("LanceError(IO): Generic GCS error: error sending request for url (https://s)", True),
        ("When reading 'k' in bucket 'b': AWS Error SLOW_DOWN during GetObject operation: Slow down", True),
        ("google::cloud::Status(UNAVAILABLE: Retry policy exhausted)", True),
        ("[Errno 5] Input/output error (os error 5)", True),
        ("[Errno 2] No such file (os error 2)", False),
        ("LanceError(IO): Generic S3 error: Wanted range starting at 90, but object was only 20 bytes long", False),
        ("LanceError(IO): failed to decode Protobuf message: buffer underflow", False),
        ("Lance panicked: index out of bounds", False),
        ("AWS Error NO_SUCH_KEY during GetObject operation: none", False),
        ("AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation: none", True),
    ],
)
def test_what_says_something_about_the_bytes_is_told_from_what_does_not(said, is_failure):
    assert store_failed(OSError(said)) is is_failure


@pytest.fixture
def log(tmp_path):
    """A log that repairs, with ten rows."""
    log = AppendLog(str(tmp_path / "log.lance"), SCHEMA, repairs=True, ordered=True, compact_after=0)
    log.create()
    log.append([{"x": n} for n in range(10)])
    return log


def broken(*_: object, **__: object) -> None:
    raise ValueError(BUSY)


def test_versions_that_the_store_does_not_give_are_not_set_aside(tmp_path, log, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(append_log, "open_checked", broken)
        patched.setattr(append_log, "open_version", broken)
        with pytest.raises(Unavailable, match="503") as refused:
            log.read()
        assert refused.value.reason == "STORE_UNAVAILABLE"
        with pytest.raises(Unavailable):
            log.create()
    assert not (tmp_path / "damaged").exists()
    assert len(log.read()) == 10


def test_versions_that_fail_one_after_the_other_are_not_set_aside_either(tmp_path, log, monkeypatch):
    """The first error tells damage, the next ones that the store does not answer."""
    with monkeypatch.context() as patched:
        damaged = mock.Mock(side_effect=ValueError("no Protobuf"))
        patched.setattr(append_log, "open_checked", damaged)
        patched.setattr(append_log, "open_version", broken)
        with pytest.raises(Unavailable, match="503"):
            log.read()
    assert not (tmp_path / "damaged").exists()
    assert len(log.read()) == 10


def test_rows_that_the_store_does_not_give_are_not_dropped(log, monkeypatch):
    snapshot = log.snapshot()
    (fragment_id,) = snapshot.fragments.values()
    with monkeypatch.context() as patched:
        patched.setattr(lance.LanceFragment, "take", broken)
        with pytest.raises(Unavailable, match="503"):
            log.salvage(snapshot, fragment_id, Unavailable("STORE_UNAVAILABLE", "it was so"), lambda _row: True)
    assert len(log.read()) == 10


def test_a_registry_that_cannot_be_listed_is_not_an_empty_one(tmp_path, monkeypatch):
    def unlisted(_uri: str) -> bool:
        raise OSError("AWS Error SLOW_DOWN during ListObjectsV2 operation: Slow down")

    monkeypatch.setattr(documents, "has_versions", unlisted)
    with pytest.raises(Unavailable) as refused:
        DatabaseRegistry(str(tmp_path)).read()
    assert refused.value.reason == "STORE_UNAVAILABLE"
