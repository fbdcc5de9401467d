"""What a column file says of those that it replaced."""

import numpy as np
import pytest

from leman_core.model import row_states
from leman_core.model.row_states import MOST_PREDECESSORS, Predecessor


def mask(*rows, of=20):
    found = np.zeros(of, np.bool_)
    found[list(rows)] = True
    return found


def rows_of(predecessors):
    return {p.file: np.flatnonzero(p.changed).tolist() for p in predecessors}


def test_rows_that_changed_since_an_earlier_file_are_those_of_all_steps():
    first = row_states.add_predecessor("a", mask(1, 2), [])
    second = row_states.add_predecessor("b", mask(2, 19), first)
    assert rows_of(second) == {"b": [2, 19], "a": [1, 2, 19]}


def test_the_list_survives_being_stored():
    made = row_states.add_predecessor("b", mask(7, of=9), [Predecessor.of_mask("a", mask(0, 8, of=9))])
    assert row_states.decode_predecessors(row_states.encode_predecessors(made)) == made


def test_a_predecessor_with_another_number_of_rows_is_dropped():
    assert rows_of(row_states.add_predecessor("b", mask(1), [Predecessor.of_mask("a", mask(1, of=21))])) == {"b": [1]}


def test_the_list_is_bounded_and_the_latest_come_first():
    found = []
    for step in range(MOST_PREDECESSORS + 5):
        found = row_states.add_predecessor(f"f{step}", mask(step % 20), found)
    assert [p.file for p in found[:2]] == [f"f{MOST_PREDECESSORS + 4}", f"f{MOST_PREDECESSORS + 3}"]
    assert len(found) == MOST_PREDECESSORS


@pytest.mark.parametrize("at", [0, 10, -1])
def test_a_damaged_list_is_refused(at):
    stored = bytearray(row_states.encode_predecessors(row_states.add_predecessor("a", mask(1), [])))
    stored[at] ^= 0xFF
    with pytest.raises(ValueError, match="digest"):
        row_states.decode_predecessors(bytes(stored))
