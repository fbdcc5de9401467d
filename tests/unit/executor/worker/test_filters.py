"""Rows that were computed under another filter, in a fragment that takes more than one unit."""

from __future__ import annotations

import pytest

from leman._format.stored_functions import CheckpointBounds
from leman_core.model.plan import CheckpointRef
from tests.unit.executor.executor_helpers import Lab


def others(refs: tuple[CheckpointRef, ...]) -> tuple[CheckpointRef, ...]:
    return tuple(ref._replace(settles=False) for ref in refs)


@pytest.mark.parametrize("checkpoint", [CheckpointBounds(), CheckpointBounds(max_checkpoint_size=2)])
def test_they_are_in_the_file_that_a_later_unit_writes(lab, tmp_path, checkpoint):
    log = tmp_path / "seen"

    def double(x):
        with log.open("a") as f:
            f.write(f"{x}\n")
        return 2 * x

    udf = lab.udf(double)
    low = lab.context(udf, where="x BETWEEN 3 AND 8")
    known = others(lab.run(low, lab.work(low, 0, [(0, 20)], finish=False)).results[0].checkpoints)
    third = lab.context(udf, where="x % 3 = 0")
    more = lab.run(third, lab.work(third, 0, [(0, 20)], checkpoints=known, finish=False), unit="u2")
    known += others(more.results[0].checkpoints)

    even = lab.context(udf, where="x % 2 = 0", checkpoint=checkpoint)
    first = lab.run(even, lab.work(even, 0, [(0, 10)], checkpoints=known, finish=False), unit="u3").results[0]
    rest = lab.work(even, 0, [(10, 20)], checkpoints=(*known, *first.checkpoints))
    lab.install(lab.run(even, rest, unit="u4"))
    assert {x: lab.values()[x] for x in range(20)} == {x: None if x % 2 else 2 * x for x in range(20)}
    evaluated = [int(x) for x in log.read_text().split()]
    assert sorted(evaluated) == sorted({*range(3, 9), *range(0, 20, 3), *range(0, 20, 2)})


@pytest.mark.parametrize("where", ["10 / x = 5", "cast(arrow_cast(x, 'Utf8') || 'x' as int) = 1"])
def test_a_filter_that_fails_on_a_row_is_to_blame_not_the_storage(tmp_path, where):
    lab = Lab(tmp_path)
    context = lab.context(lab.udf(lambda x: x), where=where)
    failure = lab.run(context, lab.work(context, 0, [(0, 20)])).failure
    assert failure is not None
    assert failure.reason == "FILTER_FAILED"
    assert where in failure.message
    assert "for example with nullif or try_cast" in failure.message
    assert "/rust/" not in failure.message
