"""Histories in which the machine found something wrong, and some that were feared: each a test of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leman_core.model.plan import BackfillSpec
from tests.integration.stateful.harness import Fate
from tests.integration.stateful.oracle import Where
from tests.integration.stateful.test_machine import EVERYTHING, FILTERS, Machine


@pytest.fixture
def machine() -> Iterator[Machine]:
    made = Machine()
    made.begin(0)
    made._step("begin")
    yield made
    made.teardown()


def restore(machine: Machine, version: int) -> None:
    machine.system.open(version).restore()
    machine.oracle.restore(version)
    machine._step("restore")


def test_rows_that_a_restore_brings_back_are_computed(machine):
    before = machine.system.open().version
    machine.delete(2)
    machine._run_backfill("c", 0)
    restore(machine, before)
    machine._run_backfill("c", 0)


def test_rows_that_a_restore_brings_back_are_not_covered_by_checkpoints(machine):
    before = machine.system.open().version
    machine.delete(2)
    machine._run_backfill("c", 0, interval=1, fate=Fate("worker.file_written", 4))
    restore(machine, before)
    machine._run_backfill("c", 0)


def test_rows_that_a_restore_brings_back_are_computed_under_a_filter(machine):
    before = machine.system.open().version
    machine.delete(2)
    machine._run_backfill("c", 0, FILTERS[2], interval=1, fate=Fate("worker.file_written", 4))
    restore(machine, before)
    machine._run_backfill("c", 0, FILTERS[2])


def test_a_late_request_does_not_cover_rows_that_a_restore_brought_back(machine):
    before = machine.system.open().version
    machine.delete(2)
    machine._run_backfill("c", 0, fate=Fate("before_commit"))
    restore(machine, before)
    machine.late_commit()


@pytest.mark.parametrize("point", ["worker.checkpoint_stored", "worker.file_written", "worker.record_stored"])
def test_a_column_made_anew_after_a_kill(machine, point):
    machine._run_backfill("c", 0, interval=3, fate=Fate(point, 2))
    machine.drop_column("c", True)
    machine._run_backfill("c", 0)


def test_a_filter_after_a_new_version_and_a_kill(machine):
    machine._run_backfill("c", 0, FILTERS[0], 1, fate=Fate("worker.file_written", 2))
    machine._run_backfill("c", 2, FILTERS[1], 1, fate=Fate("worker.record_stored", 2))
    machine._run_backfill("c", 0, FILTERS[2])
    machine._run_backfill("c", 2, Where())


def test_a_damaged_file_that_was_staged_under_a_filter_is_computed_again(machine):
    everything = Where("id >= 0", ("id",))
    machine._run_backfill("c", 0, everything, fate=Fate("before_commit"))
    request, _, _ = machine.late.pop()
    bad = next(r for r in request.replacements if not r.staged.rows_failed)
    machine.system.damage_file(bad.staged.file)
    machine.oracle.broken.add(bad.fragment_id)
    machine._run_backfill("c", 0)


@pytest.mark.parametrize("where", [EVERYTHING, FILTERS[2]], ids=["all rows", "a filter"])
def test_checkpoints_hold_the_rows_that_were_known_from_a_file_since_replaced(machine, where):
    machine._run_backfill("c", 3, FILTERS[0])
    machine._run_backfill("c", 3, where, 3)
    machine._run_backfill("c", 2)
    machine._run_backfill("c", 3, where)


def test_rows_beside_the_filter_keep_the_values_of_another_version(machine):
    machine._run_backfill("c", 3, FILTERS[0])
    machine._run_backfill("c", 3, FILTERS[1], 2)
    machine._run_backfill("c", 2)
    machine._run_backfill("c", 3, FILTERS[1])


def test_rows_that_a_restore_brings_back_are_known_from_another_filter(machine):
    before = machine.system.open().version
    machine._run_backfill("c", 0, FILTERS[1], 3)
    machine.update(1, unrelated=True)
    machine._run_backfill("c", 0, interval=3)
    restore(machine, before)
    machine._run_backfill("c", 0)


def test_a_staged_file_is_installed_after_its_column_was_renamed(machine):
    machine._run_backfill("c", 0, fate=Fate("before_commit"))
    machine.rename("output", True)
    machine._run_backfill("e", 0)


def test_what_was_stored_for_old_fragments_after_their_compaction_is_migrated_over(machine):
    machine.update(977, False)
    machine.update(978, True)
    before = machine.system.open().version
    machine.compact()
    after = machine.system.open().version
    assert after > before
    restore(machine, before)
    everything = machine._backfill(BackfillSpec(machine.system.database, "t", "c"), 0, EVERYTHING)
    restore(machine, after)
    assert machine._backfill(BackfillSpec(machine.system.database, "t", "c"), 0, EVERYTHING) < everything


def test_rows_beside_a_filter_that_kept_their_values_are_found_in_the_file_after_it_was_replaced(machine):
    machine._run_backfill("c", 1, FILTERS[0])
    machine.update(33, unrelated=True)
    machine._run_backfill("c", 1, FILTERS[5])
    machine._run_backfill("c", 2)
    machine._run_backfill("c", 1)


def test_an_index_stays_with_its_column_over_a_rename(machine):
    machine.index("c", "BTREE")
    machine.rename("output", True)
    machine.index("c", "BTREE")
    machine._run_backfill("e", 0)


def test_values_that_others_overwrote_come_from_the_version_before(machine):
    machine._run_backfill("c", 0)
    machine.delete(2)
    machine.delete(7)
    machine.clean(True, False)
    machine.rewrite(len(machine.system.layout()) - 1, 14, "c")
    failed_before = 2
    assert machine._backfill(BackfillSpec(machine.system.database, "t", "c"), 0, EVERYTHING) == failed_before
