"""Appends to a log in an object store by a version that is open: few requests, and never to a table that is gone."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from leman_core.model.service_errors import Unavailable
from leman_core.storage import object_stores
from leman_core.storage.append_log import AppendLog
from tests.unit.core.lance_io.small_store import known_store

URI = "s3://lake/_leman/jobs.lance"
SCHEMA = pa.schema([("said", pa.string())])


@pytest.fixture
def store():
    """A store that this process knows, which has a log without rows."""
    with known_store(atomic=True) as running:
        log().create()
        yield running


def log() -> AppendLog:
    return AppendLog(URI, SCHEMA, ordered=True)


def said(*texts: str) -> list[dict[str, object]]:
    return [{"said": text} for text in texts]


def texts() -> list[object]:
    return [row["said"] for row in log().read()]


def test_an_append_by_an_open_version_asks_five_requests(store):
    mine = log()
    base = mine.append(said("first"))
    before = store.requests
    base = mine.append(said("second"), base)
    assert store.requests - before == 5, "a listing, the rows, a listing, the transaction, the manifest"
    mine.append(said("third"), base)
    assert texts() == ["first", "second", "third"]


def test_what_others_appended_meanwhile_stays_and_comes_first(store):
    mine = log()
    base = mine.append(said("first"))
    log().append(said("of another executor"))
    assert mine.append(said("mine"), base).version == base.version + 2
    assert texts() == ["first", "of another executor", "mine"]


def test_rows_go_to_the_table_that_is_there_and_not_to_one_that_was_made_anew(store):
    """Under the number of the version that is open: only the manifest's ETag tells."""
    mine = log()
    base = mine.append(said("gone"))
    store.objects.clear()
    log().create()
    again = log().append(said("anew"))
    assert again.version == base.version
    mine.append(said("mine"), base)
    assert texts() == ["anew", "mine"]


def test_renewed_credentials_are_used(store):
    mine = log()
    base = mine.append(said("first"))
    given = object_stores.options_of(URI)
    assert given is not None
    object_stores.set_store_source(object_stores.GivenStores([replace(given, secret_access_key="renewed")]))
    assert base.append_in_store(pa.Table.from_pylist(said("old"), schema=SCHEMA)) is None
    mine.append(said("second"), base)
    assert texts() == ["first", "second"]


def test_a_store_that_does_not_answer_is_asked_once(store, monkeypatch):
    mine = log()
    base = mine.append(said("first"))

    def gone(*_: object) -> None:
        raise OSError("LanceError(IO): Generic S3 error: Error performing PUT in 1 s, after 10 retries")

    monkeypatch.setattr(type(base), "append_in_store", gone)
    monkeypatch.setattr(AppendLog, "_write", lambda *_: pytest.fail("it is asked again"))
    with pytest.raises(Unavailable) as refused:
        mine.append(said("lost"), base)
    assert refused.value.reason == "STORE_UNAVAILABLE"
