"""One port stores small documents: whatever its storage, a document is whole or absent, and one creator wins."""

from __future__ import annotations

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from leman_core.model.service_errors import FailedPrecondition
from leman_core.storage import table_creation, whole_files
from leman_core.storage.documents import DocumentFolder, DocumentTable
from tests.disks import without_rights
from tests.unit.core.lance_io.small_store import known_store

WRITERS = 6
KINDS = ("local", "claims", "objects")


@pytest.fixture(params=KINDS)
def make(request, tmp_path, monkeypatch):
    """Makes the same folder again, as another process would: on a disk, and with both ways to create an object."""
    if request.param == "local":
        yield lambda: DocumentFolder(f"{tmp_path}/db/_leman/docs", "Documents")
        return
    monkeypatch.setattr(table_creation, "_stores", defaultdict(table_creation._Known))
    monkeypatch.setattr(table_creation, "_TRIES", 1)
    claims = "s3://lake/db/_leman/doc_claims" if request.param == "claims" else ""
    with known_store():
        yield lambda: DocumentFolder("s3://lake/db/_leman/docs", "Documents", claims)


def test_what_is_put_is_read_listed_replaced_and_deleted(make):
    folder = make()
    assert (folder.read("a.json"), folder.size("a.json"), folder.entries()) == (None, None, [])
    folder.delete("a.json")
    folder.put("b.json", b"1")
    folder.put("a.json", b"2")
    folder.put("c.txt", b"3")
    folder.put("a.json", b"two")
    assert [(entry.name, entry.size_bytes, entry.is_file) for entry in make().entries(".json")] == [
        ("a.json", 3, True),
        ("b.json", 1, True),
    ]
    assert (folder.read("a.json"), folder.read("a.json", 1 << 10), folder.read("a.json", 1)) == (b"two",) * 3
    folder.delete("a.json", "none.json", "c.txt")
    assert [entry.name for entry in folder.entries()] == ["b.json"]


def test_of_many_creators_all_are_told_the_content_of_one(make):
    together = threading.Barrier(WRITERS)

    def create(number):
        folder = make()
        together.wait()
        return folder.create("name.json", b"%d" % number)

    with ThreadPoolExecutor(WRITERS) as writers:
        told = set(writers.map(create, range(WRITERS)))
    assert told == {make().read("name.json")}
    assert [entry.name for entry in make().entries()] == ["name.json"]
    assert make().create("name.json", b"later") in told


def test_a_creator_that_is_killed_leaves_a_name_that_the_next_one_fills(make, monkeypatch):
    """With a claim the content of the first stands; else there is none, and the next creator is the first."""
    killed = Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patched:
        patched.setattr(DocumentFolder, "put", killed)
        patched.setattr(whole_files.os, "link", killed)
        if not make()._claims and not make().is_local:
            patched.setattr(whole_files, "create_object", killed)
        with pytest.raises(KeyboardInterrupt):
            make().create("name.json", b"first")
    assert make().read("name.json") is None
    told = make().create("name.json", b"second")
    assert told == (b"first" if make()._claims else b"second") == make().read("name.json")


def test_an_answer_that_is_lost_does_not_make_a_creator_lose():
    with known_store() as store:
        store.objects["docs/name.json"] = b"own"
        assert DocumentFolder("s3://lake/docs", "Documents").create("name.json", b"own") == b"own"


def test_what_a_killed_writer_left_is_no_document(tmp_path):
    folder = DocumentFolder(str(tmp_path), "Documents")
    (tmp_path / f".tmp{'0' * 32}").write_bytes(b"half")
    assert folder.entries() == []


CALLS = {
    "put": lambda folder: folder.put("a", b"1"),
    "create": lambda folder: folder.create("a", b"1"),
    "read": lambda folder: folder.read("a"),
    "read at once": lambda folder: folder.read("a", 10),
    "size": lambda folder: folder.size("a"),
    "entries": lambda folder: folder.entries(),
    "delete": lambda folder: folder.delete("a"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_storage_that_refuses_is_an_error_and_no_missing_document(tmp_path, call):
    place = tmp_path / "closed" / "docs"
    place.mkdir(parents=True)
    (place / "a").write_bytes(b"1")
    (tmp_path / "closed").chmod(0o700)
    with without_rights(), pytest.raises(FailedPrecondition) as refused:
        call(DocumentFolder(str(place), "Documents"))
    assert refused.value.reason == "STORAGE_DENIED"


def test_of_two_writers_of_a_key_one_looks_again_and_those_of_other_keys_both_succeed(tmp_path):
    table = DocumentTable(f"{tmp_path}/own/t.lance", "The table")
    assert table.read().values == {}
    assert not table.write(table.read(), {"a": "0"}), "there was no table to write to"
    assert table.write(table.read(), {"a": "0"})
    first, second, third = (table.read() for _ in range(3))
    assert table.write(first, {"a": "1", "b": "1"})
    assert not table.write(second, {"a": "2"})
    assert table.write(third, {"c": "2"})
    assert table.write(table.read(), {"b": None})
    assert table.read().values == {"a": "1", "c": "2"}
