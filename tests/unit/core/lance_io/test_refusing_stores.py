"""A bucket that is not there and credentials that a store refuses are said at once, and are no empty database."""

from __future__ import annotations

from collections import defaultdict

import pytest

from leman_core.model.service_errors import FailedPrecondition, Unavailable
from leman_core.storage import error_translation, filesystems, object_stores, storage_errors, table_creation
from leman_core.storage.database_registry import DatabaseRegistry
from leman_core.storage.lance_tables import LanceTables, database_exists
from leman_core.storage.store_file import StoreFile
from leman_core.storage.table_creation import check_conditional_puts
from leman_core.storage.udf_registry import UdfRegistry
from tests.unit.core.lance_io.small_store import known_store

ASKED = {
    "tables": lambda db: LanceTables().list_tables(db),
    "table": lambda db: LanceTables().snapshot(f"{db}/t.lance"),
    "database": database_exists,
    "before the first write": check_conditional_puts,
    "functions": lambda db: UdfRegistry(db).list(),
    "names": lambda db: DatabaseRegistry(db).read(),
}
#: Lance asks some more times, for two seconds: these go to it, and the others are answered at the first request.
THROUGH_LANCE = {"table", "names"}
SENTENCE = "The signature that we calculated is another one."


@pytest.fixture(scope="module")
def running():
    """A store that knows one bucket."""
    with known_store() as running:
        yield running


@pytest.fixture
def store(running, monkeypatch):
    """The same, of which nothing is known yet."""
    monkeypatch.setattr(table_creation, "_stores", defaultdict(table_creation._Known))
    yield running
    running.refusal = None


@pytest.mark.parametrize("name", ASKED)
def test_a_bucket_that_is_not_there_is_said(store, name):
    before = store.requests
    with pytest.raises(FailedPrecondition, match=f"no bucket nobucket at {store.endpoint}:") as refused:
        ASKED[name]("s3://nobucket/a")
    assert refused.value.reason == "STORAGE_MISSING"
    assert store.requests - before <= (20 if name in THROUGH_LANCE else 4)


@pytest.mark.parametrize("name", ASKED)
def test_credentials_that_a_store_refuses_are_said_with_what_it_says(store, name):
    store.refusal = (403, "SignatureDoesNotMatch", SENTENCE)
    with pytest.raises(
        FailedPrecondition, match="credentials of root s3://lake in LEMAN_STORAGE__OPTIONS_FILE"
    ) as refused:
        ASKED[name]("s3://lake/a")
    assert refused.value.reason == "STORAGE_DENIED"
    assert SENTENCE in refused.value.message


@pytest.mark.parametrize("name", ASKED)
def test_credentials_that_were_renewed_meanwhile_are_worth_another_try(store, name, tmp_path, monkeypatch):
    """A request that began before, or a file that was opened before, is refused: the next one has the new ones."""
    secret, file = tmp_path / "secret", tmp_path / "storage.toml"
    secret.write_text("old")
    file.write_text(
        f"""[[store]]
root = "s3://lake"
endpoint = "{store.endpoint}"
allow_http = true
access_key_id = {{ file = "{file.with_name("id")}" }}
secret_access_key = {{ file = "{secret}" }}
"""
    )
    file.with_name("id").write_text("k")
    monkeypatch.setattr(object_stores, "_source", StoreFile(str(file)))
    store.refusal = (403, "ExpiredToken", SENTENCE)
    with pytest.raises(FailedPrecondition):
        ASKED[name]("s3://lake/a")
    secret.write_text("a new one")
    with pytest.raises(Unavailable, match=r"credentials that were renewed a moment ago.*ExpiredToken") as refused:
        ASKED[name]("s3://lake/a")
    assert refused.value.reason == "STORE_UNAVAILABLE"


@pytest.mark.parametrize("name", ["tables", "database", "functions", "before the first write"])
@pytest.mark.parametrize(("status", "code"), [(400, "AuthorizationHeaderMalformed"), (301, "PermanentRedirect")])
def test_a_region_that_is_another_one_is_said_and_not_waited_for(store, status, code, name):
    store.refusal = (status, code, "The region &#34;a&#34; is wrong; expecting 'b'")
    with pytest.raises(
        FailedPrecondition, match=f"{code}.*region [^&]*a[^&]* is wrong.*expecting 'b'.*or the region"
    ) as refused:
        ASKED[name]("s3://lake/a")
    assert refused.value.reason == "STORAGE_DENIED"


@pytest.mark.parametrize("name", ["tables", "database", "functions"])
def test_an_empty_bucket_is_no_error(store, name):
    assert not ASKED[name]("s3://lake/a")


class Unreached:
    """In the place of `pyarrow.fs`: no name can be resolved, which takes it six seconds."""

    def __init__(self) -> None:
        self.FileSystem = self
        self.asked: list[str] = []
        self.seconds = 100.0

    def from_uri(self, uri: str) -> None:
        self.asked.append(uri)
        self.seconds += 6
        raise OSError("When resolving region for bucket 'b': AWS Error NETWORK_CONNECTION: Could not resolve hostname")


def test_a_bucket_that_no_root_holds_for_is_looked_for_once_and_said_to_be(monkeypatch):
    """A call that opens many files does not wait as often."""
    unreached = Unreached()
    monkeypatch.setattr(filesystems, "pafs", unreached)
    monkeypatch.setattr(filesystems.time, "monotonic", lambda: unreached.seconds)
    monkeypatch.setattr(object_stores, "_source", object_stores.GivenStores())
    monkeypatch.setattr(filesystems, "_unreached", {})
    said = "no root in LEMAN_STORAGE__OPTIONS_FILE covers s3://b/db"
    for name in ("tables", "database", "before the first write", "functions"):
        with pytest.raises(Unavailable, match="Could not resolve hostname") as caught:
            ASKED[name]("s3://b/db")
        assert (caught.value.reason, said in caught.value.message) == ("STORE_UNAVAILABLE", True)
    assert len(unreached.asked) == 1
    unreached.seconds += 11
    with pytest.raises(Unavailable):
        ASKED["tables"]("s3://b/db")
    assert len(unreached.asked) == 2


def test_a_bucket_that_no_root_holds_for_is_refused_where_others_have_roots(store, monkeypatch):
    """There is nothing to wait for: callers would for a minute."""
    monkeypatch.setattr(filesystems, "pafs", Unreached())
    monkeypatch.setattr(filesystems, "_unreached", {})
    for name in ("tables", "database", "before the first write", "functions"):
        with pytest.raises(FailedPrecondition, match="No root in LEMAN_STORAGE__OPTIONS_FILE covers s3://b") as caught:
            ASKED[name]("s3://b/db")
        assert caught.value.reason == "STORAGE_MISSING"
        assert "Could not resolve host" in caught.value.message
        assert "add a [[store]] for it" in caught.value.message
    said = ValueError("LanceError(IO): Generic S3 error: Failed to resolve region for bucket 'b'")
    assert error_translation.table_error("s3://b/t.lance", said).reason == "STORAGE_MISSING"
    elsewhere = OSError("Could not resolve host: minio.internal")
    assert storage_errors.storage_failed(elsewhere, "no answer", "s3://lake/t.lance").reason == "STORE_UNAVAILABLE"


def test_a_store_of_which_pyarrow_cannot_find_the_region_is_no_bug(monkeypatch):
    def unresolved(_uri: str) -> None:
        raise OSError("When resolving region for bucket 'b': AWS Error NETWORK_CONNECTION: Could not resolve hostname")

    monkeypatch.setattr(error_translation, "filesystem_of", unresolved)
    said = ValueError("LanceError(IO): Generic S3 error: error sending request for url (https://b.s3.amazonaws.com)")
    found = error_translation.table_error("s3://b/t.lance", said)
    assert (type(found), found.reason) == (Unavailable, "STORE_UNAVAILABLE")
