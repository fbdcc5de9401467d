"""Local tables, on real Lance."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import shutil
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import leman
from leman import errors, local
from tests.unit.clients.fake_services import FakeLeman

ROWS = [{"text": "a", "n": 1}, {"text": "b", "n": 2}]


@pytest.fixture
def db(tmp_path):
    fake = FakeLeman()
    fake.start()
    with leman.connect(tmp_path, fake.address) as database:
        yield database
    fake.stop()


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        {"text": ["a", "b"], "n": [1, 2]},
        {"text": pa.array(["a", "b"]), "n": np.array([1, 2])},
        pa.Table.from_pylist(ROWS),
        pa.RecordBatch.from_pylist(ROWS),
        pa.Table.from_pylist(ROWS).to_reader(),
        pd.DataFrame(ROWS),
    ],
    ids=["dicts", "lists", "arrays", "table", "batch", "reader", "pandas"],
)
def test_data_of_every_kind(db, data):
    table = db.create_table("t", data)
    assert table.to_arrow().to_pylist() == ROWS
    assert table.to_lance().has_stable_row_ids


@pytest.mark.parametrize("kind", [lambda rows: rows, pa.Table.to_reader, lambda rows: rows.schema])
def test_rows_of_a_view_do_not_make_their_table_one(db, kind):
    metadata = {"leman::view::query": "{}", "leman::view::base_table": "t", "mine": "1"}
    rows = pa.Table.from_pylist(ROWS).replace_schema_metadata(metadata)
    table = db.create_table("t", kind(rows))
    assert table.to_lance().schema.metadata == {b"mine": b"1"}
    assert table.to_arrow().to_pylist() in (ROWS, [])


def test_schema_makes_an_empty_table(db):
    table = db.create_table("t", pa.schema([("x", pa.int32())]))
    assert table.to_lance().count_rows() == 0
    assert table.to_lance().schema.field("x").type == pa.int32()


def test_names_with_spaces(db):
    assert db.create_table("my docs", ROWS).to_arrow(["text"], "n = 2").to_pylist() == [{"text": "b"}]


def test_fragment_size(db):
    table = db.create_table("t", {"x": list(range(10))}, max_rows_per_file=4)
    assert [f.count_rows() for f in table.to_lance().get_fragments()] == [4, 4, 2]


def test_each_table_has_an_incarnation_of_its_own(db):
    first = db.create_table("t", ROWS).to_lance().config()[local.INCARNATION]
    second = db.create_table("t", ROWS, mode="overwrite").to_lance().config()[local.INCARNATION]
    assert len(first) == len(second) == 32
    assert first != second


def test_existing_table_is_kept(db):
    db.create_table("t", ROWS)
    with pytest.raises(errors.TableExists, match="overwrite"):
        db.create_table("t", {"x": [1]})
    assert lance.dataset(f"{db.uri}/t.lance").schema.names == ["text", "n"]


def test_without_stable_row_ids_there_is_a_warning(db):
    with pytest.warns(UserWarning, match="computed again") as caught:
        table = db.create_table("t", ROWS, enable_stable_row_ids=False)
    assert caught[0].filename == __file__
    assert not table.to_lance().has_stable_row_ids


@pytest.mark.parametrize("name", ["", " ", "a/b", "..", "_leman", "a\nb", 3])
def test_refused_names(db, name):
    with pytest.raises(errors.InvalidArgument):
        db.create_table(name, ROWS)


@pytest.mark.parametrize("data", [3, [], ["a"], [1, 2], "text"])
def test_refused_data(db, data):
    with pytest.raises(errors.InvalidArgument, match="cannot be a table"):
        db.create_table("t", data)


@pytest.mark.parametrize("data", [[], {}, ()])
def test_data_without_a_column_is_refused_however_it_is_written(db, data):
    table = db.create_table("t", ROWS)
    for give in (table.add, lambda empty: db.create_table("u", empty)):
        with pytest.raises(errors.InvalidArgument, match="without a column cannot be a table"):
            give(data)
    table.add({table.schema.names[0]: []})


def test_uneven_columns_are_refused(db):
    with pytest.raises(errors.InvalidArgument, match="do not make a table"):
        db.create_table("t", {"x": [1], "y": [1, 2]})


@pytest.mark.parametrize("options", [{"mode": "append"}, {"max_rows_per_file": 0}, {"max_rows_per_file": 1.5}])
def test_refused_options(db, options):
    with pytest.raises(errors.InvalidArgument):
        db.create_table("t", ROWS, **options)


@pytest.fixture
def narrow(db):
    """A table with narrow types and a computed column without data."""
    schema = pa.schema([("text", pa.large_string()), ("n", pa.int8()), ("ratio", pa.float32())])
    table = db.create_table("t", pa.table({"text": ["a"], "n": [1], "ratio": [0.5]}).cast(schema))
    computed = pa.field("c", pa.int32(), metadata={"leman::udf_name": "f"})
    table.to_lance().add_columns(computed)
    return table


@pytest.mark.parametrize(
    "data",
    [
        [{"text": "b", "n": 2, "ratio": 1.5}],
        {"n": [2], "text": ["b"], "ratio": [1.5]},
        pa.table({"text": ["b"], "n": [2], "ratio": [1.5]}),
        pa.table({"text": ["b"], "n": [2], "ratio": [1.5]}).to_reader(),
    ],
)
def test_added_rows_take_the_tables_types(narrow, data):
    narrow.add(data)
    assert narrow.to_arrow().to_pylist()[1] == {"text": "b", "n": 2, "ratio": 1.5, "c": None}
    assert narrow.to_lance().schema.field("c").metadata == {b"leman::udf_name": b"f"}


@pytest.mark.parametrize("version", ["2.1", None])
def test_blobs_are_added_as_bytes(db, version):
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = db.create_table("blobs", pa.table([[1]], ["n"]))
    lance.write_dataset(
        pa.table([[1], [b"one"]], pa.schema([("n", pa.int64()), blob])),
        table.uri,
        mode="overwrite",
        data_storage_version=version,
    )

    table.add({"n": [2], "b": [b"two"]})
    table.add(pa.table([[3], pa.array([b"three"], pa.binary())], ["n", "b"]))
    table.add(pa.table([[4], [b"four"]], pa.schema([("n", pa.int64()), blob])).to_reader())

    taken = table.to_lance().take_blobs("b", indices=[0, 1, 2, 3])
    assert [found.readall() for found in taken] == [b"one", b"two", b"three", b"four"]
    with pytest.raises(errors.TypeMismatch):
        table.add({"n": [5], "b": [5]})


def test_text_in_a_dictionary_is_text(narrow):
    """As a column of categories has it; also where its words are views."""
    words = pa.array(["a", "b"], pa.string_view())
    coded = pa.table({"text": pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint32()), words)})
    narrow.add(coded)
    narrow.add(coded.to_reader())
    narrow.add(pa.table({"text": pa.array(["c"]).dictionary_encode()}))
    assert narrow.to_arrow(["text"])["text"].to_pylist()[1:] == ["b", None, "a", "b", None, "a", "c"]


def test_left_out_columns_are_null(narrow):
    narrow.add([{"n": 2}])
    assert narrow.to_arrow().to_pylist()[1] == {"text": None, "n": 2, "ratio": None, "c": None}


def test_unknown_column(narrow):
    with pytest.raises(errors.ColumnNotFound, match="Column 'm' not found in table schema"):
        narrow.add([{"m": 2}])


@pytest.mark.parametrize(
    "data",
    [
        [{"n": "two"}],
        [{"n": 300}],
        pa.table({"n": [300]}),
        pa.table({"n": ["2"]}),
        pa.table({"text": [2]}),
        pa.table({"text": pa.array([2]).dictionary_encode()}),
        pa.table({"n": pa.array(["2"]).dictionary_encode()}),
        pa.table({"n": [True]}),
        pa.table({"n": [[1]]}),
    ],
)
def test_values_that_do_not_fit(narrow, data):
    with pytest.raises(errors.TypeMismatch, match="Type mismatch"):
        narrow.add(data)
    assert narrow.to_lance().count_rows() == 1


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"a.b": [1]}),
        pa.table([[1], [2]], ["a", "a"]),
        pa.table({"i": pa.nulls(1, pa.month_day_nano_interval())}),
    ],
    ids=["dot", "twice", "interval"],
)
def test_what_lance_refuses_to_store(db, data):
    with pytest.raises(errors.InvalidArgument, match=r"Lance refuses this for .*t.lance: .") as caught:
        db.create_table("t", data)
    assert "/rust/" not in str(caught.value)


def test_reading_what_is_not_there(db):
    table = db.create_table("t", ROWS)
    with pytest.raises(errors.InvalidArgument, match="version is -1") as refused:
        table.to_arrow(version=-1)
    assert refused.value.reason == "BAD_NUMBER"
    with pytest.raises(errors.VersionNotFound, match="no version 18446744073709551616"):
        table.to_arrow(version=1 << 64)
    with pytest.raises(errors.VersionNotFound, match="no version 99"):
        table.to_lance(99)
    for wrong in (lambda: table.to_arrow(where="m = 1"), lambda: table.to_arrow(["m"])):
        with pytest.raises(errors.InvalidArgument, match="m"):
            wrong()
    shutil.rmtree(table.uri)
    for gone in (table.to_arrow, table.to_lance, lambda: table.add(ROWS)):
        with pytest.raises(errors.TableNotFound, match="no table at"):
            gone()


@pytest.mark.parametrize(
    ("folder", "how"),
    [*itertools.product(["data", "_deletions"], ["cut", "zeros", "folder", "missing"]), ("data", "first byte")],
)
def test_a_damaged_file_of_a_table_is_no_fault_of_the_caller_or_the_store(db, folder, how):
    table = db.create_table("t", pa.table({"x": range(100), "s": ["abc" * (x % 7) for x in range(100)]}))
    table.to_lance().delete("x = 7")
    (path,) = Path(table.uri, folder).iterdir()
    whole = path.read_bytes()
    path.unlink()
    contents = {"cut": whole[: len(whole) // 2], "zeros": bytes(len(whole)), "first byte": b"\xff" + whole[1:]}
    if how == "folder":
        path.mkdir()
    elif how in contents:
        path.write_bytes(contents[how])
    with pytest.raises(errors.DataLoss, match="is damaged: a file of it is missing or cannot be decoded") as caught:
        table.to_arrow()
    assert caught.value.reason == "TABLE_DAMAGED"


def test_a_file_that_was_cleaned_up_with_its_version_is_no_damage(db):
    table = db.create_table("t", ROWS)
    old = table.to_lance()
    table.to_lance().delete("true")
    table.to_lance().cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
    with pytest.raises(errors.VersionNotFound, match="has been cleaned up"), local._lance_errors(table.uri):
        old.to_table()


def test_a_name_that_no_file_system_takes(db):
    with pytest.raises(errors.Unavailable, match=r"cannot be read or written: .*name too long") as caught:
        db.create_table("t" * 300, ROWS)
    assert caught.value.reason == "STORE_UNAVAILABLE"


def test_without_pylance_the_message_names_the_extra(db, monkeypatch):
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(ImportError, match=r"pip install leman\[lance\]") as caught:
        db.create_table("t", ROWS)
    assert isinstance(caught.value, leman.LemanError)


def test_of_those_who_create_a_table_at_the_same_moment_one_succeeds(tmp_path):
    makers, uri = 16, str(tmp_path / "t.lance")
    together = threading.Barrier(makers)

    def make(maker: int) -> int | None:
        together.wait()
        with contextlib.suppress(errors.TableExists):
            local.create_table(uri, {"x": [maker]}, overwrite=False, stable_row_ids=True, max_rows_per_file=None)
            return maker
        return None

    with ThreadPoolExecutor(makers) as threads:
        made = [maker for maker in threads.map(make, range(makers)) if maker is not None]
    assert local.read_table(uri, None, None).to_pydict() == {"x": made}
    assert len(made) == 1


def test_a_job_that_begins_as_soon_as_its_table_is_there_leaves_it_made(tmp_path, monkeypatch):
    """The job gives the table an incarnation before its maker does: the table has that one."""
    made, uri = local._created, str(tmp_path / "t.lance")

    def overtaken(*asked):
        table = made(*asked)
        lance.dataset(uri).update_config({local.INCARNATION: "the job's"})
        return table

    monkeypatch.setattr(local, "_created", overtaken)
    local.create_table(uri, {"x": [1]}, overwrite=False, stable_row_ids=True, max_rows_per_file=None)
    assert lance.dataset(uri).config()[local.INCARNATION] == "the job's"


@pytest.mark.parametrize("text", ["", "NaN", "1e999", "1" * 30, '"\\ud83d"', '{"a": 1, "a": 2}'])
def test_json_that_storage_would_change_is_refused(tmp_path, text):
    db = leman.connect(str(tmp_path))
    table = db.create_table("t", pa.table({"j": pa.array(["{}"]).cast(pa.json_())}))
    data = pa.table({"j": pa.array([text]).cast(pa.json_())})
    for give in (
        lambda: table.add([{"j": text}]),
        lambda: table.add(data),
        lambda: table.add(data.to_reader()),
        lambda: db.create_table("u", data),
    ):
        with pytest.raises(leman.errors.TypeMismatch, match="column j: a value cannot be stored as JSON"):
            give()
    assert table.to_arrow()["j"].to_pylist() == ["{}"]


def test_a_filter_that_is_nested_too_deeply_is_refused_before_lance_sees_it(tmp_path):
    table = leman.connect(str(tmp_path)).create_table("t", pa.table({"x": [1]}))
    with pytest.raises(leman.errors.InvalidArgument, match="nested too deeply") as refused:
        table.to_arrow(where="x" + "+1" * 2030 + " > 0")
    assert refused.value.reason == "INVALID_FILTER"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1.5, pa.int64()),
        (True, pa.int64()),
        (1.5, pa.decimal128(10, 2)),
        (pa.array([1.5]), pa.decimal128(10, 2)),
        (10**9, pa.decimal128(10, 2)),
        (dt.datetime(2024, 7, 1, 12), pa.timestamp("us", "Europe/Zurich")),
        (dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC), pa.timestamp("us")),
        (pa.array([0], pa.timestamp("us")), pa.timestamp("us", "UTC")),
        (pa.array([0], pa.date32()), pa.timestamp("us", "UTC")),
        (dt.datetime(2024, 7, 1, 12), pa.date32()),
        (dt.datetime(2024, 7, 1, 12, 0, 0, 5), pa.timestamp("s")),
        (dt.time(12, 0, 0, 5), pa.time32("s")),
    ],
    ids=str,
)
def test_values_that_their_column_would_change_are_refused(value, kind):
    with pytest.raises(errors.TypeMismatch, match="Type mismatch"):
        local.as_arrow({"a": value if isinstance(value, pa.Array) else [value]}, pa.schema({"a": kind}))


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (5, pa.decimal128(10, 2)),
        (pa.array([5]), pa.decimal128(10, 2)),
        (2.0, pa.int64()),
        (2**64 - 1, pa.uint64()),
        (dt.date(2024, 7, 1), pa.date32()),
        (dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC), pa.timestamp("us", "UTC")),
        (dt.timedelta(days=1), pa.duration("s")),
    ],
    ids=str,
)
def test_values_that_their_column_keeps_are_converted(value, kind):
    rows = local.as_arrow({"a": value if isinstance(value, pa.Array) else [None, value]}, pa.schema({"a": kind}))
    assert rows.schema.field("a").type == kind
    assert rows["a"].to_pylist()[-1] == (5 if isinstance(value, pa.Array) else value)
