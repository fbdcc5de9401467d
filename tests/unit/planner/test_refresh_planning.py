"""What a refresh has to do, from snapshots made by hand."""

import dataclasses

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import ViewColumn, ViewDefinition, ViewFormat, ViewFunction, ViewQuery, write
from leman_core.model.service_errors import AlreadyExists, FailedPrecondition, InvalidArgument
from leman_core.model.table import DataFile, Fragment, TableField, TableSnapshot
from leman_core.model.view import (
    ChangeKind,
    RefreshMode,
    RefreshPolicy,
    RefreshReason,
    RefreshSpec,
    ResolvedFunction,
    SourceChange,
)
from leman_planner.views.refresh_planning import Case, plan_refresh
from leman_planner.views.refresh_reader import ViewReader
from leman_planner.views.source_changes import changed_fragments, fields_read
from leman_planner.views.view_catalog import _check_same_query

A, B, C, D, W = range(5)
FIELDS = (
    TableField(pa.field("a", pa.int64()), (A,)),
    TableField(pa.field("b", pa.string()), (B,)),
    TableField(pa.field("c", pa.int64()), (C,)),
    TableField(pa.field("d", pa.struct([("w", pa.int64())])), (D, W)),
)
UDF = UdfDefinition("f", "1", UdfKind.SCALAR, ("c",), pa.int64(), (pa.int64(),), entrypoint="m:f")
FUNCTION = ViewFunction("n", "f", "1", ("c",))
#: Reads a (selected), b (filter) and c (function), not d.
QUERY = ViewQuery("/db", "t", (ViewColumn("a", "`a`", "a"),), (FUNCTION,), where="b = 'x'")
VIEW_FIELDS = (
    TableField(pa.field("__source_row_id", pa.int64()), (0,)),
    TableField(pa.field("__is_set", pa.bool_()), (1,)),
    TableField(pa.field("a", pa.int64()), (2,)),
    TableField(pa.field("n", pa.int64()), (3,)),
)


def fragment(number, rows=10, files=None, *, deleted=0, deletion_file=""):
    """Two data files: (a, b) and (c, d)."""
    ab, cd = files or (f"ab{number}", f"cd{number}")
    return Fragment(
        number, rows, deleted, (DataFile(ab, (A, B)), DataFile(cd, (C, W))), deletion_file or "1-1" * bool(deleted)
    )


def source(version, *fragments, fields=FIELDS, incarnation="inc", stable=True, metadata=None):
    return TableSnapshot(
        uri="/db/t.lance",
        version=version,
        incarnation=incarnation,
        fields=fields,
        fragments=fragments,
        stable_row_ids=stable,
        metadata=metadata or {},
    )


def view(*files, fields=VIEW_FIELDS, rows=10):
    """`placeholders`, `view` or another word for each fragment."""
    fragments = [
        Fragment(i, rows, 0, (DataFile("placeholders-0", (0,)), DataFile(f"{word}-{i}.lance", (1, 2, 3))))
        for i, word in enumerate(files)
    ]
    return TableSnapshot(
        uri="/db/v.lance", version=3, incarnation="v", fields=fields, fragments=tuple(fragments), stable_row_ids=True
    )


def definition(base_version=5, query=QUERY, **changed):
    found = ViewDefinition(
        query=query,
        source_uri="/db/t.lance",
        base_version=base_version,
        base_incarnation="inc",
        format=ViewFormat.STABLE_ROW_IDS,
        filled={"n": "f@1"},
    )
    return dataclasses.replace(found, **changed)


BASE = source(5, fragment(0), fragment(1))


def plan(the_view=None, target=BASE, base=BASE, set_rows=None, **asked):
    described = asked.pop("definition", None) or definition()
    spec = RefreshSpec("/db", "v", **asked)
    case = Case(the_view or view("view", "view"), described, base, target, spec)
    return plan_refresh(case, [ResolvedFunction(FUNCTION, UDF, "")], set_rows)


def refused(**asked):
    with pytest.raises(FailedPrecondition) as caught:
        plan(**asked)
    return caught.value


def outcome(made):
    return made.mode.name, made.reason.name


# the source


def test_columns_read_are_those_of_selection_filter_and_functions():
    assert [c.name for c in fields_read(QUERY, BASE)] == ["a", "b", "c"]
    expression = ViewQuery("/db", "t", (ViewColumn("x", "upper(b) || d.w"),))
    assert [c.name for c in fields_read(expression, BASE)] == ["b", "d"]


def test_of_a_source_that_is_a_view_is_set_is_read_too():
    is_set = TableField(pa.field("__is_set", pa.bool_()), (9,))
    metadata = write(pa.schema([]), definition()).metadata
    found = fields_read(QUERY, source(5, fields=(*FIELDS, is_set), metadata=metadata))
    assert [c.name for c in found] == ["a", "b", "c", "__is_set"]


def kinds(old, new, query=QUERY):
    return [(c.fragment_id, c.kind.name) for c in changed_fragments(query, source(5, *old), source(6, *new))]


def test_appeared_and_gone():
    assert kinds([fragment(0), fragment(1)], [fragment(1), fragment(2)]) == [(0, "GONE"), (2, "APPEARED")]


def test_other_deletions_are_seen_even_where_as_many_rows_are_deleted():
    one = fragment(0, deleted=2, deletion_file="7-3")
    other = fragment(0, deleted=2, deletion_file="8-4")
    assert kinds([fragment(0)], [one]) == [(0, "DELETIONS")]
    assert kinds([one], [other]) == [(0, "DELETIONS")]
    assert kinds([one], [one]) == []


def test_rewritten_is_what_the_view_reads():
    new = Fragment(0, 10, 0, (DataFile("ab0", (A, B)), DataFile("cd0", (W,)), DataFile("c-new", (C,))))
    assert kinds([fragment(0)], [new]) == [(0, "REWRITTEN")]


def test_columns_that_the_view_does_not_read_are_nobodys_business():
    new = Fragment(0, 10, 0, (DataFile("ab0", (A, B)), DataFile("cd0", (C,)), DataFile("d-new", (W,))))
    assert kinds([fragment(0)], [new]) == []
    more = Fragment(0, 10, 0, (*fragment(0).files, DataFile("e", (7,))))
    assert kinds([fragment(0)], [more]) == []


def test_children_of_a_column_belong_to_it():
    reads_d = dataclasses.replace(QUERY, where="d.w > 1", functions=())
    new = Fragment(0, 10, 0, (DataFile("ab0", (A, B)), DataFile("cd0", (C,)), DataFile("d-new", (W,))))
    assert kinds([fragment(0)], [new], reads_d) == [(0, "REWRITTEN")]


def test_the_same_id_over_other_files_is_another_fragment():
    other = fragment(0, files=("x", "y"))
    assert kinds([fragment(0)], [other]) == [(0, "GONE"), (0, "APPEARED")]
    assert kinds([fragment(0)], [fragment(0, rows=9)]) == [(0, "GONE"), (0, "APPEARED")]


def test_a_column_that_was_made_anew_under_its_name_is_another_one():
    fields = (*FIELDS[:2], TableField(pa.field("c", pa.int64()), (8,)), FIELDS[3])
    new = Fragment(0, 10, 0, (*fragment(0).files, DataFile("c-new", (8,))))
    found = changed_fragments(QUERY, BASE, source(6, new, fragment(1), fields=fields))
    assert found == (SourceChange(0, ChangeKind.REWRITTEN), SourceChange(1, ChangeKind.REWRITTEN))


def test_a_column_that_took_the_name_of_another_in_the_same_file_is_another_one():
    c, d = (TableField(pa.field(name, pa.int64()), (number,)) for name, number in (("c", W), ("d", C)))
    found = changed_fragments(QUERY, BASE, source(6, *BASE.fragments, fields=(*FIELDS[:2], d, c)))
    assert found == (SourceChange(0, ChangeKind.REWRITTEN), SourceChange(1, ChangeKind.REWRITTEN))


def test_a_column_that_is_null_before_and_after_it_was_made_anew_is_the_same():
    fields = (*FIELDS[:2], TableField(pa.field("c", pa.int64()), (8,)))
    empty = Fragment(0, 10, 0, (DataFile("ab0", (A, B)),))
    assert changed_fragments(QUERY, source(5, empty), source(6, empty, fields=fields)) == ()


names = st.sampled_from(["p", "q", "r"])
fragments = st.builds(
    lambda number, rows, ab, c, d, deleted: Fragment(
        number,
        rows,
        deleted,
        (DataFile(f"ab{ab}", (A, B)), DataFile(f"c{c}", (C,)), DataFile(f"d{d}", (W,))),
        f"{deleted}-1" if deleted else "",
    ),
    st.integers(0, 3),
    st.sampled_from([5, 6]),
    names,
    names,
    names,
    st.integers(0, 2),
)
tables = st.lists(fragments, max_size=4, unique_by=lambda f: f.fragment_id)


@given(tables, tables)
def test_what_is_not_listed_is_the_same_and_what_is_listed_is_not(old, new):
    listed = {c.fragment_id: c.kind for c in changed_fragments(QUERY, source(5, *old), source(6, *new))}
    before, after = ({f.fragment_id: f for f in fragments} for fragments in (old, new))

    def seen(found):
        return found and (found.physical_rows, found.deletion_file, [found.file_of(i) for i in (A, B, C)])

    for number in range(4):
        same = seen(before.get(number)) == seen(after.get(number))
        apart = number in before and number in after and not _one_file_in_common(before[number], after[number])
        assert (number in listed) == (not same or apart)


def _one_file_in_common(old, new):
    return bool({f.path for f in old.files} & {f.path for f in new.files})


@given(tables)
def test_going_back_finds_the_same_fragments(old):
    nothing = dataclasses.replace(BASE, version=6, incarnation="i", fragments=())
    there = {c.fragment_id for c in changed_fragments(QUERY, source(5, *old), nothing)}
    assert there == {f.fragment_id for f in old}


# modes and reasons


def test_up_to_date():
    made = plan()
    assert outcome(made) == ("NO_OP", "UP_TO_DATE")
    assert (made.unset, made.changes, made.stale, made.rows) == ((), (), (), 20)


def test_source_changed():
    made = plan(target=source(7, fragment(0), fragment(2)))
    assert outcome(made) == ("INCREMENTAL", "SOURCE_CHANGED")
    assert "from version 5 to 7" in made.message
    assert "1 appeared, 1 gone" in made.message
    assert (made.target_version, made.target_incarnation) == (7, "inc")


def test_a_version_with_nothing_new_is_recorded():
    made = plan(target=source(7, fragment(0), fragment(1)))
    assert outcome(made) == ("INCREMENTAL", "SOURCE_CHANGED")
    assert made.changes == ()
    assert "nothing that the view reads changed" in made.message


def test_first_fill():
    made = plan(view("placeholders", "placeholders"))
    assert outcome(made) == ("FULL", "FIRST_FILL")
    assert [f.fragment_id for f in made.unset] == [0, 1]
    assert not made.create_placeholders_again


def test_placeholders_are_made_again_where_the_source_moved_on():
    made = plan(view("placeholders"), target=source(7, fragment(0)))
    assert outcome(made) == ("FULL", "FIRST_FILL")
    assert made.create_placeholders_again
    assert made.changes == ()


@pytest.mark.parametrize(("rows", "again"), [(10, False), (0, False), (7, True), (20, True)])
def test_placeholders_are_made_again_for_another_size(rows, again):
    made = plan(view("placeholders", "placeholders"), max_rows_per_fragment=rows)
    assert made.create_placeholders_again is again


def test_a_first_fill_that_was_cut_short_is_completed_first():
    made = plan(view("view", "placeholders"), target=source(7, fragment(0), fragment(2)))
    assert outcome(made) == ("INCREMENTAL", "FIRST_FILL")
    assert [f.fragment_id for f in made.unset] == [1]
    assert len(made.changes) == 2
    assert not made.create_placeholders_again


_STALE = definition(filled={"n": "f@0"})
_LIMITED = definition(query=dataclasses.replace(QUERY, limit=4))


@pytest.mark.parametrize(
    ("asked", "rows"),
    [
        ({}, 0),
        ({"target": source(7, fragment(0), fragment(1))}, 0),
        ({"target": source(7, fragment(0), fragment(2, rows=7))}, 7),
        ({"target": source(7, fragment(0, files=("ab0", "new")), fragment(1))}, 10),
        ({"target": source(7, fragment(0, deleted=3), fragment(1))}, 0),
        ({"target": source(7, fragment(0, deleted=3), fragment(1)), "definition": _LIMITED}, 4),
        ({"base": source(5, fragment(0, deleted=3), fragment(1)), "target": source(7, *BASE.fragments)}, 10),
        ({"the_view": view("placeholders", "placeholders")}, 20),
        ({"the_view": view("placeholders"), "target": source(7, fragment(0, rows=9))}, 9),
        ({"the_view": view("view", "placeholders"), "target": source(7, fragment(0), fragment(2))}, 20),
        ({"policy": RefreshPolicy.FULL}, 20),
        ({"definition": _STALE}, 20),
        ({"definition": _STALE, "target": source(7, *BASE.fragments, fragment(2, rows=3))}, 23),
    ],
)
def test_a_plan_bounds_the_calls_of_a_function(asked, rows):
    assert plan(**asked).calls == {"n": rows}


def test_a_first_fill_is_no_fallback():
    assert outcome(plan(view("placeholders"), policy=RefreshPolicy.INCREMENTAL)) == ("FULL", "FIRST_FILL")


def test_an_empty_view_is_right():
    assert outcome(plan(view())) == ("NO_OP", "UP_TO_DATE")
    assert outcome(plan(view(), target=source(7, fragment(0), fragment(1), fragment(2))))[1] == "SOURCE_CHANGED"


def test_forced():
    made = plan(policy=RefreshPolicy.FULL)
    assert outcome(made) == ("FULL", "FORCED")
    assert made.unset == ()
    assert outcome(plan(view("placeholders"), policy=RefreshPolicy.FULL)) == ("FULL", "FORCED")


def test_function_changed():
    made = plan(definition=definition(filled={"n": "f@0"}))
    assert outcome(made) == ("INCREMENTAL", "FUNCTION_CHANGED")
    assert made.stale == ("n",)
    both = plan(definition=definition(filled={}), target=source(7, fragment(0)))
    assert outcome(both) == ("INCREMENTAL", "SOURCE_CHANGED")
    assert both.stale == ("n",)


def test_history_lost():
    made = plan(base=None, target=source(7, fragment(0)))
    assert outcome(made) == ("FULL", "SOURCE_HISTORY_LOST")
    assert "Version 5 of the source" in made.message


def test_history_lost_in_the_middle_of_a_first_fill_builds_anew():
    made = plan(view("view", "placeholders"), base=None, target=source(7, fragment(0)))
    assert outcome(made) == ("FULL", "SOURCE_HISTORY_LOST")
    assert made.unset == ()


def test_history_lost_before_anything_was_set_makes_them_again():
    made = plan(view("placeholders"), base=None, target=source(7, fragment(0)))
    assert outcome(made) == ("FULL", "FIRST_FILL")
    assert made.create_placeholders_again


def test_source_replaced():
    other = source(2, fragment(0), incarnation="other")
    assert outcome(plan(base=None, target=other)) == ("FULL", "SOURCE_REPLACED")
    newer = source(9, fragment(0), incarnation="other")
    assert outcome(plan(base=source(5, fragment(0), incarnation="other"), target=newer)) == ("FULL", "SOURCE_REPLACED")
    same_number = source(5, fragment(0), incarnation="other")
    assert outcome(plan(base=same_number, target=same_number)) == ("FULL", "SOURCE_REPLACED")


def test_placeholders_of_a_replaced_source_are_made_again_even_at_the_same_number():
    other = source(5, fragment(0), incarnation="other")
    made = plan(view("placeholders"), base=other, target=other)
    assert outcome(made) == ("FULL", "FIRST_FILL")
    assert made.create_placeholders_again


def test_what_a_replaced_source_had_at_the_recorded_number_means_nothing():
    """The other table's version 5 never had to do with the view."""
    other = source(5, fields=without("b", TableField(pa.field("b", pa.float32()), (B,))), incarnation="other")
    assert outcome(plan(base=other, target=source(9, fragment(0), incarnation="other")))[1] == "SOURCE_REPLACED"


def test_source_that_leman_never_wrote_to_is_known_by_its_files():
    nameless = source(5, fragment(0), fragment(1), incarnation="")
    described = definition(base_incarnation=nameless.identity)
    same = plan(definition=described, base=nameless, target=source(7, fragment(0), incarnation=""))
    assert outcome(same) == ("INCREMENTAL", "SOURCE_CHANGED")
    named = plan(definition=described, base=nameless, target=source(7, fragment(0), incarnation="by Leman"))
    assert outcome(named) == ("INCREMENTAL", "SOURCE_CHANGED")
    other = source(5, fragment(0, files=("x", "y")), incarnation="")
    assert outcome(plan(definition=described, base=other, target=other)) == ("FULL", "SOURCE_REPLACED")
    lost = plan(definition=described, base=None, target=source(7, fragment(0), incarnation=""))
    assert outcome(lost) == ("FULL", "SOURCE_HISTORY_LOST")


def test_a_restored_version_of_the_source_is_the_same_table():
    """Its configuration is that of then: before Leman wrote there."""
    made = plan(target=source(9, fragment(0), fragment(1), incarnation=""))
    assert outcome(made) == ("INCREMENTAL", "SOURCE_CHANGED")


@pytest.mark.parametrize(
    ("base", "target", "why"),
    [
        (None, source(7, fragment(0)), "SOURCE_HISTORY_LOST"),
        (None, source(7, fragment(0), incarnation="other"), "SOURCE_REPLACED"),
    ],
)
def test_incremental_never_falls_back(base, target, why):
    error = refused(base=base, target=target, policy=RefreshPolicy.INCREMENTAL)
    assert error.reason == "FULL_REFRESH_NEEDED"
    assert error.facts["why"] == why


# what is refused


ADDRESSES = {"definition": definition(format=ViewFormat.ADDRESSES)}


def test_addresses_go_to_no_other_version():
    target = source(7, fragment(0), stable=False)
    error = refused(target=target, base=source(5, fragment(0), stable=False), **ADDRESSES)
    assert error.reason == "STABLE_ROW_IDS_REQUIRED"
    assert error.message.startswith("Cannot refresh materialized view to version 7")
    assert "`src_version=5`" in error.message


def test_addresses_can_be_filled_from_their_own_version():
    base = source(5, fragment(0), stable=False)
    made = plan(view("placeholders"), target=base, base=base, **ADDRESSES)
    assert outcome(made) == ("FULL", "FIRST_FILL")


@pytest.mark.parametrize(("stable", "told"), [(False, "again without stable row IDs. Create"), (True, "again. Drop")])
def test_addresses_into_another_table_are_refused(stable, told):
    """What is advised leads somewhere: the version that is asked for has the number of the recorded one."""
    other = source(5, fragment(0), incarnation="other", stable=stable)
    error = refused(target=other, base=other, **ADDRESSES)
    assert error.reason == "STABLE_ROW_IDS_REQUIRED"
    assert told in error.message
    assert "src_version" not in error.message


def test_source_made_anew_without_stable_row_ids():
    other = source(9, fragment(0), incarnation="other", stable=False)
    error = refused(target=other, base=None)
    assert error.reason == "STABLE_ROW_IDS_REQUIRED"
    assert "create it again" in error.message


def without(name, *more):
    return (*(f for f in FIELDS if f.name != name), *more)


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_missing_column_is_named(name):
    error = refused(target=source(7, fragment(0), fields=without(name)))
    assert error.reason == "SOURCE_COLUMN_MISSING"
    assert f"'{name}'" in error.message


def test_renamed_column_is_told():
    renamed = TableField(pa.field("z", pa.string()), (B,))
    error = refused(target=source(7, fragment(0), fields=without("b", renamed)))
    assert "It is now called 'z'" in error.message


def test_missing_column_without_the_recorded_version():
    assert refused(base=None, target=source(7, fields=without("a"))).reason == "SOURCE_COLUMN_MISSING"
    assert refused(base=None, target=source(7, fields=without("c"))).reason == "SOURCE_COLUMN_MISSING"


@pytest.mark.parametrize(("name", "number"), [("a", A), ("b", B), ("c", C)])
def test_other_type_is_told(name, number):
    other = TableField(pa.field(name, pa.float32()), (number,))
    error = refused(target=source(7, fragment(0), fields=without(name, other)))
    assert error.reason == "TYPE_MISMATCH"
    assert name in error.message


def test_columns_that_the_view_does_not_read_may_go():
    assert plan(target=source(7, fragment(0), fragment(1), fields=without("d"))).changes == ()


def test_view_with_other_columns_was_written_by_somebody_else():
    assert refused(the_view=view("view", fields=VIEW_FIELDS[:3])).reason == "EXTERNAL_WRITES"
    more = TableField(pa.field("mine", pa.int64()), (7,))
    assert "mine" in refused(the_view=view("view", fields=(*VIEW_FIELDS, more))).message


# compaction of the view


def test_fragments_without_rows_are_what_was_before():
    """Lance keeps fragments of which a full refresh, or placeholders made again, took all rows."""
    before = view("view", "placeholders")
    emptied = before.fragments[0]._replace(deleted_rows=10, deletion_file="1-1")
    made = plan(dataclasses.replace(before, fragments=(emptied, before.fragments[1])), max_rows_per_fragment=10)
    assert outcome(made) == ("FULL", "FIRST_FILL")
    assert not made.create_placeholders_again
    assert [f.fragment_id for f in made.unset] == [1]


def test_compacted_fragments_are_judged_by_their_rows():
    compacted = view("3fa85f")
    assert outcome(plan(compacted, set_rows={0: 10})) == ("NO_OP", "UP_TO_DATE")
    assert outcome(plan(compacted, set_rows={0: 0})) == ("FULL", "FIRST_FILL")


def test_a_fragment_of_both_is_filled_again():
    made = plan(view("view", "3fa85f"), set_rows={1: 4})
    assert outcome(made) == ("INCREMENTAL", "FIRST_FILL")
    assert [f.fragment_id for f in made.unset] == [1]


states = st.lists(st.sampled_from(["view", "placeholders"]), max_size=4)
targets = st.builds(lambda version, found: source(version, *found), st.sampled_from([5, 8]), tables)


@given(states, tables, targets, st.booleans(), st.sampled_from(["auto", "full"]))
def test_every_plan_makes_sense(files, before, later, lost, policy):
    base = source(5, *before)
    target = base if later.version == 5 else later
    known = None if lost and target is not base else base
    made = plan(view(*files), target=target, base=known, policy=RefreshPolicy(policy))
    unset = {f.fragment_id for f in made.unset}
    assert unset <= {i for i, word in enumerate(files) if word == "placeholders"}
    if made.mode is RefreshMode.NO_OP:
        assert made.target_version == 5
        assert "placeholders" not in files
        assert not made.changes
    if made.create_placeholders_again:
        assert files
        assert "view" not in files
        assert not made.changes
    if made.mode is RefreshMode.INCREMENTAL:
        assert known is not None
        assert made.changes == changed_fragments(QUERY, base, target)
        assert made.target_version == 8 or made.reason is RefreshReason.FIRST_FILL
    if made.mode is RefreshMode.FULL:
        assert not made.changes
        assert unset or made.reason is not RefreshReason.FIRST_FILL


@pytest.mark.parametrize("number", ["src_version", "max_rows_per_fragment", "concurrency"])
def test_a_refresh_with_a_negative_number_is_refused(number):
    with pytest.raises(InvalidArgument, match="it cannot be negative") as refused:
        ViewReader.plan(None, RefreshSpec("/db", "v", **{number: -1}))
    assert (refused.value.reason, refused.value.field) == ("BAD_NUMBER", f"spec.{number}")


def test_the_name_of_a_table_or_of_a_view_with_another_query_is_taken():
    asked = definition()
    _check_same_query("v", asked, asked)
    with pytest.raises(AlreadyExists, match="is a table: choose another name, or drop it") as refused:
        _check_same_query("v", asked, None)
    assert refused.value.reason == "TABLE_EXISTS"
    other = dataclasses.replace(asked, query=dataclasses.replace(asked.query, where="b = 'y'"))
    with pytest.raises(AlreadyExists, match="exists with another query") as refused:
        _check_same_query("v", asked, other)
    assert refused.value.reason == "TABLE_EXISTS"
