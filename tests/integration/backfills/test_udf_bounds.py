"""Rows between checkpoints: what a function asks for, what a call asks for, and which of them wins."""

from __future__ import annotations

import pyarrow as pa
import pytest

from leman._format.stored_functions import CheckpointBounds, UdfKind
from leman_core.model import keys
from leman_core.settings import Executor, Settings
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from tests.integration.types.types_pipeline import Pipeline

ROWS = 100
#: A checkpoint is due at once, but for the bounds.
EAGER = Settings(executor=Executor(checkpoint_interval_seconds=1e-9))
#: Only the bounds make it due.
PATIENT = Settings(executor=Executor(checkpoint_interval_seconds=1e9))


def checkpoints(
    pipeline: Pipeline, of_function: CheckpointBounds, of_call: CheckpointBounds, settings: Settings, kind: UdfKind
) -> list[int]:
    """Rows of each checkpoint of a fragment of 100 rows, in order."""
    table = pipeline.table(pa.table({"x": range(ROWS)}), rows_per_file=ROWS)
    pipeline.add(table, "y", pipeline.function(pa.int64(), kind, checkpoint=of_function))
    pipeline.backfill(table, "y", settings, checkpoint=of_call)
    assert pipeline.values(table, "y").to_pylist() == list(range(ROWS))
    store = LanceCheckpointStore(checkpoint_root(pipeline.open(table).uri))
    ranges = [parsed.range for key in store.list_keys() if (parsed := keys.parse_range_key(key)) is not None]
    return [found.rows for found in sorted(ranges)]


@pytest.mark.parametrize("kind", [UdfKind.SCALAR, UdfKind.ARRAY], ids=lambda kind: kind.value)
@pytest.mark.parametrize(
    ("of_function", "of_call", "largest"),
    [
        (CheckpointBounds(checkpoint_size=20), CheckpointBounds(), 20),
        (CheckpointBounds(max_checkpoint_size=20), CheckpointBounds(), 20),
        (CheckpointBounds(checkpoint_size=30, max_checkpoint_size=20), CheckpointBounds(), 20),
        (CheckpointBounds(), CheckpointBounds(checkpoint_size=25), 25),
        (CheckpointBounds(checkpoint_size=20), CheckpointBounds(checkpoint_size=50), 50),
        (CheckpointBounds(max_checkpoint_size=50), CheckpointBounds(max_checkpoint_size=20), 20),
    ],
    ids=str,
)
def test_the_most_rows(pipeline, kind, of_function, of_call, largest):
    found = checkpoints(pipeline, of_function, of_call, PATIENT, kind)
    assert found[: ROWS // largest - 1] == [largest] * (ROWS // largest - 1)
    assert max(found) == largest


@pytest.mark.parametrize(
    ("of_function", "of_call", "smallest"),
    [
        (CheckpointBounds(min_checkpoint_size=30), CheckpointBounds(), 30),
        (CheckpointBounds(), CheckpointBounds(min_checkpoint_size=40), 40),
        (CheckpointBounds(min_checkpoint_size=60), CheckpointBounds(min_checkpoint_size=20), 20),
        (CheckpointBounds(min_checkpoint_size=10, max_checkpoint_size=10), CheckpointBounds(), 10),
    ],
    ids=str,
)
def test_the_fewest_rows(pipeline, of_function, of_call, smallest):
    found = checkpoints(pipeline, of_function, of_call, EAGER, UdfKind.SCALAR)
    assert found, "one is due after each slice"
    assert all(rows >= smallest for rows in found[:-1])
    assert found[0] < ROWS


def test_without_bounds_time_decides(pipeline):
    nothing = CheckpointBounds()
    assert checkpoints(pipeline, nothing, nothing, PATIENT, UdfKind.SCALAR) == []
    assert len(checkpoints(pipeline, nothing, nothing, EAGER, UdfKind.SCALAR)) > 1
