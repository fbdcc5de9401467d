"""What may be deleted: the rule alone, on made-up tables."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import event, given, settings

from leman._format.view_definitions import BASE_RECORD, FAILED
from leman_coordinator.garbage.retention import (
    CLOCK_SKEW,
    REFRESH,
    Inventory,
    PartialStates,
    Uses,
    decide_retention,
    removal_order,
)
from leman_core.model import keys
from leman_core.model.garbage import DAY, Fate, OpenJob, StoredFile, StoredKind, Use
from leman_core.model.row_positions import RowRange
from leman_core.model.table import TableSnapshot
from tests.unit.commit_coordinator.garbage_world import (
    NOW,
    X,
    data,
    family,
    fingerprint,
    inventory,
    record,
    snapshot,
    stored,
    worlds,
)

FULL = keys.column_file_name(fingerprint("a.lance"), "1", partial=False)
PARTIAL = keys.column_file_name(fingerprint("a.lance"), "2", partial=True)
STAGED = keys.column_file_name(fingerprint("a.lance"), "3", partial=False)
EMPTY, DONE = snapshot(1, [(0, "a.lance", "")]), snapshot(2, [(0, "a.lance", FULL)])


def range_key(source="a.lance", where="", covered=(0, 5), **of):
    return keys.range_key(family(**of).prefix(where, [(X, source)]), 0, RowRange(*covered))


def record_key(source="a.lance", **of):
    return keys.record_key(family(**of).prefix("", [(X, source)]), 0)


def decision(file, *versions, **more):
    (found,) = decide_retention(inventory([file], *versions, **more))
    return found.use, found.fate


@settings(max_examples=400)
@given(worlds())
def test_nothing_needed_goes_and_all_garbage_does(world):
    decisions = decide_retention(world.inventory())
    judged = {v.file.name: v for v in decisions}
    referred = {f for fragments in world.history for _, _, f in fragments.values()}
    assert set(judged) == {f.name for f in world.files if f.name not in referred}
    kept_records = {
        world.records[n].file for n, v in judged.items() if n in world.records and v.fate is not Fate.GARBAGE
    }
    for name, found in judged.items():
        file = found.file
        of_a_job = any(
            file.modified >= j.created_at - CLOCK_SKEW or f"_col-{j.column}_" in file.key for j in world.jobs
        )
        staged = file.folder == "data"
        at_least = DAY if staged and (world.older_than or world.jobs) else 0
        old = NOW - file.modified >= max(world.older_than, at_least)
        goes = not world.needed[name] and not of_a_job and old and name not in kept_records
        assert (found.fate is Fate.GARBAGE) == goes, found
        event(f"{found.kind.value} {found.use.value} {found.fate.value}")


@settings(max_examples=150)
@given(worlds())
def test_older_versions_only_matter_where_the_newer_leave_a_question(world):
    """What the collector does to save reading the whole history changes no decision."""
    whole = world.inventory()
    newest, *older = world.snapshots()
    uses = Uses(newest, own_folder=True)
    left = uses.unexplained(world.files)
    for version in older:
        if not left:
            break
        uses.add(version)
        left = uses.unexplained(left)
    lazy = inventory(world.files, newest, older_than=world.older_than)
    lazy = dataclasses.replace(lazy, uses=uses, records=whole.records, states=whole.states, jobs=whole.jobs)
    fates = {v.file.name: v.fate for v in decide_retention(whole)}
    assert {v.file.name: v.fate for v in decide_retention(lazy)} == fates


@settings(max_examples=100)
@given(worlds())
def test_a_second_collection_finds_nothing(world):
    """Deleting is idempotent, and may stop anywhere: what was garbage in the rest still is."""
    first = world.inventory()
    order = removal_order(decide_retention(first))
    for stopped_after in range(len(order) + 1):
        gone = set(order[:stopped_after])
        world.files = [f for f in first.files if f not in gone]
        left = removal_order(decide_retention(world.inventory()))
        assert set(left) == set(order) - gone


def test_records_go_before_the_files_that_they_name():
    files = [data(STAGED), stored(record_key(version="0"), name="r.lance")]
    found = inventory(files, EMPTY, records={"r.lance": record(STAGED, "a.lance")})
    assert [f.folder for f in removal_order(decide_retention(found))] == ["_checkpoints", "data"]


@pytest.mark.parametrize(
    ("key", "versions", "expected"),
    [
        (range_key(), [EMPTY], (Use.OPEN, Fate.KEPT)),
        (range_key(), [DONE], (Use.SETTLED, Fate.GARBAGE)),
        (range_key(), [DONE, EMPTY], (Use.SETTLED, Fate.GARBAGE)),
        (range_key(where="x > 1"), [EMPTY], (Use.OPEN, Fate.KEPT)),
        (range_key(name="g"), [EMPTY], (Use.OTHER_FUNCTION, Fate.GARBAGE)),
        (range_key(version="2"), [EMPTY], (Use.OTHER_FUNCTION, Fate.GARBAGE)),
        (range_key(column="z"), [EMPTY], (Use.NO_COLUMN, Fate.GARBAGE)),
        (range_key(), [snapshot(3, [(0, "a.lance", "")], with_column=False)], (Use.NO_COLUMN, Fate.GARBAGE)),
        (range_key("b.lance"), [EMPTY], (Use.NO_SOURCES, Fate.GARBAGE)),
        (range_key("b.lance"), [EMPTY, snapshot(0, [(0, "b.lance", "")])], (Use.OPEN, Fate.KEPT)),
        ("a stranger's", [EMPTY], (Use.UNKNOWN, Fate.KEPT)),
        ("a stranger's_frag-0_range-0-5", [EMPTY], (Use.UNKNOWN, Fate.KEPT)),
        ("fragment_data_file:abc", [EMPTY], (Use.LEGACY, Fate.GARBAGE)),
        ("0123456789abcdef" * 4, [EMPTY], (Use.LEGACY, Fate.GARBAGE)),
        (
            f"udf-f_ver-1_col-y_where-{'0' * 32}_uri-{'1' * 32}_ver-7_frag-0_range-0-5",
            [EMPTY],
            (Use.LEGACY, Fate.GARBAGE),
        ),
    ],
)
def test_checkpoints(key, versions, expected):
    assert decision(stored(key), *versions) == expected


@pytest.mark.parametrize("age", [0.0, 6.9 * DAY])
def test_young_garbage_stays(age):
    assert decision(stored(range_key(), age), DONE) == (Use.SETTLED, Fate.YOUNG)
    assert decision(stored(range_key(), 3600), DONE, older_than=60) == (Use.SETTLED, Fate.GARBAGE)


def test_a_partial_file_settles_its_filters_and_the_ranges_without_open_rows():
    table = snapshot(2, [(0, "a.lance", PARTIAL)])
    states = {PARTIAL: PartialStates((RowRange(5, 10),), frozenset({keys.md5("x > 1")}))}

    def use(**key):
        return decision(stored(range_key(**key)), table, states=states)[0]

    assert use(covered=(0, 5)) is Use.SETTLED
    assert use(covered=(4, 6)) is Use.OPEN
    assert use(covered=(4, 6), where="x > 1") is Use.SETTLED
    assert use(covered=(4, 6), where="x > 2") is Use.OPEN
    assert decision(stored(range_key(covered=(0, 5))), table)[0] is Use.OPEN, (
        "states that cannot be read settle nothing"
    )


def test_a_fragment_without_rows_needs_no_checkpoint():
    (fragment,) = EMPTY.fragments
    gone = dataclasses.replace(EMPTY, fragments=(fragment._replace(deleted_rows=fragment.physical_rows),))
    assert decision(stored(range_key()), gone) == (Use.SETTLED, Fate.GARBAGE)


def test_records():
    key = record_key()
    known = {"r.lance": record(STAGED, "a.lance")}
    file = stored(key, name="r.lance")

    def use(*versions, names=(STAGED,), records=known):
        return decide_retention(inventory([file, *map(data, names)], *versions, records=records))[0].use

    assert use(EMPTY) is Use.OPEN
    assert use(EMPTY, names=()) is Use.FILE_MISSING
    assert use(DONE) is Use.SETTLED
    assert use(snapshot(3, [(0, "a.lance", STAGED)]), names=()) is Use.SETTLED
    assert use(EMPTY, records={"r.lance": None}) is Use.LEGACY
    dropped = keys.column_file_name(fingerprint("a.lance", column_id="old"), "4", partial=False)
    old = {"r.lance": record(dropped, "a.lance", "old")}
    assert use(EMPTY, names=(dropped,), records=old) is Use.NOT_INSTALLABLE
    assert use(snapshot(3, [(0, "b.lance", "")])) is Use.NO_SOURCES


def test_a_record_that_says_more_than_the_name_of_its_file_stays():
    """A compacted file has a name of Lance's: only the record knows what it holds."""
    table = snapshot(3, [(0, "a.lance", "compacted.lance")])
    found = inventory(
        [stored(record_key(), name="r.lance")], table, records={"r.lance": record("compacted.lance", "a.lance")}
    )
    assert [v.use for v in decide_retention(found)] == [Use.OPEN]
    found = inventory([stored(record_key(), name="r.lance")], DONE, records={"r.lance": record(FULL, "b.lance")})
    assert [v.use for v in decide_retention(found)] == [Use.OPEN], "a column file's name may say of other inputs"


@pytest.mark.parametrize("name", ["view", "placeholders", "rows"])
def test_files_of_rows_that_no_version_refers_to(name):
    file = data(f"{name}-{'0' * 32}.lance")
    assert decision(file, EMPTY) == (Use.UNREFERENCED, Fate.GARBAGE)
    assert decision(dataclasses.replace(file, name=f"{name}-x.lance"), EMPTY) == (Use.UNKNOWN, Fate.KEPT)


def test_column_files():
    assert decide_retention(inventory([data(FULL)], DONE)) == []
    assert decide_retention(inventory([data(FULL)], EMPTY, DONE)) == [], "an older version refers to it"
    assert decision(data(FULL), EMPTY) == (Use.UNREFERENCED, Fate.GARBAGE)
    assert decision(data(FULL, 3600), EMPTY, older_than=60) == (Use.UNREFERENCED, Fate.YOUNG), "it may be being written"
    assert decision(data(FULL, 3600), EMPTY, older_than=0) == (Use.UNREFERENCED, Fate.GARBAGE)
    job = OpenJob("j", "other", NOW)
    assert decision(data(FULL, 3600), EMPTY, older_than=0, jobs=[job]) == (Use.UNREFERENCED, Fate.YOUNG)
    assert decision(data(FULL, 3600), EMPTY, older_than=0, alone=False) == (Use.UNREFERENCED, Fate.YOUNG)
    assert decision(data(FULL, 2 * DAY), EMPTY, older_than=0, alone=False) == (Use.UNREFERENCED, Fate.GARBAGE)


def test_checkpoints_from_before_a_table_was_moved_are_needed_where_they_are_its_own():
    moved = stored(keys.range_key(family(uri="/before/t.lance").prefix("", [(X, "a.lance")]), 0, RowRange(0, 4)))
    assert decision(moved, EMPTY) == (Use.OPEN, Fate.KEPT)
    assert decision(moved, DONE) == (Use.SETTLED, Fate.GARBAGE)
    shared = dataclasses.replace(inventory([moved], EMPTY), uses=Uses(EMPTY, own_folder=False))
    assert decide_retention(shared)[0].use is Use.OTHER_FUNCTION


def test_what_another_branch_refers_to_stays():
    uses = Uses(EMPTY, own_folder=True)
    uses.refer(DONE)
    found = inventory([data(FULL), stored(range_key())], EMPTY)
    found = Inventory(now=found.now, older_than=0, uses=uses, files=found.files)
    assert [(v.kind, v.use) for v in decide_retention(found)] == [(StoredKind.CHECKPOINT, Use.OPEN)]


def test_unfinished_and_damaged_files():
    assert decision(stored("", name="k.123.damaged"), EMPTY) == (Use.DAMAGED, Fate.GARBAGE)
    assert decision(stored("", name=".tmpAbC1"), EMPTY) == (Use.UNFINISHED, Fate.GARBAGE)
    assert decision(stored("", 60, name=".tmpAbC1"), EMPTY, older_than=0) == (Use.UNFINISHED, Fate.GARBAGE)
    assert decision(data(".tmpAbC1", 60), EMPTY, older_than=0) == (Use.UNFINISHED, Fate.YOUNG), "not all are Leman's"
    assert decision(stored("", name="key-unreadable.lance"), EMPTY) == (Use.UNKNOWN, Fate.KEPT)


def test_a_job_that_has_not_ended_keeps_what_it_may_need():
    old = OpenJob("j", "y", NOW - DAY)
    assert decision(stored(range_key(version="2")), EMPTY, jobs=[old]) == (Use.OTHER_FUNCTION, Fate.JOB)
    other = OpenJob("j", "z", NOW - DAY)
    assert decision(stored(range_key(version="2")), EMPTY, jobs=[other]) == (Use.OTHER_FUNCTION, Fate.GARBAGE)
    assert decision(stored(range_key(version="2"), DAY / 2), EMPTY, jobs=[other], older_than=0)[1] is Fate.JOB


def test_a_view_s_records_of_its_source_stay_while_a_version_names_them():
    """An older version may be restored."""

    def view(version: int, record: str, failed: str) -> TableSnapshot:
        metadata = {BASE_RECORD.encode(): record.encode(), FAILED.encode(): json.dumps({"file": failed}).encode()}
        return dataclasses.replace(snapshot(version, []), metadata=metadata)

    names = ["source-3-c.arrow", "source-2-b.arrow", "failed-e.arrow", "source-1-a.arrow", "failed-d.arrow"]
    names.append("evictions.arrow")
    files = [StoredFile(folder=REFRESH, name=name, size_bytes=100, modified=NOW - 30 * DAY) for name in names]
    uses = Uses(view(9, names[0], ""), own_folder=True)
    assert uses.unexplained(files) == files[1:5]
    uses.add(view(8, names[1], names[2]))
    decisions = decide_retention(Inventory(now=NOW, older_than=7 * DAY, uses=uses, files=files))
    assert [v.file.name for v in decisions if v.fate is Fate.GARBAGE] == names[3:]


def test_what_a_refresh_has_just_put_beside_a_view_stays_whatever_age_is_asked_for():
    """No history knows of one that is over within its call, and its commit may be about to name the file."""
    ages = {"source-1-a.arrow": 0, "failed-d.arrow": 240, "source-2-b.arrow": 360}
    files = [StoredFile(folder=REFRESH, name=n, size_bytes=100, modified=NOW - age) for n, age in ages.items()]
    inventory = Inventory(now=NOW, older_than=0, uses=Uses(snapshot(9, []), own_folder=True), files=files, alone=True)
    fates = {v.file.name: v.fate for v in decide_retention(inventory)}
    assert [fates[name] for name in ages] == [Fate.YOUNG, Fate.YOUNG, Fate.GARBAGE]
