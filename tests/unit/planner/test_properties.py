"""The planner over generated tables and left-overs of earlier runs, against an oracle of its own."""

import dataclasses
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from leman_core.model import keys
from leman_core.model.plan import Reason
from leman_core.model.row_positions import RowRange
from leman_core.model.row_states import StateSummary
from leman_core.model.table import DataFile
from tests.shares import examples
from tests.unit.planner.planner_helpers import (
    COLUMN_ID,
    OTHER,
    UDF,
    URI,
    column_file,
    fingerprint,
    fragment,
    pairs,
    plan,
    prefix,
    range_key,
    record,
    resolved,
)

WHERE = "x > 1"
UDF_2 = dataclasses.replace(UDF, version="2")
STRANGE = "f_frag-3_range-0-10"
STRANGE_UDF = dataclasses.replace(UDF, name=STRANGE)
FILTERS = st.sampled_from(["", WHERE, "x > 2"])
CURRENT = st.sampled_from(["", "full", "partial", "udf", "input", "column", "external"])
LEGACY = f"udf-f_ver-1_col-c_where-{keys.md5('')}_uri-{keys.md5(URI)}_ver-3"


@dataclasses.dataclass
class World:
    """A table and everything that earlier runs left behind."""

    fragments: list
    where: str
    states: dict
    found: list
    records: dict
    meant: dict

    def asked(self, **options):
        return resolved(self.fragments, self.where, names={"x"}, **options)

    def plan(self, **options):
        return plan(self.asked(**options), found=self.found, records=self.records, states=self.states)


def current_name(kind, fragment_id):
    return {
        "": "",
        "full": column_file(fragment_id),
        "partial": column_file(fragment_id, partial=True),
        "udf": column_file(fragment_id, udf=UDF_2),
        "input": column_file(fragment_id, source="old"),
        "column": column_file(fragment_id, column_id="d" * 32),
        "external": f"{fragment_id:050b}.lance",
    }[kind]


@st.composite
def summaries(draw, rows):
    untouched = draw(st.integers(0, rows))
    failed = draw(st.integers(0, rows - untouched))
    filters = draw(st.frozensets(FILTERS.filter(bool).map(keys.md5)))
    return StateSummary(untouched=untouched, failed=failed, computed=rows - untouched - failed, filters=filters)


@st.composite
def range_keys(draw, fragment_id, rows):
    start, end = draw(st.integers(0, rows + 1)), draw(st.integers(0, rows + 1))
    changed = draw(
        st.sampled_from([{}, {}, {}, {"udf": UDF_2}, {"source": "old"}, {"column": "d"}, {"column": STRANGE}])
    )
    where = draw(FILTERS)
    usable = not changed and start < end <= rows
    meaning = (fragment_id, where, RowRange(start, end)) if usable else None
    return range_key(fragment_id, start, end, where, **changed), meaning


@st.composite
def records(draw, fragment_id, rows, current):
    file = draw(
        st.sampled_from(
            [column_file(fragment_id, "s1"), column_file(fragment_id, "s2", partial=True), "external.lance"]
        )
    )
    made = record(fragment_id, column_file(fragment_id), rows=rows, replaces=current)
    changes = draw(st.sampled_from([{}, {}, {"replaces": "gone.lance"}, {"column_id": "d" * 32}]))
    where = draw(FILTERS)
    return keys.record_key(prefix(fragment_id, where), fragment_id), dataclasses.replace(made, file=file, **changes)


@st.composite
def worlds(draw):
    fragments, states, meant, staged = [], {}, {LEGACY: None, f"{LEGACY}_frag-0_range-0-9": None}, {}
    for fragment_id in draw(st.lists(st.integers(0, 20), unique=True, max_size=3)):
        rows = draw(st.integers(1, 8))
        current = current_name(draw(CURRENT), fragment_id)
        fragments.append(fragment(fragment_id, rows, deleted=draw(st.integers(0, rows)), current=current))
        meant.update(draw(st.lists(range_keys(fragment_id, rows), max_size=4)))
        if draw(st.booleans()):
            key, made = draw(records(fragment_id, rows, current))
            staged[key] = made
        for file in (current, column_file(fragment_id, "s2", partial=True)):
            if "partial" in file and draw(st.booleans()):
                states[file] = draw(summaries(rows))
    return World(fragments, draw(FILTERS), states, list(meant), staged, meant)


def settled_by_file(world, one):
    """Written out from the rules: are the fragment's current values all that is asked for?"""
    file = next((f.path for f in one.files if 2 in f.field_ids), "")
    if one.live_rows == 0 or file.startswith(fingerprint(one.fragment_id) + "-a"):
        return True
    states = world.states.get(file)
    if not file.startswith(fingerprint(one.fragment_id)) or states is None:
        return False
    return states.untouched == 0 or (bool(world.where) and keys.md5(world.where) in states.filters)


def known_keys(world, one, *, same_filter):
    """Checkpoints of this fragment's rows, by key."""
    return {
        key: meaning[2]
        for key, meaning in world.meant.items()
        if meaning and meaning[0] == one.fragment_id and (meaning[1] == world.where) == same_filter
    }


def keeps_values(world, one):
    """Rows outside of the filter keep the values of another function's file, or of an unknown one."""
    file = next((f.path for f in one.files if 2 in f.field_ids), "")
    ours = file.startswith(fingerprint(one.fragment_id)) and file in world.states
    return bool(world.where and file and not ours)


def offsets(ranges):
    return {o for r in ranges for o in range(r.start, r.end)}


@settings(max_examples=examples(700))
@given(worlds())
def test_every_offset_is_settled_or_missing_and_never_both(world):
    made = world.plan()
    tasks = {task.fragment_id: task for task in made.tasks}
    assert sorted(tasks) == [task.fragment_id for task in made.tasks]
    for one in world.fragments:
        task = tasks.get(one.fragment_id)
        assert (task is None) == settled_by_file(world, one)
        if task is None:
            continue
        missing = offsets(task.missing)
        if task.staged is not None:
            assert task.staged.file in {r.file for r in world.records.values()}
            assert task.staged.file.startswith(fingerprint(one.fragment_id))
            assert (missing, task.checkpoints) == (set(), ())
            continue
        settling = {ref.key: ref.range for ref in task.checkpoints if ref.settles}
        others = {ref.key: ref.range for ref in task.checkpoints if not ref.settles}
        same, known = known_keys(world, one, same_filter=True), known_keys(world, one, same_filter=False)
        if keeps_values(world, one):
            same, known = {}, same | known
        assert settling.items() <= same.items()
        assert others == known
        assert missing == set(range(one.physical_rows)) - offsets(same.values())
        assert missing.isdisjoint(offsets(settling.values()))
        assert missing | offsets(settling.values()) == set(range(one.physical_rows))


@settings(max_examples=examples(250))
@given(worlds())
def test_the_counts_add_up(world):
    header = world.plan().header
    live = sum(one.live_rows for one in world.fragments)
    assert header.rows_total == live == sum(count.rows for count in header.reasons)
    assert header.rows_reused + header.rows_to_compute == live
    assert sum(count.fragments for count in header.reasons) == len(world.fragments)
    assert header.rows_to_compute >= 0
    assert header.rows_reused >= 0


@settings(max_examples=examples(150))
@given(worlds(), st.randoms(use_true_random=False))
def test_the_same_stored_work_in_any_order_gives_the_same_plan(world, shuffler: random.Random):
    first = world.plan()
    assert world.plan() == first
    shuffler.shuffle(world.found)
    shuffler.shuffle(world.fragments)
    world.records = dict(shuffler.sample(list(world.records.items()), len(world.records)))
    again = world.plan()
    assert (again.header, again.tasks) == (first.header, first.tasks)


@settings(max_examples=examples(150))
@given(worlds(), st.lists(st.sampled_from(["", "_frag-{}_range-0-12", "_srcfiles-x_frag-{}_range-0-12"])))
def test_a_legacy_key_is_never_used(world, endings):
    first = world.plan()
    world.found += [LEGACY + ending.format(one.fragment_id) for one in world.fragments for ending in endings]
    world.found += [f"fragment_data_file:{URI}:{one.fragment_id}" for one in world.fragments]
    assert world.plan() == first
    assert not any(ref.key.startswith(LEGACY) for task in first.tasks for ref in task.checkpoints)


@settings(max_examples=examples(150))
@given(worlds())
def test_an_unrelated_column_file_changes_nothing(world):
    first = world.plan()
    world.fragments = [one._replace(files=(*one.files, DataFile("z.lance", (OTHER,)))) for one in world.fragments]
    later = world.plan()
    assert (later.tasks, later.header) == (first.tasks, first.header)


@settings(max_examples=examples(150))
@given(worlds(), st.data())
def test_a_deletion_opens_nothing(world, data):
    first = {task.fragment_id: task for task in world.plan().tasks}
    world.fragments = [
        one._replace(deleted_rows=data.draw(st.integers(one.deleted_rows, one.physical_rows)))
        for one in world.fragments
    ]
    for task in world.plan().tasks:
        before = first[task.fragment_id]._replace(deleted_rows=task.deleted_rows)
        assert task == before


@settings(max_examples=examples(150))
@given(st.sets(st.integers(0, 9), min_size=1), st.data())
def test_a_rewritten_input_makes_its_fragment_stale_and_no_other(ids, data):
    changed = data.draw(st.sets(st.sampled_from(sorted(ids))))
    fragments = [fragment(i, 5, source="new" if i in changed else "in", current=column_file(i)) for i in sorted(ids)]
    made = plan(resolved(fragments), found=[range_key(i, 0, 5) for i in ids])
    assert {task.fragment_id: task.reason for task in made.tasks} == dict.fromkeys(changed, Reason.INPUT_CHANGED)
    assert all(task.missing == (RowRange(0, 5),) for task in made.tasks)


@settings(max_examples=examples(150))
@given(worlds())
def test_another_version_of_the_function_uses_nothing_of_this_one(world):
    world.found = [key for key in world.found if "_ver-2_" not in key]
    for one, task in zip(
        sorted(world.fragments, key=lambda f: f.fragment_id), world.plan(udf=UDF_2).tasks, strict=False
    ):
        current = next((f.path for f in one.files if 2 in f.field_ids), "")
        assert (task.checkpoints, task.staged, task.extend_current) == ((), None, False)
        if current.startswith(fingerprint(one.fragment_id)) and one.fragment_id == task.fragment_id:
            assert task.reason is Reason.UDF_CHANGED


@settings(max_examples=examples(150))
@given(worlds())
def test_a_column_that_was_dropped_and_added_again_reuses_checkpoints_but_no_file(world):
    """Lance may give the new column the old field id."""
    fragments = [one._replace(files=tuple(f for f in one.files if 2 not in f.field_ids)) for one in world.fragments]
    never_filled = dataclasses.replace(world, fragments=fragments, records={}).plan()
    again = dataclasses.replace(world, fragments=fragments).plan(column_id="e" * 32)
    assert all(task.staged is None and task.current_file == "" for task in again.tasks)
    covered = [(t.fragment_id, t.missing, t.checkpoints) for t in again.tasks]
    assert covered == [(t.fragment_id, t.missing, t.checkpoints) for t in never_filled.tasks]
    kept_files = world.plan(column_id="e" * 32)
    assert len(kept_files.tasks) == sum(one.live_rows > 0 for one in world.fragments)
    assert all(task.staged is None for task in kept_files.tasks)


@settings(max_examples=examples(150))
@given(worlds(), st.sampled_from([STRANGE, "c_where-" + keys.md5(""), "c_frag-3_file", 'c "d" é']))
def test_names_that_look_like_keys_do_no_harm(world, column):
    """A column whose name continues another's key finds its own checkpoints and not the other's."""
    family = keys.KeyFamily(udf_name=STRANGE, udf_version="1", column=column, uri=URI)
    own = [
        keys.range_key(family.prefix("", pairs(one.fragment_id)), one.fragment_id, RowRange(0, 1))
        for one in world.fragments
    ]
    asked = resolved(world.fragments, udf=STRANGE_UDF, column=column, column_id=COLUMN_ID)
    made = plan(asked, found=[*world.found, *own], records=world.records)
    for task in made.tasks:
        assert [ref.range for ref in task.checkpoints] == [RowRange(0, 1)]
        assert task.checkpoints[0].key in own
    assert plan(world.asked(), found=[*world.found, *own]) == plan(world.asked(), found=world.found)
