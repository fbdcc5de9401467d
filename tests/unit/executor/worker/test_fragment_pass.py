"""A unit of work on a worker: what is evaluated, stored and written."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from leman._format.stored_functions import CheckpointBounds, ErrorAction, ErrorPolicy, ErrorRule, UdfKind
from leman_core.model import keys, row_states
from leman_core.model.plan import CheckpointRef
from leman_core.model.row_positions import RowRange
from leman_core.model.row_states import RowState
from leman_core.storage import column_files
from leman_executor.coordination.reservations import InProcessReservations
from leman_executor.worker import unit_runner
from tests.unit.executor.executor_helpers import Lab

SKIP = ErrorPolicy(rules=(ErrorRule(ErrorAction.SKIP),))


def logging(folder: Path):
    """Doubles x and writes every x it saw to a file: what was evaluated."""
    log = folder / "seen.txt"

    def double(x):
        with log.open("a") as f:
            f.write(f"{x}\n")
        return x * 2

    def seen() -> list[int]:
        return [int(line) for line in log.read_text().split()] if log.exists() else []

    return double, seen


def test_whole_fragments_are_written_without_checkpoints(lab):
    context = lab.context(lab.udf(lambda x: x * 2))
    outcome = lab.run(context, lab.work(context, 0, [(0, 20)]), lab.work(context, 1, [(0, 20)]))
    assert outcome.failure is None
    assert [r.rows_computed for r in outcome.results] == [20, 20]
    assert not [k for k in lab.checkpoints.list_keys() if "_range-" in k]
    lab.install(outcome)
    assert lab.values() == {x: 2 * x for x in range(40)}
    for result, field in zip(outcome.results, [pa.field("y", pa.int64())] * 2, strict=True):
        column_files.verify_column_file(lab.uri, result.staged, field)


def test_fixed_checkpoint_size_and_resume_without_evaluating_again(lab, tmp_path):
    double, seen = logging(tmp_path)
    context = lab.context(lab.udf(double), checkpoint=CheckpointBounds(min_checkpoint_size=6, max_checkpoint_size=6))
    first = lab.run(context, lab.work(context, 0, [(0, 15)], finish=False))
    ranges = [r.range for r in first.results[0].checkpoints]
    assert ranges == [(0, 6), (6, 12), (12, 15)]
    assert seen() == list(range(15))
    rest = lab.work(context, 0, [(15, 20)], checkpoints=first.results[0].checkpoints)
    second = lab.run(context, rest, unit="u2")
    assert seen() == list(range(20))
    lab.install(second)
    assert {x: y for x, y in lab.values().items() if x < 20} == {x: 2 * x for x in range(20)}


def test_a_new_attempt_finds_what_the_dead_one_left(lab, tmp_path):
    double, seen = logging(tmp_path)
    context = lab.context(lab.udf(double))
    lab.run(context, lab.work(context, 0, [(0, 11)], finish=False))
    outcome = lab.run(context, lab.work(context, 0, [(0, 20)]), look_first=True)
    assert sorted(seen()) == list(range(20))
    assert outcome.results[0].staged is not None
    again = lab.run(context, lab.work(context, 0, [(0, 20)]), look_first=True)
    assert again.results[0].staged == outcome.results[0].staged
    assert len(seen()) == 20


def test_budget_gives_the_rest_back_at_a_safe_point(lab, tmp_path):
    double, seen = logging(tmp_path)
    clock = count(0.0, 1.0)
    context = lab.context(lab.udf(double, batch_size=4))
    outcome = lab.run(
        context,
        lab.work(context, 0, [(0, 20)]),
        lab.work(context, 1, [(0, 20)]),
        budget_seconds=4.0,
        clock=lambda: next(clock),
    )
    one, two = outcome.results
    assert one.staged is None
    assert one.left
    assert one.left[0].end == 20
    assert seen() == list(range(one.left[0].start))
    assert [c.range for c in one.checkpoints] == [RowRange(0, one.left[0].start)]
    assert two.left == (RowRange(0, 20),)
    finish = lab.run(context, lab.work(context, 0, list(one.left), checkpoints=one.checkpoints), unit="u2")
    lab.install(finish)
    assert sorted(seen()) == list(range(20))
    assert lab.values()[19] == 38


@pytest.mark.parametrize(("seconds_a_row", "through"), [(0.02, True), (0.5, False)])
def test_a_fragment_that_is_almost_through_is_finished_beyond_the_budget(lab, tmp_path, seconds_a_row, through):
    double, seen = logging(tmp_path)
    context = lab.context(lab.udf(double, batch_size=1))
    outcome = lab.run(
        context,
        lab.work(context, 0, [(0, 20)]),
        lab.work(context, 1, [(0, 20)]),
        budget_seconds=9.5 * seconds_a_row,
        clock=lambda: len(seen()) * seconds_a_row,
    )
    one, two = outcome.results
    assert (one.staged is not None) is through
    assert len(seen()) == (20 if through else 10)
    assert two.left == (RowRange(0, 20),), "no other is begun"


def test_deleted_rows_cost_nothing_and_keep_their_place(lab, tmp_path):
    lab.dataset.delete("x % 3 = 0")
    double, seen = logging(tmp_path)
    context = lab.context(lab.udf(double))
    outcome = lab.run(context, lab.work(context, 0, [(0, 20)]), lab.work(context, 1, [(0, 20)]))
    lab.install(outcome)
    live = [x for x in range(40) if x % 3]
    assert sorted(seen()) == live
    assert lab.values() == {x: 2 * x for x in live}
    assert not keys.parse_column_file_name(outcome.results[0].staged.file).partial


def test_filter_leaves_other_rows_alone_and_says_so_in_the_file(lab, tmp_path):
    context = lab.context(lab.udf(lambda x: x * 2))
    everything = lab.run(context, lab.work(context, 0, [(0, 20)]))
    lab.install(everything)
    lab.dataset.delete("x = 4")
    double, seen = logging(tmp_path)
    selective = lab.context(lab.udf(lambda x: double(x) * 100), where="x % 2 = 0")
    current = everything.results[0].staged.file
    outcome = lab.run(selective, lab.work(selective, 0, [(0, 20)], current_file=current), unit="u2")
    lab.install(outcome)
    even = [x for x in range(20) if x % 2 == 0 and x != 4]
    assert seen() == even
    assert outcome.results[0].staged.rows_skipped == 10
    assert {x: lab.values()[x] for x in range(20) if x != 4} == {
        x: x * 200 if x in even else x * 2 for x in range(20) if x != 4
    }
    staged = outcome.results[0].staged.file
    assert keys.parse_column_file_name(staged).partial
    states = column_files.read_states(lab.uri, staged)
    assert [int(s) for s in states] == [RowState.COMPUTED if x % 2 == 0 else RowState.UNTOUCHED for x in range(20)]
    assert column_files.read_state_summary(lab.uri, staged).filters == {keys.md5(selective.where)}


def test_partial_file_is_extended_without_evaluating_its_rows_again(lab, tmp_path):
    double, seen = logging(tmp_path)
    udf = lab.udf(double)
    first = lab.context(udf, where="x < 5")
    begun = lab.run(first, lab.work(first, 0, [(0, 20)]))
    lab.install(begun)
    second = lab.context(udf)
    current = begun.results[0].staged.file
    work = lab.work(second, 0, [(0, 20)], current_file=current, extend_current=True)
    outcome = lab.run(second, work, unit="u2")
    lab.install(outcome)
    assert seen() == list(range(20))
    assert not keys.parse_column_file_name(outcome.results[0].staged.file).partial
    assert all(lab.values()[x] == 2 * x for x in range(20))


def test_a_compacted_file_is_extended_by_the_states_that_the_plan_has(lab, tmp_path):
    """Its values are those of the older files; it carries no states itself."""
    double, seen = logging(tmp_path)
    lab.install(lab.run(context := lab.context(lab.udf(lambda x: x * 2)), lab.work(context, 0, [(0, 20)])))
    lab.dataset.optimize.compact_files()
    [fragment] = lab.dataset.get_fragments()
    [file] = [str(f.path) for f in fragment.metadata.files]
    states = np.array([RowState.COMPUTED] * 18 + [RowState.FAILED] * 2 + [RowState.UNTOUCHED] * 20, np.uint8)
    held = row_states.encode_states(states, frozenset({"f1"}))
    selective = lab.context(lab.udf(double), where="x < 25")
    moved = {"current_file": file, "extend_current": True, "row_states": held}
    work = lab.work(selective, fragment.fragment_id, [(0, 40)], **moved)
    outcome = lab.run(selective, work, unit="u2")
    assert seen() == list(range(20, 25))
    staged = outcome.results[0].staged
    summary = column_files.read_state_summary(lab.uri, staged.file)
    assert (summary.computed, summary.failed, summary.untouched) == (23, 2, 15)
    assert summary.filters == {"f1", keys.md5("x < 25")}
    lab.install(outcome)
    assert lab.values() == {x: 2 * x if x < 25 else None for x in range(40)}


def test_partial_file_with_deleted_rows_is_extended(lab):
    lab.dataset.delete("x = 2 OR x = 13")
    udf = lab.udf(lambda x: x * 2)
    first = lab.context(udf, where="x < 5")
    begun = lab.run(first, lab.work(first, 0, [(0, 20)]))
    lab.install(begun)
    lab.dataset.delete("x = 3 OR x = 14")
    second = lab.context(udf)
    current = begun.results[0].staged.file
    work = lab.work(second, 0, [(0, 20)], current_file=current, extend_current=True)
    outcome = lab.run(second, work, unit="u2")
    assert outcome.failure is None
    lab.install(outcome)
    live = [x for x in range(20) if x not in (2, 3, 13, 14)]
    assert {x: y for x, y in lab.values().items() if x < 20} == {x: 2 * x for x in live}
    assert not keys.parse_column_file_name(outcome.results[0].staged.file).partial


def test_rows_known_under_another_filter_are_not_evaluated_again(lab, tmp_path):
    double, seen = logging(tmp_path)
    udf = lab.udf(double)
    some = lab.context(udf, where="x % 2 = 0")
    known = lab.run(some, lab.work(some, 0, [(0, 20)], finish=False)).results[0].checkpoints
    refs = tuple(ref._replace(settles=False) for ref in known)
    whole = lab.context(udf)
    outcome = lab.run(whole, lab.work(whole, 0, [(0, 20)], checkpoints=refs), unit="u2")
    lab.install(outcome)
    assert sorted(seen()) == list(range(20))
    assert all(lab.values()[x] == 2 * x for x in range(20))


def test_rows_of_another_filter_stay_out_where_this_one_does_not_ask_for_them(lab, tmp_path):
    double, seen = logging(tmp_path)
    udf = lab.udf(double)
    low = lab.context(udf, where="x < 12")
    known = lab.run(low, lab.work(low, 0, [(0, 20)], finish=False)).results[0].checkpoints
    refs = tuple(ref._replace(settles=False) for ref in known)
    even = lab.context(udf, where="x % 2 = 0")
    outcome = lab.run(even, lab.work(even, 0, [(0, 20)], checkpoints=refs), unit="u2")
    lab.install(outcome)
    assert seen() == [*range(12), 12, 14, 16, 18]
    assert {x: lab.values()[x] for x in range(20)} == {x: None if x % 2 else 2 * x for x in range(20)}


def test_damaged_checkpoint_is_computed_again(lab, tmp_path):
    double, seen = logging(tmp_path)
    context = lab.context(lab.udf(double))
    refs = lab.run(context, lab.work(context, 0, [(0, 12)], finish=False)).results[0].checkpoints
    folder = Path(lab.uri, "_checkpoints")
    (path,) = folder.glob("*.lance")
    data = bytearray(path.read_bytes())
    data[:32] = bytes(b ^ 0x55 for b in data[:32])
    path.write_bytes(data)
    outcome = lab.run(context, lab.work(context, 0, [(12, 20)], checkpoints=refs), unit="u2")
    lab.install(outcome)
    assert all(lab.values()[x] == 2 * x for x in range(20))
    assert sorted(set(seen())) == list(range(20))
    assert len(seen()) == 32
    assert list(folder.glob("*.damaged"))


def test_failed_rows_are_skipped_and_told_apart_from_null(lab):
    def odd(x):
        if x == 7:
            raise ValueError("seven")
        return None if x == 8 else x

    context = lab.context(lab.udf(odd, error_policy=SKIP))
    outcome = lab.run(context, lab.work(context, 0, [(0, 20)]))
    lab.install(outcome)
    assert lab.values()[7] is None
    assert lab.values()[8] is None
    states = column_files.read_states(lab.uri, outcome.results[0].staged.file)
    assert states[7] == RowState.FAILED
    assert states[8] == RowState.COMPUTED
    (error,) = lab.errors
    assert (error.error_type, error.error_message, error.row_address, error.row_id) == ("ValueError", "seven", 7, 7)
    assert "in odd" in error.traceback


def test_failing_policy_keeps_the_rows_before(lab):
    def odd(x):
        if x == 7:
            raise ValueError("seven")
        return x

    context = lab.context(lab.udf(odd, batch_size=2))
    outcome = lab.run(context, lab.work(context, 0, [(0, 20)]))
    assert outcome.failure.reason == "UDF_FAILED"
    assert "row 7 of fragment 0 (x = 7): ValueError: seven" in outcome.failure.message
    kept = [keys.parse_range_key(k).range for k in lab.checkpoints.list_keys()]
    assert kept == [(0, 7)], "row 6 too, which was given together with the one that failed"


def test_ranges_of_another_job_are_left_to_it(lab, tmp_path):
    double, seen = logging(tmp_path)
    context = lab.context(lab.udf(double))
    work = lab.work(context, 0, [(0, 20)])
    lab.reservations.reserve(context.scope(work.scope), [RowRange(5, 9)], "job-2")
    outcome = lab.run(context, work)
    (result,) = outcome.results
    assert result.busy == (RowRange(5, 9),)
    assert result.staged is None
    assert seen() == [*range(5), *range(9, 20)]


def test_work_finished_by_another_job_is_taken_over(lab, tmp_path):
    double, seen = logging(tmp_path)
    context = lab.context(lab.udf(double))
    mine = lab.work(context, 0, [(0, 20)])
    theirs = replace(context, job_id="job-2")
    lab.run(theirs, mine)
    outcome = lab.run(context, mine)
    assert outcome.results[0].staged is not None
    assert len(seen()) == 20


def test_checkpoints_found_meanwhile_are_reported_for_the_unit_that_finishes(lab, tmp_path):
    double, seen = logging(tmp_path)
    context = lab.context(lab.udf(double))
    theirs = replace(context, job_id="job-2")
    lab.run(theirs, lab.work(context, 0, [(0, 8)], finish=False))
    mine = lab.run(context, lab.work(context, 0, [(0, 12)], finish=False)).results[0]
    assert [c.range for c in mine.checkpoints] == [RowRange(0, 8), RowRange(8, 12)]
    last = lab.run(context, lab.work(context, 0, [(12, 20)], checkpoints=mine.checkpoints), unit="u2")
    lab.install(last)
    assert seen() == list(range(20))
    assert all(lab.values()[x] == 2 * x for x in range(20))


def test_a_fragment_with_rows_that_nobody_computed_is_never_finished(lab):
    context = lab.context(lab.udf(lambda x: x))
    outcome = lab.run(context, lab.work(context, 0, [(12, 20)]))
    assert outcome.failure.reason == "RANGE_LOST"
    assert outcome.results == ()


def test_a_checkpoint_without_its_rows_does_not_pass_for_nulls(lab):
    context = lab.context(lab.udf(lambda x: x))
    (ref,) = lab.run(context, lab.work(context, 0, [(0, 12)], finish=False)).results[0].checkpoints
    lab.checkpoints[ref.key] = lab.checkpoints[ref.key].slice(0, 5)
    outcome = lab.run(context, lab.work(context, 0, [(12, 20)], checkpoints=(ref,)), unit="u2")
    assert "7 rows that are not deleted have no value" in outcome.failure.message


@pytest.mark.parametrize("rows", [1, 3, 100_000])
def test_array_udf_over_any_fragment_size(tmp_path, rows):
    lab = Lab(tmp_path, rows=rows, per_fragment=rows)
    context = lab.context(lab.udf(lambda x: pc.multiply(x, 2), UdfKind.ARRAY))
    outcome = lab.run(context, lab.work(context, 0, [(0, rows)]))
    lab.install(outcome)
    assert lab.dataset.to_table(columns=["y"])["y"].to_pylist() == [2 * x for x in range(rows)]


def test_batches_are_bisected_down_to_the_bad_rows(lab):
    def strict(x):
        if pc.any(pc.is_in(x, pa.array([3, 11]))).as_py():
            raise RuntimeError("bad batch")
        return pc.multiply(x, 2)

    context = lab.context(lab.udf(strict, UdfKind.ARRAY, error_policy=SKIP))
    outcome = lab.run(context, lab.work(context, 0, [(0, 20)]))
    lab.install(outcome)
    assert [e.offset for e in lab.errors] == [3, 11]
    assert {x: y for x, y in lab.values().items() if x < 20} == {x: None if x in (3, 11) else 2 * x for x in range(20)}


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (lambda b: pa.array([1]), "returned 1 values for"),
        (lambda b: ["a"] * b.num_rows, "failed with type error"),
        (lambda b: None, "failed with type error"),
    ],
)
def test_results_that_do_not_fit_fail_with_the_facts(lab, result, words):
    context = lab.context(lab.udf(result, UdfKind.RECORD_BATCH))
    outcome = lab.run(context, lab.work(context, 0, [(0, 20)]))
    assert outcome.failure.reason == "UDF_FAILED"
    assert words in outcome.failure.message


def test_scalar_result_of_the_wrong_type_names_the_row(lab):
    context = lab.context(lab.udf(lambda x: "text" if x == 5 else x))
    outcome = lab.run(context, lab.work(context, 0, [(0, 20)]))
    said = outcome.failure.message
    assert said.startswith(
        "UDF 'f' failed on row 5 of fragment 0 (x = 5): OutputError: failed with type error: it returned 'text'"
    )
    assert said.count("UDF 'f'") == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [("a" * 99, f"'{'a' * 58}…"), (b"1234", "4 bytes"), (None, "NULL"), ([1, 2], "[1, 2]"), (2.5, "2.5")],
)
def test_the_error_of_a_row_shows_its_inputs_in_brief(value, text):
    assert unit_runner._brief(pa.scalar(value)) == text


def test_nan_and_none_are_values(tmp_path):
    lab = Lab(tmp_path, output=pa.float64())
    context = lab.context(lab.udf(lambda x: None if x % 2 else float("nan")))
    outcome = lab.run(context, lab.work(context, 0, [(0, 20)]))
    lab.install(outcome)
    values = lab.dataset.to_table(columns=["y"])["y"].to_pylist()[:20]
    assert all(v is None if x % 2 else np.isnan(v) for x, v in enumerate(values))


def test_retry_calls_again_until_it_works(lab, tmp_path):
    double, seen = logging(tmp_path)
    tries = tmp_path / "tries"

    def flaky(x):
        if x == 3:
            with tries.open("a") as f:
                f.write(".")
            if tries.stat().st_size < 3:
                raise TimeoutError("busy")
        return double(x)

    policy = ErrorPolicy(rules=(ErrorRule(ErrorAction.RETRY, ("TimeoutError",), max_attempts=3),))
    context = lab.context(lab.udf(flaky, error_policy=policy))
    outcome = lab.run(context, lab.work(context, 0, [(0, 20)]))
    assert outcome.failure is None
    assert seen() == list(range(20))
    assert tries.stat().st_size == 3


def test_a_range_without_matching_rows_is_recorded_as_done(lab):
    context = lab.context(lab.udf(lambda x: x), where="x > 1000")
    outcome = lab.run(context, lab.work(context, 0, [(0, 20)], finish=False))
    assert [c.range for c in outcome.results[0].checkpoints] == [RowRange(0, 20)]
    assert lab.checkpoints[outcome.results[0].checkpoints[0].key].num_rows == 0


def test_bundle_with_another_digest_is_refused(lab):
    context = lab.context(lab.udf(lambda x: x, bundle_sha256="0" * 64))
    outcome = lab.run(context, lab.work(context, 0, [(0, 20)]))
    assert outcome.failure.reason == "UDF_DIGEST_MISMATCH"


def test_checkpoint_key_names_what_it_covers(lab):
    context = lab.context(lab.udf(lambda x: x))
    outcome = lab.run(context, lab.work(context, 1, [(3, 9)], finish=False))
    (ref,) = outcome.results[0].checkpoints
    assert ref == CheckpointRef(ref.key, RowRange(3, 9))
    batch = lab.checkpoints[ref.key]
    assert batch.column("y").to_pylist() == list(range(23, 29))
    assert batch.column("_rowaddr").to_pylist() == [1 << 32 | o for o in range(3, 9)]


def test_a_full_dictionary_fails_the_job_with_what_to_do(tmp_path):
    lab = Lab(tmp_path, rows=300, per_fragment=300, output=pa.dictionary(pa.int8(), pa.string()))
    context = lab.context(lab.udf(str, UdfKind.SCALAR, error_policy=SKIP, batch_size=300))
    outcome = lab.run(context, lab.work(context, 0, [(0, 300)]))
    assert outcome.failure is not None
    assert outcome.failure.reason == "UDF_FAILED"
    assert "larger index type" in outcome.failure.message


class OvertakenReservations(InProcessReservations):
    """A later attempt at the job reserves the same rows after the first one has begun."""

    def renew(self, scopes, holder):
        for scope in list(scopes):
            self.reserve(scope, [RowRange(0, 2000)], "job-1#2")
        return super().renew(scopes, holder)


def test_a_unit_of_an_attempt_that_was_overtaken_stops(tmp_path):
    """Its executor may be frozen, and tell it nothing."""

    def slow(x):
        import threading

        threading.Event().wait(0.002)
        return x

    lab = Lab(tmp_path, rows=2000, per_fragment=2000)
    lab.reservations = OvertakenReservations(0.03)
    context = lab.context(lab.udf(slow), reservation_ttl=0.03)
    work = lab.work(context, 0, [(0, 2000)])
    result = lab.run(context, work).results[0]
    assert 0 < result.rows_evaluated < 2000
    assert result.staged is None
    assert result.left == (RowRange(result.rows_evaluated, 2000),)
    assert [c.range for c in result.checkpoints] == [RowRange(0, result.rows_evaluated)], "what was done is kept"
    lab.reservations = InProcessReservations(60)
    lab.reservations.reserve(context.scope(work.scope), [RowRange(5, 6)], "job-1#2")
    late = lab.run(context, work).results[0]
    assert (late.left, late.rows_evaluated) == (work.ranges, 0)


def installed(lab, outcome):
    """Commits a unit's file, and returns its name."""
    lab.install(outcome)
    return outcome.results[0].staged.file


def changed(lab, file):
    """By file that a column file follows, the offsets of the rows that differ."""
    found = column_files.read_predecessors(lab.uri, file)
    return {p.file: np.flatnonzero(p.changed).tolist() for p in found}


@pytest.mark.parametrize("size", [0, 4], ids=["in one pass", "from checkpoints"])
def test_a_file_names_its_predecessors_and_the_rows_that_differ(lab, size):
    bounds = CheckpointBounds(min_checkpoint_size=size, max_checkpoint_size=size)
    context = lab.context(lab.udf(lambda x: x * 2), where="x < 5", checkpoint=bounds)
    first = installed(lab, lab.run(context, lab.work(context, 0, [(0, 20)])))
    assert changed(lab, first) == {}
    more = lab.context(lab.udf(lambda x: x * 2), where="x < 9", checkpoint=bounds)
    work = lab.work(more, 0, [(0, 20)], current_file=first, extend_current=True)
    if size:  # another unit has stored a part of it
        stored = lab.run(more, replace(work, ranges=(RowRange(0, 12),), finish=False)).results[0].checkpoints
        work = replace(work, ranges=(RowRange(12, 20),), checkpoints=stored)
    second = installed(lab, lab.run(more, work))
    assert changed(lab, second) == {first: [5, 6, 7, 8]}
    rest = lab.context(lab.udf(lambda x: x * 2 if x > 10 else None), checkpoint=bounds)
    work = lab.work(rest, 0, [(0, 20)], current_file=second, extend_current=True)
    third = installed(lab, lab.run(rest, work))
    # rows 9 and 10 were empty, and are
    assert changed(lab, third) == {second: list(range(11, 20)), first: [5, 6, 7, 8, *range(11, 20)]}
