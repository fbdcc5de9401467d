"""What is known of computed rows after a compaction when the versions before it are cleaned away. The machine makes up
such histories; these are the ones that people have."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from leman_coordinator.garbage.garbage_collector import GarbageCollector
from leman_core.model.plan import BackfillSpec
from leman_core.storage.checkpoint_store import checkpoint_root
from leman_core.storage.lance_tables import LanceTables
from leman_planner.planning.plan_maker import PlanMaker
from tests.integration.stateful import udfs
from tests.integration.stateful.test_machine import EVERYTHING, FILTERS, ROWS, Machine

FORTY = FILTERS[2]  # id < 40


class RowAddresses(Machine):
    """Without stable row ids."""

    stable_row_ids = False


def begun(made: Machine) -> Iterator[Machine]:
    made.begin(0)
    made._step("begin")
    yield made
    made.teardown()


@pytest.fixture(params=[Machine, RowAddresses], ids=["stable row ids", "row addresses"])
def machine(request) -> Iterator[Machine]:
    yield from begun(request.param())


@pytest.fixture
def stable() -> Iterator[Machine]:
    yield from begun(Machine())


@pytest.fixture
def addressed() -> Iterator[Machine]:
    yield from begun(RowAddresses())


def compact(machine: Machine) -> None:
    """Into one fragment, without the deleted rows."""
    machine.system.open().optimize.compact_files(materialize_deletions_threshold=0.0)
    machine.oracle.compact(machine._layout())
    assert len(machine.oracle.state.fragments) == 1


def clean(machine: Machine) -> None:
    machine.clean(compacted=False, untold=False)
    assert len(machine.system.open().versions()) == 1


def backfill(machine: Machine, where=EVERYTHING, column="c") -> list[int]:
    """The rows that the function is called for."""
    udfs.EVALUATED.clear()
    machine._backfill(BackfillSpec(machine.system.database, "t", column, where=where.text), 0, where)
    machine._compare()
    return sorted(udfs.EVALUATED)


def lacking(machine: Machine, where=EVERYTHING, column="c") -> list[int]:
    """The rows that are not settled, by the oracle."""
    return sorted(i for part in machine.oracle.plan(column, 0, where).values() for i in part.needed)


def reasons(machine: Machine) -> dict[str, int]:
    plan = PlanMaker(LanceTables()).plan(BackfillSpec(machine.system.database, "t", "c"))
    return {count.reason.name: count.fragments for count in plan.header.reasons}


def test_a_current_table_costs_no_call(machine):
    assert len(backfill(machine)) == ROWS
    compact(machine)
    clean(machine)
    assert reasons(machine) == {"REUSED_COMPACTED": 1}
    assert backfill(machine) == []


def test_a_half_filled_table_costs_what_it_lacks(machine):
    assert backfill(machine, FORTY) == list(range(40))
    compact(machine)
    clean(machine)
    assert backfill(machine, FORTY) == []
    assert backfill(machine) == list(range(40, ROWS))


def test_rows_that_were_deleted_or_updated_before_the_compaction(stable):
    backfill(stable, FORTY)
    stable.delete(7)
    stable.update(11, unrelated=False)
    stable.merge_insert(40, 3, 2)
    lacks, lacks_of_forty = lacking(stable), lacking(stable, FORTY)
    assert 0 < len(lacks_of_forty) < 12
    compact(stable)
    clean(stable)
    assert backfill(stable, FORTY) == lacks_of_forty
    assert backfill(stable) == [i for i in lacks if i >= 40]


def test_without_stable_row_ids_deletions_end_what_is_known_of_a_partial_column(addressed):
    backfill(addressed, FORTY)
    addressed.delete(7)
    compact(addressed)
    clean(addressed)
    assert reasons(addressed) == {"HISTORY_LOST": 1}
    assert backfill(addressed) == sorted(addressed.oracle.state.rows)


def test_an_input_rewritten_before_the_compaction(machine):
    backfill(machine)
    machine.rewrite(1, 3, "x")
    lacks = lacking(machine)
    assert lacks == list(range(16, 32))
    compact(machine)
    clean(machine)
    assert backfill(machine) == lacks


def test_an_input_rewritten_after_the_compaction(machine):
    backfill(machine)
    compact(machine)
    machine.rewrite(0, 3, "x")
    clean(machine)
    assert len(backfill(machine)) == ROWS


def test_when_the_compaction_itself_was_cleaned_away_everything_is_computed(machine):
    backfill(machine)
    compact(machine)
    machine.append(1, 1)
    clean(machine)
    assert reasons(machine) == {"HISTORY_LOST": 1, "MISSING": 1}
    assert len(backfill(machine)) == ROWS + 1


def test_a_job_of_another_column_records_the_compaction(machine):
    machine._add("e", 1)
    backfill(machine)
    backfill(machine, column="e")
    compact(machine)
    backfill(machine, column="e")
    machine.append(1, 1)
    clean(machine)
    assert backfill(machine) == [ROWS]


def test_collected_garbage_is_not_what_tells_of_a_partial_column(machine):
    backfill(machine, FORTY)
    collector = GarbageCollector(machine.system.uri, 0.0)
    _, decisions = collector.look()
    gone = collector.sweep(decisions)
    assert any(file.key for file in gone)
    compact(machine)
    clean(machine)
    assert backfill(machine, FORTY) == []


def test_without_the_record_the_states_of_a_cleaned_file_are_not_guessed(machine):
    backfill(machine, FORTY)
    whole = {
        fragment.fragment_id
        for fragment in machine.system.open().get_fragments()
        if "partial" not in fragment.metadata.files[-1].path
    }
    known = {i for f, ids in machine._layout().items() if f in whole for i in ids} & set(range(40))
    assert 0 < len(known) < 40
    compact(machine)
    shutil.rmtree(checkpoint_root(machine.system.uri))
    clean(machine)
    assert backfill(machine) == sorted(set(range(ROWS)) - known)
