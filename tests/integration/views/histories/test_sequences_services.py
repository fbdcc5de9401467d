"""Some of the sequences through SDK, gRPC, Spark and Redis, judged by the same oracle after every operation."""

from __future__ import annotations

import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import leman
from leman._format.view_definitions import ViewQuery
from leman_core.model.job import JobState
from leman_core.model.view import RefreshMode
from tests.conftest import System as Running
from tests.integration.views.histories import functions
from tests.integration.views.histories.source import OPERATIONS
from tests.integration.views.histories.test_sequences import DEPTH, LONG
from tests.integration.views.histories.world import World

pytestmark = pytest.mark.spark

ROUNDS = 20 if LONG else 1


def sequences() -> list[tuple[str, ...]]:
    """In each round every operation stands once in each place."""
    chance = random.Random(11)
    found = []
    for _ in range(ROUNDS):
        places = [chance.sample(sorted(OPERATIONS), len(OPERATIONS)) for _ in range(DEPTH)]
        found += list(zip(*places, strict=True))
    return found


class ServicesSystem:
    """Does with the services what `harness.System` does in one process."""

    def __init__(self, running: Running, seen: Path) -> None:
        self._running = running
        self._seen = seen

    def register(self, database: str) -> None:
        """Making a view does."""

    def create(self, database: str, name: str, query: ViewQuery, max_rows_per_fragment: int = 0) -> None:
        with self._running.connect(Path(database)) as db:
            asked = db.open_table(query.table).search(None).where(query.where)
            asked = asked.select({c.name: c.expression for c in query.columns})
            for column in query.functions:
                asked = asked.add_column(column.name, (_score(self._seen), list(column.inputs)))
            if query.shuffle:
                asked = asked.shuffle(seed=query.seed)
            if query.limit is not None:
                asked = asked.limit(query.limit).offset(query.offset)
            db.create_materialized_view(name, asked, max_rows_per_fragment=max_rows_per_fragment)

    def refresh(self, database: str, view: str) -> Any:
        """Adds the rows that the function was called for to those that functions in this process saw."""
        self._seen.unlink(missing_ok=True)
        with self._running.connect(Path(database)) as db:
            future = db.open_view(view).refresh_async()
            job = db.job(future.result(60))
        if self._seen.exists():
            functions.EVALUATED.extend(int(line) for line in self._seen.read_text().split())
        assert job.refresh_result is not None
        assert job.refresh_result.rows_evaluated == len(functions.EVALUATED)
        result = SimpleNamespace(**{n: getattr(job.refresh_result, n) for n in _COUNTS})
        result.mode = RefreshMode[job.refresh_result.mode.upper()]
        return SimpleNamespace(state=JobState[job.state.name], error=job.error, refresh_result=result)


_COUNTS = ("rows_added", "rows_recomputed", "rows_evicted", "fragments_rewritten", "source_rows_read")


def _score(seen: Path) -> leman.UDF:
    """The function of the sequences, which writes the ids that it sees to a file."""
    value, file = functions.scored, str(seen)

    def score(id: int, x: int | None, y: int) -> int | None:  # noqa: A002 named like the column
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{id}\n".encode())
        os.close(handle)
        return value(id, x, y)

    return leman.udf(data_type=pa.int64(), name="score", version="1")(score)


@pytest.fixture(scope="module")
def root(system: Running, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Filled once, and copied for each sequence."""
    folder = tmp_path_factory.mktemp("sequences")
    world = World(ServicesSystem(system, folder / "seen.txt"), folder / "root")
    world.refresh_and_check()
    return world


@pytest.mark.parametrize("sequence", sequences(), ids="-".join)
def test_a_sequence_through_the_services(root, tmp_path, sequence):
    world = root.copy(tmp_path / "db")
    for at, operation in enumerate(sequence, start=1):
        world.change(operation, at * 3 + len(operation))
        world.refresh_and_check()
