"""Which fragments hold the same rows as others before, from compactions made by hand."""

import pytest

from leman._format.view_definitions import ViewColumn, ViewQuery
from leman_core.model.table import DataFile, Fragment, Rewrite
from leman_core.model.view import ChangeKind
from leman_planner.views.source_changes import changed_fragments, only_moved
from tests.unit.planner.test_refresh_planning import BASE, FIELDS, fragment, source

X, Y = range(2)


def frag(number, rows=10, *, x="", y="", deleted=0, deletion_file=""):
    """Columns x and y in files of their own; `y` empty: it has none."""
    files = (DataFile(x or f"x{number}", (X,)), *([DataFile(y, (Y,))] if y else []))
    return Fragment(number, rows, deleted, files, deletion_file or "1-1" * bool(deleted))


def compaction(old, new):
    return Rewrite(1, tuple(old), tuple(new))


def found(older, newer, *compactions, fields=(X,)):
    """Ids of fragments of the older version, and of the newer one."""
    moved = only_moved(older, newer, fields, compactions)
    return {f.fragment_id for f in older if f in moved}, {f.fragment_id for f in newer if f in moved}


A, B, C, D = (frag(i) for i in range(4))
N = frag(9, 20)


def test_a_compaction_moves_rows():
    assert found([A, B], [N], compaction([A, B], [N])) == ({0, 1}, {9})


def test_without_a_history_nothing_is_known():
    assert found([A, B], [N]) == (set(), set())


def test_deleted_rows_were_deleted_before():
    gone = frag(0, 10, deleted=4)
    made = frag(9, 16)
    assert found([gone, B], [made], compaction([gone, B], [made])) == ({0, 1}, {9})


@pytest.mark.parametrize(
    "then",
    [
        frag(0, 10, deleted=4),
        frag(0, 10, deleted=4, deletion_file="2-2"),
        frag(0, 10, x="other"),
        frag(0, 12),
    ],
    ids=["deleted since", "others deleted", "rewritten", "another fragment"],
)
def test_a_fragment_that_changed_before_the_compaction(then):
    before = frag(0, 10, deleted=4, deletion_file="3-3") if then.deletion_file == "2-2" else A
    made = frag(9, then.live_rows + 10)
    assert found([before, B, C], [made, D], compaction([then, B], [made]), compaction([C], [D])) == ({2}, {3})


@pytest.mark.parametrize(
    "now",
    [frag(9, 20, deleted=1), frag(9, 20, x="other"), frag(8, 20, x="x9"), frag(9, 21, x="x9")],
    ids=["deleted since", "rewritten", "another id", "other rows"],
)
def test_a_fragment_that_changed_after_the_compaction(now):
    assert found([A, B], [now], compaction([A, B], [N])) == (set(), set())


def test_rows_that_were_appended_are_among_the_others():
    appended, made = frag(5), frag(9, 30)
    assert found([A, B], [made], compaction([A, B, appended], [made])) == (set(), set())


def test_compaction_after_compaction():
    last = frag(10, 30)
    assert found([A, B, C], [last], compaction([A, B], [N]), compaction([N, C], [last])) == ({0, 1, 2}, {10})


def test_a_step_that_history_does_not_tell_of():
    last = frag(10, 30)
    assert found([A, B, C], [last], compaction([N, C], [last])) == (set(), set())
    assert found([A, B, C], [last], compaction([A, B], [N])) == (set(), set())


def test_one_compaction_that_makes_several_fragments_counts_as_a_whole():
    left, right = frag(8), frag(9)
    assert found([A, B], [left, right], compaction([A, B], [left, right])) == ({0, 1}, {8, 9})
    changed = frag(9, deleted=1)
    assert found([A, B], [left, changed], compaction([A, B], [left, right])) == (set(), set())


def test_parts_that_are_compacted_apart_belong_together():
    left, right, last, changed = frag(8), frag(9), frag(10, 20), frag(10, 20, deleted=1)
    steps = [compaction([A, B], [left, right]), compaction([right, C], [last])]
    assert found([A, B, C], [left, last], *steps) == ({0, 1, 2}, {8, 10})
    assert found([A, B, C], [left, changed], *steps) == (set(), set())


def test_groups_stand_alone():
    other, changed = frag(8, 20), frag(9, 20, deleted=1)
    steps = [compaction([A, B], [other]), compaction([C, D], [N])]
    assert found([A, B, C, D], [other, changed], *steps) == ({0, 1}, {8})


def test_a_compaction_that_lost_rows_or_has_more_is_not_believed():
    for rows in (19, 21):
        made = frag(9, rows)
        assert found([A, B], [made], compaction([A, B], [made])) == (set(), set())


def test_a_column_that_compaction_left_out_was_dropped_by_then():
    """One that is added later can get its id."""
    old = [frag(0, y="y0"), frag(1, y="y1")]
    assert found(old, [N], compaction(old, [N]), fields=(X, Y)) == (set(), set())
    assert found(old, [N], compaction(old, [N]), fields=(X,)) == ({0, 1}, {9})


def test_a_column_that_had_no_values_has_none():
    whole = frag(9, 20, y="y9")
    some = [A, frag(1, y="y1")]
    assert found(some, [whole], compaction(some, [whole]), fields=(X, Y)) == ({0, 1}, {9})


def test_fragments_without_a_file_that_is_read_cannot_be_told_apart():
    assert found([A], [frag(0, x="other")], fields=(Y,)) == (set(), set())
    assert found([A, B], [N], compaction([A, B], [N]), fields=(Y,)) == (set(), set())
    assert found([A, B], [N], compaction([A, B], [N]), fields=()) == (set(), set())


# in the diff of a source

QUERY = ViewQuery("/db", "t", (ViewColumn("a", "`a`", "a"),))
MADE = fragment(2, 20)
COMPACTED = source(6, MADE)


def kinds(base, target, *compactions):
    return [(c.fragment_id, c.kind) for c in changed_fragments(QUERY, base, target, lambda: compactions)]


def test_forward_and_back():
    step = compaction(BASE.fragments, [MADE])
    assert kinds(BASE, COMPACTED, step) == kinds(COMPACTED, BASE, step) == []


def test_other_changes_stay():
    changed, appended = fragment(1, files=("new", "cd1")), fragment(3)
    base = source(5, fragment(0), fragment(1), fragment(4))
    step = compaction([fragment(0), fragment(4)], [MADE])
    expected = [(1, ChangeKind.REWRITTEN), (3, ChangeKind.APPEARED)]
    assert kinds(base, source(6, MADE, changed, appended), step) == expected


def test_a_column_of_another_id_is_another():
    renamed = (FIELDS[1], FIELDS[0], *FIELDS[2:])
    swapped = tuple(
        type(f)(f.arrow.with_name(name), f.field_ids) for f, name in zip(renamed, ["a", "b", "c", "d"], strict=True)
    )
    step = compaction(BASE.fragments, [MADE])
    assert len(kinds(BASE, source(6, MADE, fields=swapped), step)) == 3


def test_the_history_is_asked_only_where_fragments_came_and_went():
    for target in (
        source(6, *BASE.fragments, fragment(3)),
        source(6, BASE.fragments[0]),
        source(6, fragment(0, files=("new", "cd0")), fragment(1, deleted=1)),
    ):
        assert changed_fragments(QUERY, BASE, target, lambda: pytest.fail("the history was read"))
