"""Plans after compactions: what became of computed rows is found in the table's history, and recorded."""

import dataclasses
import datetime as dt
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman_core.model import keys, row_states
from leman_core.model.row_positions import RowRange
from leman_core.model.row_states import RowState
from leman_core.model.service_errors import DataLoss
from leman_core.storage import compaction_history, manifest
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.transactions import Kind, Transactions
from leman_executor.jobs.checkpoint_maintenance import store_traced
from leman_planner.planning import compacted_rows
from leman_planner.planning.plan_maker import PlanMaker
from tests.integration.planner.planner_lake import ROWS, UDF, Lake, rows, states, why

C, F, U = RowState.COMPUTED, RowState.FAILED, RowState.UNTOUCHED


@pytest.fixture(params=[True, False], ids=["stable row ids", "row addresses"])
def lake(tmp_path, request):
    return Lake(tmp_path, stable_row_ids=request.param)


@pytest.fixture
def filled(lake):
    lake.fill(lake.plan())
    return lake


def compact(lake, **options):
    lake.open().optimize.compact_files(**options)


def clean(lake):
    lake.open().cleanup_old_versions(older_than=dt.timedelta(0), delete_unverified=True)


def record(lake, made):
    """As the executor does when a job begins."""
    store_traced(lake.store, made)


def known(task):
    return [RowState(s) for s in row_states.decode_states(task.row_states)]


def counts(made):
    return {c.reason.name: c.fragments for c in made.header.reasons}


def test_a_full_table_needs_nothing_after_compaction(filled):
    compact(filled)
    version = filled.open().version
    made = filled.plan()
    assert (made.tasks, counts(made)) == ((), {"REUSED_COMPACTED": 1})
    assert (made.header.rows_reused, made.header.rows_to_compute) == (30, 0)
    [traced] = made.traced
    assert (traced.row_states, traced.rows_computed, traced.physical_rows) == (b"", 30, 30)
    assert filled.open().version == version


@pytest.mark.parametrize(
    ("column", "kind"),
    [("id", "BTREE"), ("id", "BITMAP"), ("id", "ZONEMAP"), ("id", "BLOOMFILTER"), ("body", "NGRAM"), ("c", "BTREE")],
)
def test_a_full_indexed_table_needs_nothing_after_compaction(filled, column, kind):
    filled.open().create_scalar_index(column, kind)
    compact(filled)
    assert (filled.plan().tasks, counts(filled.plan())) == ((), {"REUSED_COMPACTED": 1})


def test_which_rows_of_an_indexed_table_were_live_is_told_by_their_ids(filled):
    filled.open().create_scalar_index("id", "BTREE")
    filled.open().delete("id IN (3, 11)")
    before = filled.open().version
    compact(filled, materialize_deletions_threshold=0.0)
    clean(filled)
    old = compaction_history.OldVersion(filled.uri, before + 1)  # compaction reserves its fragments first
    if filled.open().has_stable_row_ids:
        assert [np.flatnonzero(~old.live(i, RowRange(0, ROWS))).tolist() for i in (0, 1, 2)] == [[3], [1], []]
    else:
        with pytest.raises(DataLoss, match="no stable ids"):
            old.live(0, RowRange(0, ROWS))


def forget(lake, version):
    """Leaves nothing of what made a version but the version."""
    dataset = lake.open()
    [path] = Path(lake.uri, "_versions").glob(f"*{(1 << 64) - 1 - version:020d}.manifest")
    for transaction in Path(lake.uri, "_transactions").iterdir():
        name, content = transaction.name.encode(), path.read_bytes()
        if name in content:
            transaction.unlink()
            inline = manifest.last_block(content[: manifest.position_in(content)])  # Lance writes it there too
            left = content.replace(inline, bytes(len(inline))) if inline else content
            path.write_bytes(left.replace(name, b"?" * len(name)))
    assert Transactions(dataset.uri).read(version).kind is Kind.UNKNOWN


def test_what_is_known_of_a_compaction_counts_also_behind_an_unknown_transaction(filled):
    compact(filled)
    filled.open().update_config({"a": "b"})
    forget(filled, filled.open().version)
    assert counts(filled.plan()) == {"REUSED_COMPACTED": 1}


def test_a_file_that_an_unknown_transaction_may_have_written_is_lost(filled):
    compact(filled)
    forget(filled, filled.open().version)
    assert list(why(filled.plan()).values()) == ["HISTORY_LOST"]


def test_what_was_recorded_is_not_traced_again(filled, monkeypatch):
    compact(filled)
    record(filled, filled.plan())
    clean(filled)
    monkeypatch.setattr(compaction_history, "trace_compactions", lambda *_: pytest.fail("traced again"))
    made = filled.plan()
    assert (made.tasks, counts(made), made.traced) == ((), {"REUSED": 1}, ())


def test_what_is_recorded_adds_up(filled):
    compact(filled, target_rows_per_fragment=12)
    made = filled.plan()
    assert len(made.traced) > 1
    record(filled, dataclasses.replace(made, traced=made.traced[:1]))
    assert counts(filled.plan())["REUSED"] == 1
    record(filled, dataclasses.replace(made, traced=made.traced[1:]))
    assert counts(filled.plan()) == {"REUSED": len(made.traced)}


def test_without_history_and_without_a_record_the_plan_says_so(filled):
    compact(filled)
    clean(filled)
    assert filled.plan().tasks == ()  # the latest version always stays, and it is the compaction
    filled.open().update_config({"a": "b"})
    clean(filled)
    assert list(why(filled.plan()).values()) == ["HISTORY_LOST"]


def test_states_and_deletions_that_were_cleaned_away_are_not_guessed(lake):
    lake.fill(lake.plan(), states=states(untouched=3))
    lake.open().delete("id IN (0, 9)")
    compact(lake)
    clean(lake)
    assert list(why(lake.plan()).values()) == ["HISTORY_LOST"]


def test_a_half_filled_table_needs_its_missing_rows(lake):
    lake.fill(lake.plan(num_frags=2))
    compact(lake)
    made = lake.plan()
    [task] = made.tasks
    assert (task.reason.name, task.extend_current) == ("PARTIAL", True)
    assert known(task) == [C] * 20 + [U] * 10
    assert made.header.rows_to_compute == 10
    record(lake, made)
    clean(lake)
    again = lake.plan()
    assert (again.tasks, again.traced) == (made.tasks, ())


def test_a_table_that_was_never_filled_is_missing(lake):
    compact(lake)
    made = lake.plan()
    assert (list(why(made).values()), made.traced) == (["MISSING"], ())


def test_states_of_partial_files_move_with_their_rows(lake):
    lake.fill(lake.plan(), states=states(untouched=3, failed=2))
    lake.open().delete("id IN (0, 6, 9, 20, 21, 22)")
    compact(lake)
    made = lake.plan()
    fragment = [C] * 5 + [F] * 2 + [U] * 3
    kept = [s for i, s in enumerate(fragment * 3) if i not in (0, 6, 9, 20, 21, 22)]
    assert known(made.tasks[0]) == kept
    assert made.header.rows_failed_before == kept.count(F)


def test_failed_rows_stay_failed(lake):
    lake.fill(lake.plan(), states=states(failed=1))
    compact(lake)
    made = lake.plan()
    assert (made.tasks, made.header.rows_failed_before) == ((), 3)
    record(lake, made)
    assert lake.plan().header.rows_failed_before == 3


def test_deletions_before_between_and_after(filled):
    filled.open().delete("id % 7 = 0")
    compact(filled)
    filled.open().delete("id % 5 = 0")
    compact(filled, materialize_deletions_threshold=0.0)
    filled.open().delete("id % 3 = 0")
    assert counts(filled.plan()) == {"REUSED_COMPACTED": 1}


def test_two_compactions_in_a_row_with_work_between(lake):
    lake.fill(lake.plan(num_frags=1))
    compact(lake)
    lance.write_dataset(rows(5, start=30), lake.uri, mode="append")
    lake.open().delete("id IN (2, 15, 33)")
    compact(lake)
    [task] = lake.plan().tasks
    assert known(task) == [C] * 9 + [U] * 23


def test_the_second_compaction_builds_on_the_record_of_the_first(lake):
    lake.fill(lake.plan(num_frags=1))
    compact(lake)
    record(lake, lake.plan())
    clean(lake)
    lance.write_dataset(rows(5, start=30), lake.uri, mode="append")
    compact(lake)
    [task] = lake.plan().tasks
    assert known(task) == [C] * 10 + [U] * 25


def test_rows_are_cut_over_several_new_fragments(lake):
    lake.fill(lake.plan(num_frags=2), states=states(untouched=1))
    lake.open().delete("id = 4")
    compact(lake, target_rows_per_fragment=12)
    made = lake.plan()
    assert [t.physical_rows for t in made.tasks] == [f.count_rows() for f in lake.open().get_fragments()]
    assert len(made.tasks) > 1
    wanted = ([C] * 9 + [U]) * 2 + [U] * 10
    held = {t.fragment_id: known(t) if t.row_states else [U] * t.physical_rows for t in made.tasks}
    assert [s for states_ in held.values() for s in states_] == wanted[:4] + wanted[5:]


def test_moved_rows_stay_stale_inside_a_compacted_fragment(filled):
    filled.open().update({"body": "'new'"}, where="id IN (3, 12)")
    compact(filled)
    [task] = filled.plan().tasks
    moved = [i not in (3, 12) for i in filled.open().to_table().column("id").to_pylist()]
    assert known(task) == [C if kept else U for kept in moved]
    assert moved.count(False) == 2


def test_rows_moved_out_of_a_compacted_fragment_are_stale_alone(filled):
    compact(filled)
    filled.open().update({"x": "x + 1"}, where="id = 3")
    made = filled.plan()
    assert counts(made) == {"EXTERNAL_WRITE": 1, "REUSED_COMPACTED": 1}


def test_an_input_rewritten_before_compaction_is_stale(filled):
    filled.rewrite("x", 1)
    compact(filled)
    [task] = filled.plan().tasks
    assert known(task) == [C] * 10 + [U] * 10 + [C] * 10


def test_an_input_rewritten_after_compaction_makes_all_of_it_stale(filled):
    compact(filled)
    record(filled, filled.plan())
    filled.rewrite("x", filled.open().get_fragments()[0].fragment_id)
    assert list(why(filled.plan()).values()) == ["INPUT_CHANGED"]


def test_an_unrelated_column_rewritten_after_compaction_makes_nothing_stale(filled):
    compact(filled)
    filled.rewrite("body", filled.open().get_fragments()[0].fragment_id)
    assert filled.plan().tasks == ()


def test_values_of_somebody_else_in_the_compacted_column_are_stale(filled):
    compact(filled)
    record(filled, filled.plan())
    filled.rewrite("c", filled.open().get_fragments()[0].fragment_id)
    assert list(why(filled.plan()).values()) == ["EXTERNAL_WRITE"]


def test_another_version_of_the_function_makes_compacted_rows_stale(filled):
    compact(filled)
    record(filled, filled.plan())
    filled.registry.put(dataclasses.replace(UDF, version="2"))
    assert list(why(filled.plan(udf_name="f", udf_version="2")).values()) == ["UDF_CHANGED"]
    assert filled.plan(udf_name="f", udf_version="1").tasks == ()


def test_a_column_that_was_dropped_and_added_again_has_nothing_to_trace(filled):
    compact(filled)
    record(filled, filled.plan())
    filled.open().drop_columns(["c"])
    filled.add_column("c")
    assert list(why(filled.plan()).values()) == ["MISSING"]
    compact(filled)
    assert list(why(filled.plan()).values()) == ["MISSING"]


def test_a_column_dropped_and_added_again_before_compaction(filled):
    filled.open().drop_columns(["c"])
    filled.add_column("c")
    filled.fill(filled.plan(num_frags=1))
    compact(filled)
    assert known(filled.plan().tasks[0]) == [C] * 10 + [U] * 20


def test_renamed_columns_are_traced_and_their_records_found(filled):
    compact(filled)
    filled.open().alter_columns({"path": "c", "name": "c2"}, {"path": "x", "name": "x2"})
    made = filled.plan("c2")
    assert (made.tasks, counts(made)) == ((), {"REUSED_COMPACTED": 1})
    record(filled, made)
    filled.open().alter_columns({"path": "c2", "name": "c3"})
    assert counts(filled.plan("c3")) == {"REUSED": 1}


def test_a_cast_input_makes_compacted_rows_stale(filled):
    compact(filled)
    record(filled, filled.plan())
    filled.open().alter_columns({"path": "x", "data_type": pa.int32()})
    assert list(why(filled.plan()).values()) == ["INPUT_CHANGED"]


def test_a_restored_table_is_traced_along_what_it_was_restored_to(filled):
    compact(filled)
    version = filled.open().version
    lance.write_dataset(filled.open().to_table(), filled.uri, mode="overwrite")
    filled.open().update_config({"a": "b"})
    lance.dataset(filled.uri, version=version).restore()
    assert counts(filled.plan()) == {"REUSED_COMPACTED": 1}


def test_an_overwritten_table_begins_anew(filled):
    compact(filled)
    before = filled.open().schema
    data = filled.open().to_table()
    lance.write_dataset(data.replace_schema_metadata(before.metadata), filled.uri, mode="overwrite")
    assert list(why(filled.plan()).values()) == ["EXTERNAL_WRITE"]


def test_an_answered_filter_is_answered_after_compaction_too(lake):
    where = "body LIKE 'text 1%'"
    lake.fill(lake.plan(where=where), states=states(untouched=9))
    compact(lake)
    made = lake.plan(where=where)
    assert (made.tasks, counts(made)) == ((), {"REUSED_FILTER": 1})
    assert known(lake.plan().tasks[0]) == ([C] + [U] * 9) * 3
    record(lake, made)
    assert counts(lake.plan(where=where)) == {"REUSED_FILTER": 1}
    lake.rewrite("body", lake.open().get_fragments()[0].fragment_id)
    assert list(why(lake.plan(where=where)).values()) == ["PARTIAL"]


def test_a_filter_column_rewritten_between_two_compactions_asks_again(lake):
    where = "body LIKE 'text 1%'"
    lake.fill(lake.plan(where=where), states=states(untouched=9))
    compact(lake, target_rows_per_fragment=12)
    first, *_, last = (f.fragment_id for f in lake.open().get_fragments())
    assert first != last
    compact(lake)
    assert counts(lake.plan(where=where)) == {"REUSED_FILTER": 1}
    lance.dataset(lake.uri, version=lake.open().version - 2).restore()
    lake.rewrite("body", first)
    assert why(lake.plan(where=where)) == {first: "PARTIAL"}
    compact(lake)
    assert list(why(lake.plan(where=where)).values()) == ["PARTIAL"]


def test_a_record_about_another_file_is_not_used(filled):
    compact(filled)
    made = filled.plan()
    [traced] = made.traced
    key = keys.traced_key(traced.fingerprint[:16])
    stored = FragmentRecord.of_traced(traced)
    for changes in ({"file": "other.lance"}, {"column_id": "other"}, {"src_data_files": ("other.lance",)}):
        values = {name: getattr(stored, name) for name in FragmentRecord.__dataclass_fields__} | changes
        filled.store[key] = FragmentRecord(**values).to_batch()
        assert counts(filled.plan()) == {"REUSED_COMPACTED": 1}


def test_a_damaged_partial_file_is_not_trusted(lake):
    lake.fill(lake.plan(num_frags=1), states=states(untouched=3))
    [partial] = [f for f in lake.files() if "partial" in f.name]
    compact(lake)
    partial.write_bytes(partial.read_bytes()[:-30])
    assert list(why(lake.plan()).values()) == ["HISTORY_LOST"]


def test_only_so_many_versions_are_looked_at(filled, monkeypatch):
    compact(filled)
    for _ in range(4):
        filled.open().update_config({"a": "b"})
    monkeypatch.setattr(compaction_history, "versions_to_look_at", lambda fragments: 3)
    assert list(why(filled.plan()).values()) == ["HISTORY_LOST"]
    monkeypatch.undo()
    assert filled.plan().tasks == ()


def test_a_table_without_compactions_reads_no_history(filled, monkeypatch):
    monkeypatch.setattr(compaction_history, "trace_compactions", lambda *_: pytest.fail("history was read"))
    assert filled.plan(reader=PlanMaker(LanceTables())).traced == ()


def test_many_fragments_of_mixed_states_in_random_order_of_events(lake):
    """Against the plainest oracle: a column that says for every id whether it was computed."""
    random = np.random.default_rng(7)
    computed = set()
    for step in range(12):
        made = lake.plan(num_frags=1)
        if made.tasks and step % 3 == 0:
            task = made.tasks[0]
            ids = lake.open().get_fragment(task.fragment_id).to_table(columns=["id"]).column("id").to_pylist()
            lake.install(made, task, lake.write(made, task).file)
            computed |= set(ids)
        gone = [int(i) for i in random.choice(30 + 5 * step, 2)]
        lake.open().delete(f"id IN ({gone[0]}, {gone[1]})")
        moved = int(random.integers(30))
        if moved in lake.open().to_table(columns=["id"]).column("id").to_pylist():
            lake.open().update({"body": "'moved'"}, where=f"id = {moved}")
            computed.discard(moved)
        lance.write_dataset(rows(5, start=30 + 5 * step), lake.uri, mode="append")
        if step % 2:
            compact(lake, target_rows_per_fragment=int(random.integers(8, 40)))
        stale = {t.fragment_id: known(t) if t.row_states else None for t in lake.plan().tasks}
        for fragment in lake.open().get_fragments():
            ids = fragment.to_table(columns=["id"], with_row_address=True)
            held = stale.get(fragment.fragment_id, [C] * ROWS * 20)
            for id_, address in zip(ids["id"].to_pylist(), ids["_rowaddr"].to_pylist(), strict=True):
                is_computed = held is not None and held[address & 0xFFFFFFFF] is C
                assert is_computed == (id_ in computed), (step, fragment.fragment_id, id_)


def test_a_plan_joins_each_compaction_once_for_all_versions_that_it_looks_at(filled, monkeypatch):
    """It walks back through versions with rows that are missing, and each of them follows the same compactions."""
    new = rows(1).append_column("c", pa.nulls(1, pa.int64()))
    for _ in range(12):
        lance.write_dataset(new, filled.uri, mode="append")
        compact(filled)
    joined = []
    monkeypatch.setattr(
        compacted_rows.RowTracer,
        "_joined",
        lambda tracer, rewrite, statuses, join=compacted_rows.RowTracer._joined: (
            joined.append(rewrite.before) or join(tracer, rewrite, statuses)
        ),
    )
    (task,) = filled.plan().tasks
    assert known(task).count(U) == 12
    assert 12 <= len(joined) <= 2 * 12  # for the statuses, and to compare rows
