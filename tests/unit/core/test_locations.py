"""One canonical form for each place, and nothing of Leman's own by any spelling."""

from __future__ import annotations

import os

import pyarrow.fs as pafs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.file import LanceFileSession

from leman.v1 import catalog_pb2, commit_pb2, jobs_pb2, planner_pb2
from leman_core.model.service_errors import InvalidArgument
from leman_core.server.database_locations import DatabaseLocations, LocationFields, location_fields_of
from leman_core.storage.locations import STORES, canonical_database, canonical_table, table_uri
from leman_internal.v1 import planning_pb2, submission_pb2

SPELLINGS = ["{0}", "{0}/", "{0}//", "{0}/.", "{0}/x/..", "//{0}", "file://{0}", "file://{0}/", "file:{0}",
             "FILE://{0}", "file://localhost{0}", "{0}/../{1}"]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    made = tmp_path.resolve() / "my lake"
    (made / "x").mkdir(parents=True)
    return made


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_of_a_folder_is_one_database(folder, spelling):
    path = str(folder).replace(" ", "%20") if spelling.lower().startswith("file:") else str(folder)
    assert canonical_database(spelling.format(path, folder.name)) == str(folder)


def test_a_link_is_what_it_points_to(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    assert canonical_database(str(tmp_path / "link")) == str(folder)
    assert canonical_table(f"{tmp_path}/link/t.lance") == f"{folder}/t.lance"


def test_percent_signs_are_plain_characters_of_a_path():
    assert canonical_database("/a%20b") == "/a%20b"
    assert canonical_database("file:///a%20b") == "/a b"
    assert canonical_table("file:///a/my%20table.lance/") == "/a/my table.lance"
    assert canonical_table("/a/my%20table.lance") == "/a/my%20table.lance"


@pytest.mark.parametrize(
    "spelling", ["s3://bucket/lake", "s3://bucket/lake/", "S3://bucket//lake", "s3://bucket/lake//"]
)
def test_every_spelling_of_a_prefix_is_one_database(spelling):
    assert canonical_database(spelling) == "s3://bucket/lake"
    assert canonical_table(f"{spelling}/t.lance") == "s3://bucket/lake/t.lance"


@pytest.mark.parametrize("text", ["", " ", "lake", "./lake", "~/lake", "a\0b", "s3://", "s3://b/../c", "s3://b/./c",
                                  "file://host/lake", "memory://x", "http://x/y",
                                  "file-object-store:///x/y"])  # fmt: skip
def test_what_is_no_place(text):
    with pytest.raises(InvalidArgument) as caught:
        canonical_database(text)
    assert (caught.value.reason, caught.value.field) == ("BAD_DATABASE", "database")


@pytest.mark.parametrize("key", ["lake#1", "lake#", "a?b=c", "my%20lake", "a%2Fb/c"])
@pytest.mark.parametrize("bucket", ["s3://bucket", "gs://bucket", "abfss://c@a.dfs.core.windows.net"])
def test_a_uri_that_lance_would_cut_or_decode_is_refused(bucket, key):
    """Lance would keep the tables of `s3://bucket/lake#1` and of `s3://bucket/lake#2` in one place."""
    with pytest.raises(InvalidArgument, match="Choose a name without") as caught:
        canonical_database(f"{bucket}/{key}")
    assert (caught.value.reason, caught.value.field) == ("BAD_DATABASE", "database")


def test_other_characters_of_a_uri_stand_for_themselves():
    assert canonical_database("s3://bucket/数据 库/~x1[2]+é&=%") == "s3://bucket/数据 库/~x1[2]+é&=%"


@pytest.mark.parametrize("control", ["\n", "\0", "\x1b", "\x7f", "\x9b", "\u202e", "\u2066"], ids=ascii)
@pytest.mark.parametrize("form", ["/data/a{}b", "file:///data/a{}b", "s3://bucket/a{}b"])
def test_a_place_has_no_control_characters_and_none_is_repeated(control, form):
    with pytest.raises(InvalidArgument) as caught:
        canonical_database(form.format(control))
    assert caught.value.reason == "BAD_DATABASE"
    assert control not in caught.value.message


def test_a_file_is_no_database_and_none_lies_below_one(tmp_path):
    (tmp_path / "notes").write_text("x")
    for place in ("notes", "notes/lake", "notes/a/b"):
        with pytest.raises(InvalidArgument, match=f"'{tmp_path}/notes' is a file") as caught:
            canonical_database(str(tmp_path / place))
        assert caught.value.reason == "BAD_DATABASE"
    assert canonical_database(str(tmp_path / "new" / "lake")) == str(tmp_path / "new" / "lake")


def test_a_folder_with_a_name_that_no_folder_has(tmp_path):
    with pytest.raises(InvalidArgument, match="longer than 255 bytes"):
        canonical_database(str(tmp_path / ("a" * 256)))
    assert canonical_database(str(tmp_path / ("a" * 255)))


@pytest.mark.parametrize("long", ["/a" * 1_751, "s3://bucket/" + "a" * 31_000_000, "ä" * 3_000])
def test_a_place_so_long_that_nothing_has_room_below_it_is_refused(long):
    with pytest.raises(InvalidArgument, match="is longer than 3500 bytes") as caught:
        canonical_database(long)
    assert caught.value.reason == "BAD_DATABASE"
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("inside", ["t.lance", "t.lance/data", "t.lance/_versions/x"])
def test_no_database_lies_in_a_table(inside, tmp_path):
    for place in (str(tmp_path / inside), f"s3://bucket/{inside}"):
        with pytest.raises(InvalidArgument) as caught:
            canonical_database(place)
        assert caught.value.reason == "RESERVED_DATABASE"


@pytest.mark.parametrize("name", ["a\r\nb", "a\0b", "a\u202eb", "a\x7fb"])
def test_a_table_name_has_no_characters_that_cannot_be_printed(name, tmp_path):
    with pytest.raises(InvalidArgument) as caught:
        table_uri(str(tmp_path), name)
    assert (caught.value.reason, caught.value.field) == ("BAD_TABLE_NAME", "table.table")
    assert name not in caught.value.message


PLACES = {
    "s3": "s3://bucket/lake",
    "gs": "gs://bucket/lake",
    "abfss": "abfss://container@account.dfs.core.windows.net/lake",
}
OTHERS = (
    *("abfs", "adl", "az", "azure", "cos", "file-object-store", "gcs", "goosefs", "hdfs", "hf", "http", "https"),
    *("memory", "oss", "r2", "s3+ddb", "s3a", "s3n", "tos", "viewfs", "wasb", "wasbs"),
)


@pytest.mark.parametrize("scheme", STORES)
def test_both_libraries_open_the_stores_that_are_taken(scheme, monkeypatch):
    place = canonical_database(PLACES[scheme])
    assert place == PLACES[scheme]
    assert understood_by_lance(place)  # first: it never forgets the credentials of an environment
    for name in ("AZURE_STORAGE_ACCOUNT_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "a2V5")
    assert understood_by_pyarrow(f"{place}?region=us-east-1" if scheme == "s3" else place)


@pytest.mark.parametrize("scheme", OTHERS)
def test_others_are_refused_as_one_of_the_libraries_refuses_them(scheme):
    place = f"{scheme}://bucket/lake"
    with pytest.raises(InvalidArgument, match="abfss://, gs://, s3://") as caught:
        canonical_database(place)
    assert caught.value.reason == "BAD_DATABASE"
    assert not (understood_by_pyarrow(place) and understood_by_lance(place))


def understood_by_lance(place: str) -> bool:
    """Whether it knows the kind of store; it need not be there."""
    try:
        LanceFileSession(place)
    except (OSError, ValueError) as error:
        return "No object store provider found" not in str(error)
    return True


def understood_by_pyarrow(place: str) -> bool:
    try:
        pafs.FileSystem.from_uri(place)
    except (OSError, ValueError, ImportError) as error:
        return not any(sign in str(error) for sign in ("Unrecognized filesystem type", "fsspec"))
    return True


@pytest.mark.parametrize("text", ["abfs://c@a.dfs.core.windows.net/x", "az://c/x", "abfss://c/x"])
def test_a_uri_of_azure_that_is_refused_tells_how_to_write_it(text):
    with pytest.raises(InvalidArgument, match=r"abfss://container@account\.dfs\.core\.windows\.net/path"):
        canonical_database(text)


@pytest.mark.parametrize(
    "text",
    [
        "{0}/_leman",
        "{0}/_leman/",
        "file://{0}/_leman",
        "{0}/x/../_leman",
        "{0}/_leman/udfs",
        "{0}/link",
        "s3://bucket/lake/_leman",
    ],
)
def test_lemans_own_folder_is_no_database(tmp_path, text):
    (tmp_path / "_leman").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "_leman")
    place = text.format(tmp_path)
    for look in (lambda: canonical_database(place), lambda: canonical_table(f"{place}/jobs.lance")):
        with pytest.raises(InvalidArgument) as caught:
            look()
        assert caught.value.reason == "RESERVED_DATABASE"


@pytest.mark.parametrize("uri", ["t.lance", "/t", "/x/t.parquet", "/x/", "s3://bucket"])
def test_what_is_no_table(uri):
    with pytest.raises(InvalidArgument) as caught:
        canonical_table(uri)
    assert caught.value.reason in ("BAD_TABLE_URI", "BAD_DATABASE")


def test_the_root_can_be_a_database():
    assert table_uri("/", "t") == "/t.lance" == canonical_table(table_uri("/", "t"))


@given(st.lists(st.sampled_from(["a", "b c", "ü", "..", ".", ""]), max_size=6))
def test_a_canonical_place_is_its_own_form(parts):
    found = canonical_database("/" + "/".join(parts))
    assert canonical_database(found) == found == os.path.realpath(found)


# ------------------------------------------------------------------------------ requests


def methods():
    for module in (catalog_pb2, commit_pb2, jobs_pb2, planner_pb2, planning_pb2, submission_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            yield from service.methods


def test_every_request_that_names_a_place_is_known():
    """All of them do; one that does not should say so here."""
    assert [method.full_name for method in methods() if location_fields_of(method.input_type) == LocationFields()] == []


def test_places_deep_in_a_request_are_canonical_too():
    request = jobs_pb2.CreateJobRequest()
    request.backfill.table.database = "/lake/"
    DatabaseLocations().canonicalize(request)
    assert request.backfill.table.database == "/lake"
    assert not request.HasField("refresh")
    view = catalog_pb2.CreateMaterializedViewRequest(view=catalog_pb2.TableRef(database="file:///lake"))
    view.query.source.database = "/other/../lake"
    DatabaseLocations().canonicalize(view)
    assert (view.view.database, view.query.source.database) == ("/lake", "/lake")


def test_an_empty_place_stays_empty():
    request = catalog_pb2.CreateMaterializedViewRequest(view=catalog_pb2.TableRef(database="/lake"))
    request.query.source.table = "docs"
    before = request.SerializeToString()
    DatabaseLocations().canonicalize(request)
    assert request.SerializeToString() == before
