"""When finished files are committed, and how many at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leman_executor.jobs.commit_cadence import CommitCadence


def cadence(*, granularity=0, planned=1_000_000, interval=5.0, longest=120.0, input_fields=1):
    return CommitCadence(
        granularity=granularity,
        planned=planned,
        interval_seconds=interval,
        longest_seconds=longest,
        input_fields=input_fields,
    )


def test_in_a_small_table_a_tenth_of_the_plan_or_five_seconds_are_enough():
    known = cadence(planned=100)
    known.answered(10, 0.05, 0.003)
    assert known.due(10, waited=0.1, since_last=1.0) == 10
    assert known.due(9, waited=4.9, since_last=9.0) == 0
    assert known.due(9, waited=5.0, since_last=9.0) == 9
    assert known.due(10, waited=9.0, since_last=0.9) == 0
    assert known.due(0, waited=9.0, since_last=9.0) == 0


def test_a_manifest_takes_a_tenth_of_the_time():
    known = cadence(planned=100)
    known.answered(10, 0.7, 0.6)
    assert known.pause_seconds == pytest.approx(5.4)
    assert known.due(90, waited=60.0, since_last=5.3) == 0
    assert known.due(90, waited=5.4, since_last=5.4) == 90


def test_no_file_waits_longer_than_the_setting_says():
    known = cadence(longest=30.0)
    known.answered(10, 60.0, 60.0)
    assert known.pause_seconds == 30.0
    assert known.due(3, waited=30.0, since_last=30.0) == 3


def test_commits_get_larger_where_the_manifest_costs_more_than_the_files():
    small, large, huge = cadence(), cadence(), cadence()
    small.answered(2000, 2.002, 0.002)
    large.answered(2000, 8.0, 6.0)
    huge.answered(2000, 60.2, 60.0)
    assert [known.most_fragments for known in (small, large, huge)] == [2000, 10_000, 10_000]
    middle = cadence()
    middle.answered(1000, 1.5, 0.5)
    assert middle.most_fragments == 4500
    assert middle.due(50_000, waited=9.0, since_last=9.0) == 4500


@pytest.mark.parametrize(("input_fields", "most"), [(0, 10_000), (1, 10_000), (9, 4993), (60, 2000), (1000, 2000)])
def test_requests_stay_small_where_inputs_lie_in_many_files(input_fields, most):
    """10,000 fragments with sixty inputs are 38 MB, and a service takes messages of 32 MiB by default."""
    known = cadence(input_fields=input_fields)
    known.answered(2000, 60.2, 60.0)
    assert known.most_fragments == most


def test_it_learns_from_the_last_commits_and_not_from_those_that_wrote_nothing():
    known = cadence()
    known.answered(10, 1.0, 0.4)
    known.answered(10, 9.0, 0.0)
    known.answered(0, 9.0, 0.4)
    assert known.pause_seconds == pytest.approx(3.6)
    for _ in range(30):
        known.answered(10, 1.0, 0.8)
    assert known.pause_seconds == pytest.approx(7.2)


def test_who_asks_for_a_granularity_gets_it():
    known = cadence(granularity=7)
    known.answered(7, 9.0, 9.0)
    assert [known.due(ready, waited=99.0, since_last=0.0) for ready in (6, 7, 20)] == [0, 7, 7]
    assert known.most_fragments == 7


@given(st.integers(1, 5000), st.floats(0.001, 5.0), st.floats(1e-5, 0.01), st.floats(10.0, 2000.0))
def test_a_job_of_any_size_writes_manifests_for_a_tenth_of_its_time(files, manifest, each, rate):
    """A job simulated: files are finished at a constant rate, and commits take what they take."""
    known = cadence(planned=files, longest=1e9)
    now = last = first = 0.0
    committed = commits = 0
    while committed < files:
        now += 0.5
        ready = min(files, int(now * rate)) - committed
        count = known.due(ready, waited=now - first, since_last=now - last)
        if count:
            commits, committed = commits + 1, committed + count
            now += manifest + count * each
            known.answered(count, manifest + count * each, manifest)
            last = first = now
    assert (commits - 1) * manifest <= 0.1 * now
