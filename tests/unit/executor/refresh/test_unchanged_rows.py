"""Rows of a source that are the same in two versions: each thing that tells, and what it must not be taken for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from leman_core.model import keys
from leman_core.model.row_positions import addresses_of
from leman_core.model.row_states import Predecessor
from leman_core.model.table import CompactionHistory, DataFile, Fragment, Rewrite, TableField
from leman_core.storage.source_rows import RowFacts
from leman_core.storage.transactions import Kind, Transaction, VersionGone
from leman_executor.refresh import unchanged_rows
from leman_executor.refresh.unchanged_rows import (
    Ancestry,
    Origins,
    RowPairs,
    SourceSide,
    UnchangedRows,
    common_origin,
    may_hide_updates,
)

# whether `_row_last_updated_at_version` can be relied on


class Versions:
    """A dataset at a version, with the fields and fragments of each version."""

    def __init__(self, version: int) -> None:
        self.version, self.uri = version, "/t.lance"
        self.fields = [TableField(pa.field("x", pa.int64()), (0,)), TableField(pa.field("y", pa.int64()), (1,))]
        self.fragments: list[Fragment] = []
        self.others: dict[int, Versions] = {}

    def checkout_version(self, version: int) -> Versions:
        if version not in self.others:
            raise ValueError(f"version {version} is gone")
        return self.others[version]

    def with_ids(self, **ids: int) -> Versions:
        made = Versions(0)
        made.fields = [TableField(pa.field(name, pa.int64()), (number,)) for name, number in ids.items()]
        return made


@pytest.fixture
def history(monkeypatch):
    """What made each version from 2 to 5; by itself all are appends."""
    made = {version: Transaction(version, Kind.APPEND) for version in range(2, 6)}

    def read(version: int) -> Transaction:
        if version not in made:
            raise VersionGone(version)
        return made[version]

    monkeypatch.setattr(unchanged_rows, "Transactions", lambda _: SimpleNamespace(read=read))
    monkeypatch.setattr(unchanged_rows, "fields_of", lambda dataset: dataset.fields)
    monkeypatch.setattr(unchanged_rows, "read_fragments", lambda dataset: dataset.fragments)
    return made


def update(*, fields=(), bitmaps=None, offsets=None) -> SimpleNamespace:
    return SimpleNamespace(
        fields_modified=fields, updated_fragment_offset_bitmaps=bitmaps, updated_fragment_offsets=offsets
    )


@pytest.mark.parametrize("kind", sorted(unchanged_rows._HARMLESS))
def test_versions_that_move_the_column_or_change_no_value_hide_nothing(history, kind):
    history[4] = Transaction(4, kind)
    assert not may_hide_updates(Versions(5), 2, ["x"])
    assert not may_hide_updates(Versions(2), 5, ["x"])


def test_a_version_that_was_cleaned_away_may_hide_anything(history):
    del history[3]
    assert may_hide_updates(Versions(5), 2, ["x"])
    assert not may_hide_updates(Versions(5), 3, ["x"])


@pytest.mark.parametrize(
    ("operation", "hides"),
    [
        (update(), False),
        (update(fields=[0]), True),
        (update(fields=[0], bitmaps={0: b""}), False),
        (update(fields=[0], offsets={0: [1]}), False),
    ],
)
def test_an_update_in_place_says_of_which_rows(history, operation, hides):
    history[3] = Transaction(3, Kind.UPDATE, operation=operation)
    assert may_hide_updates(Versions(5), 2, ["x"]) is hides


@pytest.mark.parametrize(("restored", "hides"), [(2, False), (3, True)])
def test_what_a_restore_left_behind_hides_nothing(history, restored, hides):
    history[3] = Transaction(3, Kind.UPDATE, operation=update(fields=[0]))
    history[5] = Transaction(5, Kind.RESTORE, operation=SimpleNamespace(version=restored))
    assert may_hide_updates(Versions(5), 2, ["x"]) is hides


@pytest.mark.parametrize(
    ("kind", "before", "after", "files", "hides"),
    [
        (Kind.PROJECT, {"x": 0, "y": 1}, {"x": 0}, True, False),
        (Kind.PROJECT, {"x": 0, "y": 1}, {"x": 2, "y": 1}, False, True),
        (Kind.PROJECT, {"x": 0, "y": 1}, {"y": 1}, False, True),
        (Kind.UNKNOWN, {"x": 0}, {"x": 0}, False, False),
        (Kind.UNKNOWN, {"x": 0}, {"x": 0, "z": 3}, False, False),
        (Kind.UNKNOWN, {"x": 0}, {"x": 0}, True, True),
    ],
)
def test_a_version_of_another_kind_hides_nothing_where_columns_and_files_stay(
    history, kind, before, after, files, hides
):
    """`files`: whether the fragments differ; those of a projection are of fewer columns."""
    dataset = Versions(5)
    dataset.others = {2: dataset.with_ids(**before), 3: dataset.with_ids(**after)}
    dataset.others[3].fragments = [Fragment(9, 1, 0, ())] if files else []
    history[3] = Transaction(3, kind)
    assert may_hide_updates(dataset, 2, ["x"]) is hides
    del dataset.others[2]
    assert may_hide_updates(dataset, 2, ["x"])


# what compaction made of rows

X, Y = 0, 1
OTHERS = "in.lance"
COLUMN = keys.column_file_name("a" * 32, "1", partial=False)


def fragment(number: int, rows: int, x: str = "", y: str = "", deleted: int = 0) -> Fragment:
    """A fragment with x and y in one file, or in two."""
    x = x or f"{number}.lance"
    files = (DataFile(x, (X, Y)),) if not y else (DataFile(x, (X,)), DataFile(y, (Y,)))
    return Fragment(number, rows, deleted, files)


def rows(number: int, ids, offsets=None, updated: int = 1) -> RowFacts:
    offsets = range(len(ids)) if offsets is None else offsets
    places = addresses_of(number, np.array(offsets, np.int64))
    return RowFacts(np.array(ids, np.int64), places, np.full(len(ids), updated, np.int64))


def together(*parts: RowFacts) -> RowFacts:
    return RowFacts(*(np.concatenate([getattr(p, n) for p in parts]) for n in ("ids", "addresses", "updated")))


class Compacted:
    """Fragments 0 (ids 0–3, of which 1 was deleted) and 1 (ids 4–6) were compacted into fragment 2."""

    old = (fragment(0, 4, deleted=1), fragment(1, 3))
    alive: ClassVar = {0: rows(0, [0, 2, 3], [0, 2, 3]), 1: rows(1, [4, 5, 6])}

    def __init__(self, monkeypatch, new=None, made=None, predecessors=None, fields=(X, Y)) -> None:
        self.new = new or fragment(2, 6)
        made = made or fragment(2, 6)
        rewrite = Rewrite(3, self.old, (made,))
        monkeypatch.setattr(
            unchanged_rows.compaction_history,
            "trace_compactions",
            lambda *_: CompactionHistory({file.path: rewrite for file in made.files}),
        )
        monkeypatch.setattr(unchanged_rows, "read_predecessors", lambda _, file: (predecessors or {}).get(file, []))
        self.after = Ancestry("/t.lance", 4, fields, {2: self.new})
        self.before = Ancestry("/t.lance", 2, fields, {f.fragment_id: f for f in self.old})
        for ancestry in (self.after, self.before):
            ancestry._read = {(3, number): found for number, found in self.alive.items()}

    def moved(self, patched=lambda *_: None) -> list[int]:
        """The ids that only moved."""
        now = rows(2, [0, 2, 3, 4, 5, 6])
        before = together(*self.alive.values())
        found = Origins(self.after, self.before).only_moved(now, before, patched)
        return now.ids[found].tolist()


EVERY = [0, 2, 3, 4, 5, 6]


def changed(*places: int, size: int = 6) -> np.ndarray:
    mask = np.zeros(size, np.bool_)
    mask[list(places)] = True
    return mask


def test_rows_that_compaction_alone_moved_are_the_same(monkeypatch):
    assert Compacted(monkeypatch).moved() == EVERY


def test_rows_that_came_from_another_place_are_not(monkeypatch):
    world = Compacted(monkeypatch)
    now = rows(2, [0, 4])
    before = together(rows(1, [0]), rows(0, [4]))
    assert not Origins(world.after, world.before).only_moved(now, before, lambda *_: None).any()


def test_where_another_file_holds_a_column_now_that_no_one_vouches_for_rows_may_differ(monkeypatch):
    assert Compacted(monkeypatch, new=fragment(2, 6, "2.lance", "other.lance")).moved() == []
    assert Compacted(monkeypatch, new=fragment(2, 6, "2.lance", COLUMN)).moved() == []
    assert Compacted(monkeypatch, new=fragment(2, 6, "other.lance")).moved() == []


@pytest.mark.parametrize(("places", "same"), [((), EVERY), ((1, 5), [0, 3, 4, 5]), ((2, 3), [0, 2, 5, 6])])
def test_a_column_file_after_the_compaction_says_which_rows_it_changed(monkeypatch, places, same):
    known = {COLUMN: [Predecessor.of_mask("2.lance", changed(*places))]}
    world = Compacted(monkeypatch, new=fragment(2, 6, "2.lance", COLUMN), predecessors=known)
    assert world.moved() == same


def test_the_changes_of_all_columns_count(monkeypatch):
    other = keys.column_file_name("b" * 32, "1", partial=False)
    known = {
        COLUMN: [Predecessor.of_mask("2.lance", changed(0))],
        other: [Predecessor.of_mask("2.lance", changed(5))],
    }
    assert Compacted(monkeypatch, new=fragment(2, 6, other, COLUMN), predecessors=known).moved() == [2, 3, 4, 5]
    known[other] = []
    assert Compacted(monkeypatch, new=fragment(2, 6, other, COLUMN), predecessors=known).moved() == []
    known[other] = [Predecessor.of_mask("2.lance", changed(size=7))]
    assert Compacted(monkeypatch, new=fragment(2, 6, other, COLUMN), predecessors=known).moved() == []


@pytest.mark.parametrize(("number", "places", "same"), [(2, (1, 3), [0, 3]), (3, (0,), [6])])
def test_the_changes_of_one_of_two_new_fragments_say_nothing_of_rows_in_the_other(monkeypatch, number, places, same):
    """The first four rows lie in fragment 2, the others in 3: rows of fragment 1 lie in both."""
    made = (fragment(2, 4), fragment(3, 2))
    new = fragment(number, made[number - 2].physical_rows, f"{number}.lance", COLUMN)
    known = {COLUMN: [Predecessor.of_mask(f"{number}.lance", changed(*places, size=new.physical_rows))]}
    world = Compacted(monkeypatch, new=new, predecessors=known)
    history = CompactionHistory({f"{number}.lance": Rewrite(3, Compacted.old, made)})
    monkeypatch.setattr(unchanged_rows.compaction_history, "trace_compactions", lambda *_: history)
    ancestry = Ancestry("/t.lance", 4, (X, Y), {number: new})
    ancestry._read = dict(world.after._read)
    ancestry.trace([number], lambda _: False)
    found = np.concatenate([alive.ids for _, alive in ancestry.made_of(new)])
    assert found.tolist() == same


def test_a_file_that_had_other_columns_then_or_other_rows_tells_nothing(monkeypatch):
    made = fragment(2, 6, "2.lance", "y.lance")
    assert Compacted(monkeypatch, made=made).moved() == []
    assert Compacted(monkeypatch, made=fragment(2, 7)).moved() == []


def test_rows_that_the_old_version_cannot_place_are_changed_where_some_are(monkeypatch):
    """A row was deleted between the version that compaction read and the fragment that it names."""
    known = {COLUMN: [Predecessor.of_mask("2.lance", changed(5))]}
    world = Compacted(monkeypatch, new=fragment(2, 6, "2.lance", COLUMN), predecessors=known)
    world.after._read[3, 0] = rows(0, [0, 2], [0, 2])
    assert world.moved() == [4, 5]


def test_rows_whose_fragment_was_patched_before_it_was_compacted_are_told_by_the_patch(monkeypatch):
    world = Compacted(monkeypatch)
    world.before.fragments = {0: fragment(0, 4, "older.lance"), 1: fragment(1, 3)}
    assert world.moved(lambda *_: np.array([2])) == [0, 3, 4, 5, 6]
    assert world.moved() == [4, 5, 6]
    world.before.fragments = {0: fragment(0, 5), 1: fragment(1, 3)}
    assert world.moved(lambda *_: np.array([], np.int64)) == [4, 5, 6]


def test_rows_that_two_compactions_brought_out_of_one_place_are_the_same(monkeypatch):
    """A version was restored after a compaction, and compacted again."""
    world = Compacted(monkeypatch)
    here = there = rows(2, EVERY)

    def again(alive: RowFacts, *old: Fragment) -> list[int]:
        """The ids that came out of the same place, where the second compaction found these fragments."""
        other = Ancestry("/t.lance", 7, (X, Y), {2: world.new})
        other._read = {**world.after._read, (3, 0): alive}
        other._compactions = CompactionHistory({"2.lance": Rewrite(3, old, (fragment(2, 6),))})
        return here.ids[common_origin(world.after, here, other, there)].tolist()

    world.after.trace([2], lambda _: False)
    monkeypatch.setattr(Ancestry, "trace", lambda *_: None)
    assert again(Compacted.alive[0], *Compacted.old) == EVERY
    assert again(rows(0, [0, 3], [0, 3]), *Compacted.old) == [0, 3, 4, 5, 6]
    world.after._read[3, 1], world.after._ancestors = rows(1, [4, 6], [0, 2]), {}
    assert again(Compacted.alive[0], *Compacted.old) == [0, 2, 3, 4, 6]
    world.after._read[3, 1], world.after._ancestors = Compacted.alive[1], {}
    assert again(Compacted.alive[0], fragment(0, 4, "older.lance", deleted=1), fragment(1, 3)) == [4, 5, 6]


# all of it


class Unchanged(UnchangedRows):
    """Over two sides made by hand; `silently`: whether the versions in between may hide updates."""

    def __init__(self, monkeypatch, base, target, *, silently=False, ids=None) -> None:
        monkeypatch.setattr(unchanged_rows, "may_hide_updates", lambda *_: silently)
        monkeypatch.setattr(unchanged_rows.compaction_history, "trace_compactions", lambda *_: CompactionHistory())
        monkeypatch.setattr(unchanged_rows, "columns_read", lambda *_: ("x",))
        monkeypatch.setattr(unchanged_rows, "patched_offsets", self.patch)
        self.patches = {}
        definition = SimpleNamespace(source_uri="/t.lance", base_version=2, query=None)
        super().__init__(SimpleNamespace(definition=definition, target_version=4), lambda: self.side(2, base))
        self.__dict__["_dataset"] = None
        self.__dict__["_target"] = self.side(4, target, ids)

    def patch(self, _uri, before, after):
        return self.patches.get((before["x"], after["x"]))

    @staticmethod
    def side(version, fragments, ids=None) -> SourceSide:
        fields = [TableField(pa.field("x", pa.int64()), (X if ids is None else ids,))]
        return SourceSide(version, fields, lambda: fragments)


def one(number: int, file: str) -> Fragment:
    return Fragment(number, 4, 0, (DataFile(file, (X,)),))


def same_of(world: Unchanged, *, updated=(1, 1), place=(0, 0)) -> list[int]:
    pairs = RowPairs(rows(place[0], range(4), updated=updated[0]), rows(place[1], range(4), updated=updated[1]))
    return np.flatnonzero(world.unchanged(pairs)).tolist()


def test_rows_that_were_not_updated_are_the_same_where_nothing_hides_updates(monkeypatch):
    base, target = [one(0, "a")], [one(0, "b")]
    assert same_of(Unchanged(monkeypatch, base, target)) == [0, 1, 2, 3]
    assert same_of(Unchanged(monkeypatch, base, target), updated=(1, 2)) == []
    assert same_of(Unchanged(monkeypatch, base, target, silently=True)) == []
    assert same_of(Unchanged(monkeypatch, base, target), place=(0, 1)) == [0, 1, 2, 3]


def test_rows_that_stayed_are_the_same_but_for_those_that_their_file_changed(monkeypatch):
    world = Unchanged(monkeypatch, [one(0, "a")], [one(0, "b")], silently=True)
    world.patches["a", "b"] = np.array([1, 3])
    assert same_of(world) == [0, 2]
    world = Unchanged(monkeypatch, [one(0, "a")], [one(0, "b")], silently=True)
    world.patches["b", "a"] = np.array([0])
    assert same_of(world) == [1, 2, 3], "the view goes back to an earlier version"


def test_only_rows_of_the_fragment_that_was_patched_are_told_by_the_patch(monkeypatch):
    world = Unchanged(monkeypatch, [one(0, "a"), one(1, "c")], [one(0, "b"), one(1, "d")], silently=True)
    world.patches["a", "b"] = np.array([1])
    facts = together(rows(0, range(4)), rows(1, range(4, 8)))
    assert np.flatnonzero(world.unchanged(RowPairs(facts, facts))).tolist() == [0, 2, 3]


def test_a_fragment_that_one_side_lacks_or_a_column_in_two_files_tells_nothing(monkeypatch):
    for base, target in (([], [one(0, "b")]), ([one(0, "a")], [])):
        world = Unchanged(monkeypatch, base, target, silently=True)
        world.patches["a", "b"] = np.array([], np.int64)
        assert same_of(world) == []
    two = Fragment(0, 4, 0, (DataFile("a", (X,)), DataFile("b", (X,))))
    for base, target in (([two], [one(0, "b")]), ([one(0, "a")], [two])):
        world = Unchanged(monkeypatch, base, target, silently=True)
        world.patches["a", "b"] = np.array([], np.int64)
        assert same_of(world) == []


def test_a_name_that_means_another_column_now_tells_nothing(monkeypatch):
    world = Unchanged(monkeypatch, [one(0, "a")], [Fragment(0, 4, 0, (DataFile("b", (7,)),))], ids=7)
    world.patches["a", "b"] = np.array([], np.int64)
    assert same_of(world) == []


def test_a_patch_says_nothing_of_rows_that_came_from_elsewhere(monkeypatch):
    world = Unchanged(monkeypatch, [one(0, "a"), one(1, "c")], [one(0, "b")], silently=True)
    world.patches["a", "b"] = np.array([], np.int64)
    assert same_of(world, place=(1, 0)) == []


@pytest.mark.parametrize(("field", "same"), [(X, [0, 1, 2, 3]), (7, [])])
def test_rows_that_moved_are_the_same_unless_a_name_means_another_column(monkeypatch, field, same):
    target = Fragment(2, 4, 0, (DataFile("2.lance", (field,)),))
    world = Unchanged(monkeypatch, [one(0, "a")], [target], silently=True, ids=field)
    rewrite = Rewrite(3, (Fragment(0, 4, 0, (DataFile("a", (field,)),)),), (target,))
    history = CompactionHistory({"2.lance": rewrite})
    monkeypatch.setattr(unchanged_rows.compaction_history, "trace_compactions", lambda *_: history)
    monkeypatch.setattr(Ancestry, "_alive", lambda *_: rows(0, range(4)))
    assert same_of(world, updated=(1, 2), place=(0, 2)) == same
    world = Unchanged(monkeypatch, [target], [one(0, "a")], silently=True)
    monkeypatch.setattr(unchanged_rows.compaction_history, "trace_compactions", lambda *_: history)
    assert same_of(world, updated=(2, 1), place=(2, 0)) == same, "the view goes back to an earlier version"
