"""A row that others wrote again keeps its value only if its inputs, and the value, are what they were."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import lance
import numpy as np
import pyarrow as pa
import pytest

from leman._format.column_bindings import FunctionVersion
from leman_core.functions import arrow_values
from leman_core.model import keys, row_states
from leman_core.model.plan import ComparedFile, EarlierRows, TracedFile
from leman_core.model.row_states import RowState
from leman_core.storage import checkpoint_records
from leman_core.storage.checkpoint_records import from_checkpoint
from leman_executor.jobs import checkpoint_maintenance
from leman_executor.jobs.checkpoint_maintenance import compare_inputs
from leman_executor.jobs.job_environment import Comparison
from tests.memory_checkpoints import InMemoryCheckpointStore

UNTOUCHED, COMPUTED, FAILED = RowState.UNTOUCHED, RowState.COMPUTED, RowState.FAILED
OLDER, OLDER_FAILED = row_states.with_version(COMPUTED, 1), row_states.with_version(FAILED, 1)
FAMILY = keys.KeyFamily(udf_name="f", udf_version="2", column="c", uri="u")
FAMILY_BEFORE = keys.KeyFamily(udf_name="f", udf_version="1", column="c", uri="u")
SOURCES = [(0, "in.lance")]
PARTS = ("2" * 16, "1" * 16)


@dataclass
class World:
    """A table whose one fragment was overwritten, or merged into, after the rows of version 1 were computed."""

    uri: str
    store: InMemoryCheckpointStore = field(default_factory=InMemoryCheckpointStore)
    stop: threading.Event = field(default_factory=threading.Event)

    def write(self, rows: dict[str, object]) -> None:
        """Make the next version of all rows."""
        lance.write_dataset(pa.table(rows), self.uri, mode="overwrite", enable_stable_row_ids=True)

    def compare(self, then=None, **options):
        """Compare the last version with an earlier one; return the rows' states, and values that were stored."""
        found = self.comparison(then, **options)
        (traced,) = found.files
        assert traced.compared
        computed = np.full(traced.physical_rows, COMPUTED, np.uint8)
        states = row_states.decode_states(traced.row_states) if traced.row_states else computed
        assert found.kept == np.count_nonzero(states)
        return states.tolist(), self.stored(FAMILY)

    def comparison(self, then=None, *, same_offsets=True, file="others.lance", kind=None, version=1) -> Comparison:
        """Compare the rows; `then`: their states in the earlier version, in which else all were computed."""
        now, before = lance.dataset(self.uri), lance.dataset(self.uri, version=version)
        fragment, earlier = now.get_fragments()[-1], before.get_fragments()[0]
        rows = fragment.physical_rows
        known = TracedFile(
            fragment_id=fragment.fragment_id,
            file=file,
            physical_rows=rows,
            fingerprint="a" * 32,
            input_files=(),
            row_states=row_states.encode_states(np.zeros(rows, np.uint8), frozenset()),
            rows_computed=0,
            rows_failed=0,
            column_id="c",
            output_field_ids=(1,),
        )
        states = b"" if then is None else row_states.encode_states(np.array(then, np.uint8), frozenset(), PARTS[1:])
        was = EarlierRows(
            version=version,
            fragment_id=earlier.fragment_id,
            physical_rows=earlier.physical_rows,
            row_states=states,
            columns=("x", "c"),
            same_offsets=same_offsets,
        )
        header = SimpleNamespace(
            uri=self.uri,
            read_version=now.version,
            input_columns=("x",),
            input_types=(),
            output=SimpleNamespace(name="c", field=SimpleNamespace(arrow=pa.field("c", kind or pa.int64()))),
            udf=SimpleNamespace(name="f", version="2"),
            kept_functions=(FunctionVersion("f", "1"),),
            versions=PARTS,
        )
        task = SimpleNamespace(fragment_id=fragment.fragment_id, checkpoint_prefix=FAMILY.prefix("", SOURCES))
        compared = ComparedFile(known=known, earlier=(was,), rows=rows)
        plan = SimpleNamespace(header=header, tasks=(task,), compared=(compared,))
        return compare_inputs(self.store, plan, self.stop)

    def stored(self, family: keys.KeyFamily) -> dict[int, tuple[object, int]]:
        """Values and states of stored rows of a function, by offset."""
        found = {}
        for key in self.store.list_keys(family.head):
            piece = from_checkpoint(self.store[key])
            states = [int(COMPUTED)] * len(piece.offsets) if piece.states is None else piece.states.tolist()
            found |= dict(zip(piece.offsets.tolist(), zip(piece.values.to_pylist(), states, strict=True), strict=True))
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(str(tmp_path / "t.lance"))
    made.write({"x": [1, 2, 3, 4], "c": [10, 20, 30, 40]})
    return made


def test_a_row_with_another_input_is_computed_and_the_others_are_not(world):
    world.write({"x": [1, 7, None, 4], "c": [10, 20, 30, 40]})
    assert world.compare() == ([COMPUTED, UNTOUCHED, UNTOUCHED, COMPUTED], {})


def test_a_row_that_was_not_computed_then_is_not_current_now(world):
    world.write({"x": [1, 2, 3, 4], "c": [10, 20, 30, 40]})
    assert world.compare([COMPUTED, UNTOUCHED, COMPUTED, UNTOUCHED]) == ([COMPUTED, UNTOUCHED, COMPUTED, UNTOUCHED], {})


def test_a_value_that_others_replaced_comes_from_the_earlier_version(world):
    world.write({"x": [1, 2, 7, 4], "c": [10, None, None, 99]})
    states, stored = world.compare()
    assert states == [COMPUTED, UNTOUCHED, UNTOUCHED, UNTOUCHED]
    assert stored == {1: (20, COMPUTED), 3: (40, COMPUTED)}, "the third row has another input"


def test_a_row_that_failed_stays_failed_and_has_no_value_to_be_stored(world):
    world.write({"x": [1, 2, 3, 4], "c": [10, None, 30, 40]})
    states, stored = world.compare([COMPUTED, FAILED, FAILED, FAILED])
    assert states == [COMPUTED, UNTOUCHED, FAILED, FAILED], "the second row has another value than then"
    assert stored == {}


def test_all_rows_of_a_fragment_without_the_column_get_what_they_had(world):
    """A failure, too. A row that no one computed has neither, nor one on which only an earlier function failed."""
    world.write({"x": [1, 2, 3, 4], "c": pa.nulls(4, pa.int64())})
    states, stored = world.compare([COMPUTED, FAILED, UNTOUCHED, OLDER_FAILED], file="")
    assert states == [UNTOUCHED] * 4
    assert stored == {0: (10, COMPUTED), 1: (20, FAILED)}
    assert world.stored(FAMILY_BEFORE) == {}


def test_a_value_of_a_kept_function_is_stored_as_that_function_s(world):
    world.write({"x": [1, 2, 3, 4], "c": pa.nulls(4, pa.int64())})
    _, stored = world.compare([COMPUTED, OLDER, COMPUTED, OLDER])
    assert stored == {0: (10, COMPUTED), 2: (30, COMPUTED)}
    assert {offset: value for offset, (value, _) in world.stored(FAMILY_BEFORE).items()} == {1: 20, 3: 40}


def test_values_of_another_type_are_not_stored(world):
    world.write({"x": [1, 2, 3, 4], "c": pa.nulls(4, pa.int64())})
    assert world.compare(kind=pa.float64()) == ([UNTOUCHED] * 4, {})


@pytest.mark.parametrize("then", [None, [UNTOUCHED, COMPUTED, UNTOUCHED, UNTOUCHED]], ids=["some", "no others"])
def test_a_row_that_was_deleted_then_tells_nothing(world, then):
    lance.dataset(world.uri).delete("x = 2")
    world.write({"x": [1, 2, 3, 4], "c": [10, 20, 30, 40]})
    states, stored = world.compare(then, version=2)
    assert states == ([COMPUTED, UNTOUCHED, COMPUTED, COMPUTED] if then is None else [UNTOUCHED] * 4)
    assert stored == {}


def test_what_a_stopped_job_did_not_compare_is_not_called_compared(world):
    world.write({"x": [1, 2, 3, 4], "c": [10, 20, 30, 40]})
    world.stop.set()
    found = world.comparison()
    assert (found.files, found.kept, found.restored) == ([], 0, 0)


def test_rows_that_moved_are_found_by_their_ids_and_new_ones_are_computed(tmp_path):
    world = World(str(tmp_path / "t.lance"))
    world.write({"k": [1, 2, 3, 4], "x": [1, 2, 3, 4], "c": [10, 20, 30, 40]})
    upserted = pa.table({"k": [4, 5, 1, 2], "x": [4, 1, 7, 2], "c": [40, 10, 10, 20]})
    lance.dataset(world.uri).merge_insert("k").when_matched_update_all().when_not_matched_insert_all().execute(upserted)
    rows = lance.dataset(world.uri).get_fragments()[-1].to_table().column("k").to_pylist()
    states, stored = world.compare([COMPUTED, UNTOUCHED, COMPUTED, COMPUTED], same_offsets=False)
    assert dict(zip(rows, states, strict=True)) == {4: COMPUTED, 5: UNTOUCHED, 1: UNTOUCHED, 2: UNTOUCHED}
    assert stored == {}


@pytest.mark.parametrize("most", [1, 3])
def test_earlier_values_that_no_array_can_hold_are_compared_and_stored_in_parts(tmp_path, monkeypatch, most):
    def concatenate(parts: list[pa.Array]) -> pa.Array:
        if sum(map(len, parts)) > most:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return arrow_values.concatenate(parts)

    monkeypatch.setattr(checkpoint_maintenance, "concatenate", concatenate)
    monkeypatch.setattr(checkpoint_records, "concatenate", concatenate)
    world = World(str(tmp_path / "t.lance"))
    world.write({"k": [1, 2, 3, 4], "x": [1, 2, 3, 4], "c": [10, 20, 30, 40]})
    upserted = pa.table({"k": [4, 3, 2, 1], "x": [4, 9, 2, 1], "c": [40, None, None, None]})
    lance.dataset(world.uri).merge_insert("k").when_matched_update_all().execute(upserted)
    rows = lance.dataset(world.uri).get_fragments()[-1].to_table().column("k").to_pylist()
    states, stored = world.compare([COMPUTED, OLDER, COMPUTED, COMPUTED], same_offsets=False)
    assert dict(zip(rows, states, strict=True)) == {4: COMPUTED, 3: UNTOUCHED, 2: UNTOUCHED, 1: UNTOUCHED}
    assert {rows[at]: value for at, (value, _) in stored.items()} == {1: 10}
    assert {rows[at]: value for at, (value, _) in world.stored(FAMILY_BEFORE).items()} == {2: 20}


def test_lost_values_that_no_array_can_hold_are_stored_in_several_checkpoints(world, monkeypatch):
    def concatenate(parts: list[pa.Array]) -> pa.Array:
        if sum(map(len, parts)) > 2:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return arrow_values.concatenate(parts)

    monkeypatch.setattr(checkpoint_records, "concatenate", concatenate)
    world.write({"x": [1, 2, 3, 4], "c": pa.nulls(4, pa.int64())})
    _, stored = world.compare()
    assert stored == {at: (10 * at + 10, COMPUTED) for at in range(4)}
    assert len(list(world.store.list_keys(FAMILY.head))) == 4
