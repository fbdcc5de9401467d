"""Snapshots, filters and listings of real Lance tables."""

import datetime as dt

import lance
import pyarrow as pa
import pytest

from leman_core.model.service_errors import DataLoss, InvalidArgument, NotFound
from leman_core.model.table import DataFile
from leman_core.sql.time_values import pin_relative_times
from leman_core.storage import manifest
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.locations import table_uri

TABLES = LanceTables()
ROWS = 10
DAY = dt.datetime(2024, 1, 1)


def write(path, **options):
    data = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "box": pa.array([{"w": i, "tags": ["a"]} for i in range(ROWS)]),
            "body": pa.array(["text"] * ROWS),
            "Größe (m)": pa.array(range(ROWS), pa.int32()),
            "ts": pa.array([DAY + dt.timedelta(hours=i) for i in range(ROWS)], pa.timestamp("us")),
            "tz": pa.array([DAY + dt.timedelta(hours=i) for i in range(ROWS)], pa.timestamp("ms", "UTC")),
            "day": pa.array([DAY.date() + dt.timedelta(days=i) for i in range(ROWS)], pa.date32()),
        }
    )
    return lance.write_dataset(data, str(path), max_rows_per_file=4, **options)


@pytest.fixture
def uri(tmp_path):
    write(tmp_path / "t.lance", enable_stable_row_ids=True)
    return str(tmp_path / "t.lance")


def test_a_snapshot_says_what_planning_needs(uri):
    dataset = lance.dataset(uri)
    dataset.add_columns(pa.field("n", pa.int32(), metadata={"leman::column_id": "abc"}))
    dataset.update_config({"leman.incarnation": "inc"})
    dataset.delete("id IN (0, 1, 9)")
    table = TABLES.snapshot(uri)
    assert (table.uri, table.version, table.incarnation, table.stable_row_ids) == (uri, 4, "inc", True)
    assert [f.name for f in table.fields] == ["id", "box", "body", "Größe (m)", "ts", "tz", "day", "n"]
    box = table.column("box")
    assert box is not None
    assert box.field_ids == (1, 2, 3, 4)  # box, box.w, box.tags, box.tags.item
    added = table.column("n")
    assert added is not None
    assert added.arrow.metadata == {b"leman::column_id": b"abc"}
    assert [(f.fragment_id, f.physical_rows, f.deleted_rows) for f in table.fragments] == [
        (0, 4, 2),
        (1, 4, 0),
        (2, 2, 1),
    ]
    assert table.live_rows == 7


def test_a_struct_is_found_in_its_files_by_its_leaves(uri):
    """Lance lists only leaves: the id of the column itself is in no file."""
    table = TABLES.snapshot(uri)
    box = table.column("box")
    assert box is not None
    fragment = table.fragments[0]
    assert fragment.file_of(box.field_id) == ""
    assert fragment.files_of(box.field_ids) == (fragment.files[0].path,)


def test_the_parsed_manifest_agrees_with_lance(uri):
    dataset = lance.dataset(uri)
    dataset.add_columns({"twice": "id * 2"})
    dataset.delete("id = 5")
    dataset.drop_columns(["body"])
    dataset = lance.dataset(uri)
    parsed = manifest.parse_fragments(manifest.manifest_bytes(dataset))
    assert parsed == manifest.walk_fragments(dataset)
    assert parsed == manifest.parse_fragments(dataset._ds.serialized_manifest())
    assert parsed is not None
    assert len(parsed[0].files) == 2
    assert isinstance(parsed[0].files[1], DataFile)


def test_an_older_version_is_read_as_it_was(uri):
    lance.dataset(uri).delete("id < 4")
    assert len(TABLES.snapshot(uri).fragments) == 2
    assert len(TABLES.snapshot(uri, 1).fragments) == 3


@pytest.mark.parametrize(
    ("uri_end", "version", "reason", "said"),
    [
        ("none.lance", 0, "TABLE_NOT_FOUND", "There is no table at"),
        ("none.lance", 3, "TABLE_NOT_FOUND", "There is no table at"),
        ("t.lance", 99, "VERSION_NOT_FOUND", "has no version 99: the latest is 1"),
    ],
)
def test_what_is_missing_is_told_apart(uri, tmp_path, uri_end, version, reason, said):
    with pytest.raises(NotFound, match=said) as caught:
        TABLES.snapshot(str(tmp_path / uri_end), version)
    assert caught.value.reason == reason
    assert "/home/runner" not in caught.value.message


def test_a_table_that_may_be_meant_is_named(tmp_path):
    for name in ("texts", "text_parts", "images"):
        write(tmp_path / f"{name}.lance")
    with pytest.raises(NotFound, match=r"did you mean 'texts'\? Else check the database path and the table name"):
        TABLES.snapshot(str(tmp_path / "textz.lance"))
    with pytest.raises(NotFound, match=r"textz\.lance: check the database path"):
        TABLES.snapshot(str(tmp_path / "no folder" / "textz.lance"))
    (tmp_path / "texts_.lance" / "_checkpoints").mkdir(parents=True)  # left by a job whose table was dropped
    with pytest.raises(NotFound, match=r"texts_\.lance: did you mean 'texts' or 'text_parts'\? Else"):
        TABLES.snapshot(str(tmp_path / "texts_.lance"))


def test_a_table_that_cannot_be_read_is_not_called_missing(uri, tmp_path):
    for file in (tmp_path / "t.lance" / "_versions").iterdir():
        file.write_bytes(b"garbage")
    with pytest.raises(DataLoss) as caught:
        TABLES.snapshot(uri)
    assert caught.value.reason == "TABLE_DAMAGED"
    assert ".rs:" not in caught.value.message


def test_tables_of_a_database_are_listed_by_name(tmp_path):
    write(tmp_path / "b.lance")
    write(tmp_path / "a table.lance")
    (tmp_path / "_leman").mkdir()
    (tmp_path / "c.lance").write_text("a file")
    assert TABLES.list_tables(str(tmp_path)) == ["a table", "b"]
    assert TABLES.list_tables(str(tmp_path / "nothing here")) == []


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a\\b", "a\0", "_leman"])
def test_a_name_that_is_no_file_name_is_no_table(tmp_path, name):
    with pytest.raises(InvalidArgument) as caught:
        table_uri(str(tmp_path), name)
    assert caught.value.reason == "BAD_TABLE_NAME"


def test_only_existing_data_files_are_reported(uri):
    file = TABLES.snapshot(uri).fragments[0].files[0].path
    assert TABLES.existing_data_files(uri, [file, "gone.lance"]) == {file}


# ------------------------------------------------------------------ filters


@pytest.mark.parametrize(
    "where",
    [
        "id > 3",
        "ID > 3",
        "box.w > 2 AND array_has(box.tags, 'a')",
        "`Größe (m)` IS NOT NULL",
        "body LIKE 't%' OR regexp_like(body, '^x')",
        "cast(id as decimal(10, 2)) > 1",
        "_rowid > 2",
    ],
)
def test_lance_takes_these_filters(uri, where):
    TABLES.check_filter(uri, where)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nope > 1", "Column 'nope' not found in table schema. Its columns are: id, box, body, Größe (m), ts"),
        ("idd > 1", "Column 'idd' not found in table schema. Its columns are: id"),
        ("id >", "Expected: an expression, found: EOF"),
        ("id", "does not return a boolean"),
        ("id > 1 LIMIT 1", "something follows a complete expression"),
        ("id > 1 ORDER BY id", "something follows a complete expression"),
        ("id > 1 body", "something follows a complete expression"),
        ("body = 5", "could not convert"),
        ("id IN (SELECT 1)", "not supported"),
        ("CASE WHEN id > 1 THEN true ELSE false", "CASE has no END"),
        ("ts > ts - interval '1 day'", "intervals can only follow now()"),
        ("ts > 'June'", "write times like timestamp '2024-06-01'"),
        ("day > 'June'", "write times like timestamp '2024-06-01' or date '2024-06-01'"),
        ("repeat(body, 9) = 'a'", "function 'repeat'"),
    ],
)
def test_lance_does_not_take_these_and_says_why_in_one_sentence(uri, where, said):
    with pytest.raises(InvalidArgument) as caught:
        TABLES.check_filter(uri, where)
    assert (caught.value.reason, caught.value.field) == ("INVALID_FILTER", "where")
    assert said in caught.value.message
    assert not any(word in caught.value.message for word in (".rs:", "LanceError", "\n", "user input"))


@pytest.mark.parametrize("column", ["ts", "tz"])
def test_a_pinned_time_selects_what_the_relative_one_means(uri, column):
    pinned = pin_relative_times(
        f"{column} > now() - interval '2 hours'", (DAY + dt.timedelta(hours=7)).replace(tzinfo=dt.UTC)
    )
    TABLES.check_filter(uri, pinned)
    assert lance.dataset(uri).count_rows(pinned) == 4


def test_a_pinned_day_selects_what_the_relative_one_means(uri):
    pinned = pin_relative_times("day >= current_date - interval '1 week'", dt.datetime(2024, 1, 12, 23, tzinfo=dt.UTC))
    TABLES.check_filter(uri, pinned)
    assert lance.dataset(uri).count_rows(pinned) == 6
