"""What made each version of a table, as the files say that this release of Lance and the two before it write."""

import json
import shutil
import tarfile
import warnings
from pathlib import Path
from types import SimpleNamespace

import lance
import pyarrow as pa
import pytest

from leman_coordinator.lance_io import row_commits
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_core.model.service_errors import NotFound, Unavailable
from leman_core.storage import compaction_history, manifest, transactions
from leman_core.storage.transactions import Kind, Transaction, Transactions, VersionGone
from leman_planner.views.refresh_reader import external_write
from tests.unit.core.lance_io.lance_histories import make_history

OLDER = sorted(Path(make_history.__file__).parent.glob("lance-*.tar.xz"))


@pytest.fixture(scope="module", params=[*OLDER, None], ids=lambda path: path.name[:-7] if path else "this release")
def history(request, tmp_path_factory):
    """Folder with the histories of two tables."""
    folder = tmp_path_factory.mktemp("history")
    if request.param is None:
        with warnings.catch_warnings(action="ignore"):
            make_history.archive(folder / "made.tar.xz")
    with tarfile.open(request.param or folder / "made.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder


@pytest.fixture(params=["stable", "addresses"])
def table(history, request, tmp_path):
    """A copy of one of the two, to be changed at will."""
    return Path(shutil.copytree(history / request.param, tmp_path / "t.lance"))


def made(table):
    return json.loads((table / "made.json").read_text())


def kinds(table):
    return [Transactions(str(table)).read(version).kind for version in range(1, len(made(table)["kinds"]) + 1)]


def without_sections(path):
    """The manifest as a Lance writes it that keeps transactions in files alone."""
    content = path.read_bytes()
    position, *rest = manifest._FOOTER.unpack(content[-manifest._FOOTER.size :])
    assert position == manifest.position_in(content)
    message = transactions._message("Manifest").FromString(manifest.message_in(content))
    message.ClearField("section")
    message.ClearField("older_section")
    changed = message.SerializeToString()
    path.write_bytes(
        b"x" * position + len(changed).to_bytes(4, "little") + changed + manifest._FOOTER.pack(position, *rest)
    )


def manifest_of(table, version):
    return table / "_versions" / manifest.manifest_file_name(version)


def side(fragment):
    return [[file.path for file in fragment.files], fragment.physical_rows, fragment.deleted_rows]


def stored(**fields):
    return transactions._message("Transaction")(uuid="an id", **fields).SerializeToString()


def decoded(content):
    return transactions._decoded(7, content, "")


def test_every_operation_is_known_by_its_name(table):
    assert len(OLDER) == 2
    assert kinds(table) == made(table)["kinds"]
    assert len(set(made(table)["kinds"])) == 13


def test_the_file_of_a_transaction_is_read_where_the_manifest_does_not_hold_it(table):
    for path in (table / "_versions").glob("*.manifest"):
        without_sections(path)
    assert kinds(table) == made(table)["kinds"]


def test_the_manifest_is_read_where_it_holds_the_transaction(table):
    shutil.rmtree(table / "_transactions")
    assert kinds(table) == made(table)["kinds"]


def test_what_is_stored_nowhere_is_unknown(table):
    shutil.rmtree(table / "_transactions")
    without_sections(manifest_of(table, 4))
    assert Transactions(str(table)).read(4) == Transaction(4, Kind.UNKNOWN)


def test_a_uri_is_read_as_a_path_is(table):
    assert Transactions(f"file://{table}").read(2) == Transactions(str(table)).read(2)


def test_a_place_that_holds_another_transaction_is_not_believed(table):
    """As where a writer takes the place over from an older manifest without knowing what it says."""
    path, other = manifest_of(table, 4), manifest_of(table, 5)
    assert made(table)["kinds"][3] != made(table)["kinds"][4]
    _, *rest = manifest._FOOTER.unpack(path.read_bytes()[-manifest._FOOTER.size :])
    where = transactions._message("Manifest").FromString(manifest.message_in(path.read_bytes()))
    strange = other.read_bytes()[: manifest.position_in(other.read_bytes())]
    theirs = transactions._message("Manifest").FromString(manifest.message_in(other.read_bytes()))
    where.section = theirs.section if theirs.HasField("section") else theirs.older_section
    message = where.SerializeToString()
    gap = b"no block"  # what precedes a manifest need not be blocks alone
    path.write_bytes(
        strange
        + gap
        + len(message).to_bytes(4, "little")
        + message
        + manifest._FOOTER.pack(len(strange) + len(gap), *rest)
    )
    assert Transactions(str(table)).read(4).kind == made(table)["kinds"][3]


def test_a_manifest_that_is_too_large_to_be_read_at_once(table, monkeypatch):
    monkeypatch.setattr(transactions, "_TAIL", 20)
    assert kinds(table) == made(table)["kinds"]


@pytest.mark.parametrize("content", [b"", b"nonsense", b"x" * 100 + manifest._FOOTER.pack(90, 0, 2, b"LANC")])
def test_a_damaged_manifest_tells_nothing(table, content):
    manifest_of(table, 4).write_bytes(content)
    assert Transactions(str(table)).read(4).kind is Kind.UNKNOWN


def test_a_version_that_was_cleaned_is_gone(table):
    manifest_of(table, 4).unlink()
    with pytest.raises(VersionGone):
        Transactions(str(table)).read(4)
    with pytest.raises(VersionGone):
        Transactions(str(table / "none")).read(1)


def test_properties_come_back(table):
    version = made(table)["kinds"].index("DataReplacement") + 1
    found = Transactions(str(table)).read(version)
    assert found.properties == {"made by": "hand", "é": "ü"}
    assert [(g.fragment_id >= 0, g.new_file.path) for g in found.operation.replacements] == [(True, "given.lance")]


def test_compactions_are_what_lance_says_of_them(table):
    told = {int(version): groups for version, groups in made(table)["rewrites"].items()}
    assert len(told) == 4
    assert sum(groups is not None for groups in told.values()) >= 2
    for version, groups in told.items():
        found = list(compaction_history.rewrites_of(Transactions(str(table)).read(version)))
        assert len(found) == 1
        assert sum(f.live_rows for f in found[0].old) == sum(f.physical_rows for f in found[0].new)
        sides = [[side(f) for f in fragments] for fragments in (found[0].old, found[0].new)]
        assert groups is None or groups == [sides]


def test_tables_with_the_older_names_of_versions(tmp_path):
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": [1]}), uri, enable_v2_manifest_paths=False)
    lance.write_dataset(pa.table({"x": [2]}), uri, mode="append")
    assert (tmp_path / "t.lance/_versions/2.manifest").exists()
    assert Transactions(uri).read(2).kind is Kind.APPEND


def test_a_cloned_table(tmp_path):
    dataset = lance.write_dataset(pa.table({"x": [1]}), str(tmp_path / "t.lance"))
    clone = dataset.shallow_clone(str(tmp_path / "clone.lance"), 1)
    assert Transactions(clone.uri).read(int(clone.version)).kind is Kind.CLONE


@pytest.mark.parametrize("kind", [k for k in Kind if k is not Kind.UNKNOWN])
def test_operations_without_content_are_told_apart(kind):
    assert decoded(stored(**{kind.name.lower(): b""})).kind is kind


def test_an_operation_of_a_later_lance_is_unknown_with_its_properties():
    content = stored(properties=[{"key": "a", "value": "b"}]) + b"\x8a\x08\x02\x08\x01"  # field 129
    assert decoded(content) == Transaction(7, Kind.UNKNOWN, {"a": "b"})


def test_a_rewrite_that_says_more_than_is_understood_is_unknown():
    group = transactions._message("Rewrite")(groups=[{}]).SerializeToString()
    assert decoded(stored(rewrite=group)).kind is Kind.REWRITE
    assert decoded(stored(rewrite=group + b"\x50\x01")).kind is Kind.UNKNOWN  # field 10
    assert decoded(stored(rewrite=b"\x1a\x02\x50\x01")).kind is Kind.UNKNOWN  # the same of a group


def test_a_damaged_operation_is_unknown():
    assert decoded(stored(append=b"\xff\xff")).kind is Kind.UNKNOWN


@pytest.mark.parametrize(
    "read",
    [
        lambda uri: list(TableHandle(uri).records(0, 10)),
        lambda uri: transactions.find_commit(uri, "a request"),
        lambda uri: transactions.list_commits(uri, 0, 10),
        lambda uri: row_commits._take_back(TableHandle(uri), SimpleNamespace(version=2)),
        lambda uri: external_write(uri, 2),
    ],
    ids=["records", "find_commit", "list_commits", "take_back", "external_write"],
)
def test_a_store_that_is_busy_is_told_from_a_bug(tmp_path, monkeypatch, read):
    """Callers come again for the one: a history that could not be read ended their changes as INTERNAL_BUG."""

    def busy(self, path):
        raise OSError("When reading information for key 't.lance': AWS Error SLOW_DOWN during HeadObject operation")

    uri = str(tmp_path / "t.lance")
    for n in range(2):
        lance.write_dataset(pa.table({"x": [n]}), uri, mode="append" if n else "create")
    monkeypatch.setattr(Transactions, "_open", busy)
    with pytest.raises(Unavailable) as raised:
        read(uri)
    assert raised.value.reason == "STORE_UNAVAILABLE"


@pytest.mark.parametrize("missing", [True, False])
def test_a_history_that_is_gone_or_makes_no_sense_cannot_be_read(tmp_path, monkeypatch, missing):
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(pa.table({"x": [1]}), uri)

    def broken(*_):
        raise FileNotFoundError(2, "No such file") if missing else ValueError("no transaction")

    monkeypatch.setattr(compaction_history, "transactions_up_to", broken)
    for read in (
        lambda: compaction_history.trace_compactions(uri, 1, ["a.lance"], lambda _: ()),
        lambda: compaction_history.compactions_between(uri, 1, 2),
    ):
        with pytest.raises(NotFound) as caught:
            read()
        assert caught.value.reason == "HISTORY_UNREADABLE"
