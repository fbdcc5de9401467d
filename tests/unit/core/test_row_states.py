"""Row states with versions: what is stored is read back, and seen from another version it counts as it should."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from leman_core.model import row_states
from leman_core.model.row_states import RowState

PARTS = [f"{n:016x}" for n in range(6)]


@st.composite
def files(draw):
    """A file's own version, the earlier ones it knows, and its states."""
    own, *older = draw(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4, unique=True))
    possible = [int(RowState.UNTOUCHED)]
    for number in range(len(older) + 1):
        possible += [row_states.with_version(state, number) for state in (RowState.COMPUTED, RowState.FAILED)]
    states = np.array(draw(st.lists(st.sampled_from(possible), max_size=40)), np.uint8)
    return own, older, states


@given(files(), st.frozensets(st.sampled_from(["a" * 32, "b" * 32])))
def test_states_survive(file, filters):
    _, older, states = file
    buffer = row_states.encode_states(states, filters, older)
    assert (row_states.decode_states(buffer) == states).all()
    read, counted = row_states.decode_state_summary(buffer), row_states.summarize_states(states, filters, older)
    assert (read.untouched, read.failed, read.computed, read.filters) == (
        counted.untouched,
        counted.failed,
        counted.computed,
        filters,
    )
    assert [entry for entry in read.older if any(entry[1:])] == list(counted.older)


@given(files(), st.lists(st.sampled_from(PARTS), min_size=1, max_size=4, unique=True))
def test_counts_and_rows_agree_from_every_version(file, accepted):
    own, older, states = file
    buffer = row_states.encode_states(states, frozenset({"f"}), older)
    seen = row_states.decode_states_for(buffer, own, accepted)
    summary = row_states.summary_for_version(row_states.decode_state_summary(buffer), own, accepted)
    counted = row_states.summarize_states(seen, older=accepted[1:])
    assert (summary.untouched, summary.failed, summary.computed) == (
        counted.untouched,
        counted.failed,
        counted.computed,
    )
    assert sorted(summary.older) == sorted(counted.older)
    opened = summary.failed_older or summary.untouched > row_states.decode_state_summary(buffer).untouched
    assert summary.filters == (frozenset() if opened else {"f"}), "a filter is settled only while no row was opened"


def test_a_row_of_a_version_that_is_not_kept_is_worth_nothing():
    states = np.array([1, 2, row_states.with_version(RowState.COMPUTED, 1), 0], np.uint8)
    buffer = row_states.encode_states(states, frozenset(), [PARTS[1]])
    assert row_states.decode_states_for(buffer, PARTS[0], [PARTS[2]]).tolist() == [0, 0, 0, 0]
    assert row_states.decode_states_for(buffer, PARTS[0], [PARTS[2], PARTS[1]]).tolist() == [0, 0, 5, 0]
    assert row_states.decode_states_for(buffer, PARTS[0], PARTS).tolist() == [1, 2, 5, 0]


def test_without_earlier_versions_a_row_takes_two_bits():
    states = np.ones(4000, np.uint8)
    states[::7] = 2
    with_older = states.copy()
    with_older[0] = row_states.with_version(RowState.COMPUTED, 1)
    plain = row_states.encode_states(states, frozenset())
    assert b"older" not in plain
    assert b"older" in row_states.encode_states(with_older, frozenset(), PARTS[:1])
