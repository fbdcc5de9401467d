"""Tables that cannot be opened: what is wrong with them is said at once, with what to do about it."""

from collections import Counter
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from leman._format.view_definitions import ViewQuery
from leman_coordinator.lance_io.table_handle import TableHandle, open_table
from leman_core.functions.column_checks import NewColumn
from leman_core.model.plan import BackfillSpec
from leman_core.model.row_positions import RowRange
from leman_core.model.service_errors import (
    DataLoss,
    FailedPrecondition,
    InvalidArgument,
    LemanError,
    NotFound,
    Unavailable,
)
from leman_core.storage.error_translation import file_damage, table_error, using_storage
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.scan import FragmentReader, check_row_ids
from leman_planner.catalog.table_catalog import Catalog
from leman_planner.planning.plan_maker import PlanMaker
from leman_planner.views.view_catalog import ViewCatalog


@pytest.fixture
def uri(tmp_path):
    """Two versions."""
    table = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": [1]}), table, enable_stable_row_ids=True)
    lance.write_dataset(pa.table({"x": [2]}), table, mode="append")
    return table


def latest_manifest(uri):
    return min(Path(uri, "_versions").glob("*.manifest"))


def damage(uri, how):
    path = latest_manifest(uri)
    content = path.read_bytes()
    path.write_bytes(
        {"empty": b"", "text": b"nonsense", "half": content[: len(content) // 2], "zeros": bytes(5000)}[how]
    )
    return path


@pytest.mark.parametrize("how", ["empty", "text", "half", "zeros"])
@pytest.mark.parametrize("open_it", [LanceTables().snapshot, LanceTables().latest_version, open_table])
def test_a_damaged_manifest_is_named(uri, how, open_it):
    path = damage(uri, how)
    with pytest.raises(DataLoss) as caught:
        open_it(uri)
    assert (caught.value.reason, caught.value.facts) == ("TABLE_DAMAGED", {"uri": uri, "path": str(path)})
    path.unlink()  # as the message says
    assert LanceTables().latest_version(uri) == 1


@pytest.mark.parametrize("how", ["empty", "text", "half", "zeros"])
def test_it_is_named_to_whoever_has_the_table_open(uri, how):
    """As the commit coordinator has while jobs run; it is no table that was dropped and made again."""
    handle = TableHandle(uri)
    lance.write_dataset(pa.table({"x": [3]}), uri, mode="append")
    path = damage(uri, how)
    with pytest.raises(DataLoss) as caught:
        handle.latest()
    assert (caught.value.reason, caught.value.facts) == ("TABLE_DAMAGED", {"uri": uri, "path": str(path)})
    path.unlink()
    assert TableHandle(uri).latest().version == 2


@pytest.mark.parametrize(
    "open_it",
    [LanceTables().snapshot, lambda uri: TableHandle(uri).latest(), lambda uri: FragmentReader(uri, 2)],
    ids=["planner", "coordinator", "worker"],
)
def test_no_flipped_bit_of_a_manifest_takes_the_process_along(uri, open_it):
    """Lance panics over some of them. Others it does not notice: nothing can be said of those."""
    path = latest_manifest(uri)
    whole = path.read_bytes()
    reasons = Counter()
    for bit in range(0, len(whole) * 8, 29):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        try:
            open_it(uri)
        except LemanError as error:
            reasons[error.reason] += 1
    assert reasons["TABLE_DAMAGED"] > 20


@pytest.mark.parametrize("reader", ["anew", "open", "worker"])
@pytest.mark.parametrize("inner", [2, 4])
def test_a_manifest_of_another_version_is_damaged(uri, inner, reader):
    """Lance reads the version that is in it, and writes behind the one in its name: that conflicts for ever."""
    handle = TableHandle(uri)
    for x in (3, 4):
        lance.write_dataset(pa.table({"x": [x]}), uri, mode="append")
    fourth, third, second, _ = sorted(Path(uri, "_versions").glob("*.manifest"))
    third.write_bytes((fourth if inner == 4 else second).read_bytes())
    fourth.unlink()
    look = {
        "anew": lambda: LanceTables().snapshot(uri),
        "open": handle.latest,
        "worker": lambda: FragmentReader(uri, 3),
    }
    with pytest.raises(DataLoss, match="another version") as caught:
        look[reader]()
    assert (caught.value.reason, caught.value.facts) == ("TABLE_DAMAGED", {"uri": uri, "path": str(third)})
    third.unlink()
    assert LanceTables().snapshot(uri).version == 2


def test_a_manifest_that_lance_alone_cannot_decode_is_damaged(uri):
    path = latest_manifest(uri)
    path.write_bytes(path.read_bytes().replace(b"int64", b"\xff\xff\xff\xff\xff"))
    with pytest.raises(DataLoss, match="cannot be decoded"):
        LanceTables().snapshot(uri)


def test_an_older_version_that_is_damaged(uri):
    max(Path(uri, "_versions").glob("*.manifest")).write_bytes(b"nonsense")
    assert LanceTables().snapshot(uri).version == 2
    with pytest.raises(DataLoss, match="damaged"):
        LanceTables().snapshot(uri, 1)


@pytest.mark.parametrize(
    ("said", "kind", "reason"),
    [
        ("LanceError(IO): Generic S3 error: connection reset", Unavailable, "STORE_UNAVAILABLE"),
        ("Dataset at path t.lance was not found", NotFound, "TABLE_NOT_FOUND"),
        ("LanceError(IO): Permission denied (os error 13)", FailedPrecondition, "STORAGE_DENIED"),
        (
            "Not supported: This dataset cannot be read by this version of Lance. Flags: 1024",
            FailedPrecondition,
            "TABLE_NOT_SUPPORTED",
        ),
    ],
)
def test_what_else_lance_says_of_a_table_that_is_whole(uri, said, kind, reason):
    found = table_error(uri, OSError(said))
    assert (type(found), found.reason) == (kind, reason)


def test_lance_says_so_of_a_table_that_needs_a_later_release(uri):
    path = latest_manifest(uri)
    content = path.read_bytes()
    assert b"\x48\x02\x50\x02" in content  # flags for readers and writers: row ids are stable
    path.write_bytes(content.replace(b"\x48\x02\x50\x02", b"\x48\x40\x50\x40"))
    with pytest.raises(LemanError) as caught:
        LanceTables().snapshot(uri)
    assert caught.value.reason == "TABLE_NOT_SUPPORTED"


@pytest.fixture
def filled(tmp_path):
    """Its second fragment has a column file, and a deletion file."""
    table = str(tmp_path / "t.lance")
    rows = pa.table({"x": range(60), "s": ["abc" * (x % 7) for x in range(60)]})
    dataset = lance.write_dataset(rows, table, max_rows_per_file=30, enable_stable_row_ids=True)
    dataset.add_columns({"c": "x + 1"})
    dataset.delete("x = 37")
    return table


def file_of(uri, kind):
    if kind == "deletion":
        return next(Path(uri, "_deletions").iterdir())
    files = lance.dataset(uri).get_fragments()[1].metadata.files
    return Path(uri, "data", files[0 if kind == "data" else -1].path)


def damage_file(path, how):
    whole = path.read_bytes()
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how != "missing":
        contents = {"empty": b"", "half": whole[: len(whole) // 2], "zeros": bytes(len(whole))}
        path.write_bytes(contents.get(how, whole[:-1] + bytes([whole[-1] ^ 255])))


def delete_a_row(uri):
    with using_storage(uri):
        lance.dataset(uri).get_fragments()[1].delete_rows([3])


READS = {
    "rows": lambda reader, uri: list(reader.read(1, RowRange(0, 30), ["x", "s", "c"], deletions=True)),
    "sql": lambda reader, uri: list(reader.read(1, RowRange(0, 30), {"v": "x + c"}, deletions=True, where="x > 3")),
    "matching": lambda reader, uri: reader.rows_matching([1], "x > c"),
    "live": lambda reader, uri: reader.live(1, RowRange(0, 30)),
    "delete": lambda reader, uri: delete_a_row(uri),
}


@pytest.mark.parametrize("how", ["last byte", "half", "empty", "zeros", "folder", "missing"])
@pytest.mark.parametrize("kind", ["deletion", "data", "column"])
def test_a_damaged_file_of_a_table_is_named_at_once(filled, kind, how):
    """It is not a fault of the store, which callers would wait for."""
    path = file_of(filled, kind)
    damage_file(path, how)
    for name, read in READS.items():
        if kind != "deletion" and name in {"live", "delete"}:
            continue  # neither reads values
        with pytest.raises(DataLoss, match=r"is damaged: .* and the latest version refers to it") as caught:
            read(FragmentReader(filled, lance.dataset(filled).version), filled)
        assert (caught.value.reason, caught.value.facts) == ("TABLE_DAMAGED", {"uri": filled, "path": str(path)}), name
    if kind == "deletion":
        (error,) = check_row_ids(filled).values()
        assert (error.reason, error.facts["path"]) == ("TABLE_DAMAGED", str(path))


def test_a_file_whose_values_make_no_sense_is_damage_that_verification_names(filled):
    path = file_of(filled, "data")
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 255]) + content[1:])
    with pytest.raises(DataLoss, match="Find it with CommitService") as caught:
        READS["rows"](FragmentReader(filled, lance.dataset(filled).version), filled)
    assert caught.value.reason == "TABLE_DAMAGED"


@pytest.mark.parametrize(
    "said",
    [
        "LanceError(IO): Generic S3 error: connection reset",
        "LanceError(IO): Generic S3 error: Error performing GET http://s3/range/t.lance/data/a.lance: timed out",
        "LanceError(IO): Generic memory error: Invalid range 0..1685 for object of size 842 bytes",
        "LanceError(IO): Generic LocalFileSystem error: Is a directory (os error 21)",
        "LanceError(IO): Generic LocalFileSystem error: No space left on device (os error 28)",
        "LanceError(Arrow): Divide by zero error, /home/lance/src/scalar.rs:1:2",
    ],
)
def test_what_lance_says_of_a_table_whose_files_are_whole_is_no_damage(filled, said):
    assert file_damage(filled, OSError(said)) is None


def test_a_damaged_file_that_the_latest_version_does_not_need_is_no_damage(filled):
    version, path = lance.dataset(filled).version, file_of(filled, "column")
    lance.dataset(filled).drop_columns(["c"])
    damage_file(path, "half")
    with pytest.raises(Unavailable):
        READS["rows"](FragmentReader(filled, version), filled)


def asks(database):
    """What begins with a table."""
    column = NewColumn("c", "", "", sql_expression="x + 1")
    return [
        lambda: Catalog(LanceTables()).addition(database, "old", [column], ""),
        lambda: PlanMaker(LanceTables()).plan(BackfillSpec(database, "old", "x")),
        lambda: ViewCatalog(LanceTables()).creation(database, "v", ViewQuery("", "old", ())),
    ]


@pytest.mark.parametrize("at", range(3))
def test_the_first_file_format_is_refused_with_a_way_out(tmp_path, at):
    old, new = str(tmp_path / "old.lance"), str(tmp_path / "new.lance")
    lance.write_dataset(pa.table({"x": [1]}), old, data_storage_version="0.1")
    with pytest.raises(FailedPrecondition) as caught:
        asks(str(tmp_path))[at]()
    assert (caught.value.reason, caught.value.facts["file_format"]) == ("FILE_FORMAT_NOT_SUPPORTED", "0.1")
    lance.write_dataset(lance.dataset(old), new, data_storage_version="stable")
    assert LanceTables().snapshot(new).file_format >= (2, 0)


def test_a_database_that_cannot_be_listed_is_out_of_reach(monkeypatch):
    for name, value in {"ENDPOINT_URL": "http://127.0.0.1:9", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with pytest.raises(Unavailable, match="cannot be listed") as caught:
        LanceTables().list_tables("s3://lake/lake")
    assert caught.value.reason == "STORE_UNAVAILABLE"


def test_a_file_is_no_database(tmp_path):
    (tmp_path / "a file").write_text("")
    with pytest.raises(InvalidArgument) as caught:
        LanceTables().list_tables(str(tmp_path / "a file"))
    assert caught.value.reason == "BAD_DATABASE"
