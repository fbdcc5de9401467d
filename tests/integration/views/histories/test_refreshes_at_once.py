"""Executors in processes of their own refresh one view at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import lance
import pytest

from leman._format.view_definitions import INTERNAL_COLUMNS, SOURCE_ROW_ID
from tests.integration.views.histories.harness import System
from tests.integration.views.histories.shapes import SHAPES
from tests.integration.views.histories.world import World

SHUFFLED = next(shape for shape in SHAPES if shape.name == "shuffled")
CHANGES = ["append", "update_read", "upsert", "rewrite_read", "delete", "compact"]
_PATIENCE = 60


def refresh_again_and_again(database: str) -> None:
    """A process: a refresh for each line that it reads, and its outcome as a line."""
    system = System()
    for _ in sys.stdin:
        job = system.refresh(database, "shuffled")
        sys.stdout.write(f"#{job.state.name} {job.error or ''}\n")
        sys.stdout.flush()
    system.close()


@pytest.fixture
def world(views_system, quick_folder):
    return World(views_system, quick_folder / "db", [SHUFFLED])


@pytest.fixture
def others(world):
    call = f"import {__name__} as here; here.refresh_again_and_again({world.database!r})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    made = [
        subprocess.Popen([sys.executable, "-c", call], stdin=-1, stdout=-1, text=True, env=environment)
        for _ in range(2)
    ]
    yield made
    for process in made:
        process.stdin.close()
        process.wait(_PATIENCE)
        process.stdout.close()


def outcome(process) -> str:
    return next(line.strip() for line in process.stdout if line.startswith("#"))


@pytest.mark.long
def test_refreshes_of_two_processes_are_right_and_leave_nothing(world, others):
    for number, change in enumerate(["", *CHANGES, *CHANGES]):
        if change:
            world.change(change, number)
        for process in others:
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [outcome(process) for process in others] == ["#DONE", "#DONE"], change
        table = lance.dataset(world.uri(SHUFFLED)).to_table()
        state = world.source.state
        wanted = {i: SHUFFLED.row(state.rows[i].values) for i in SHUFFLED.ids(state)}
        ids = table[SOURCE_ROW_ID].to_pylist()
        assert sorted(ids) == sorted(wanted), change
        assert table.drop_columns(list(INTERNAL_COLUMNS)).to_pylist() == [wanted[i] for i in ids], change
    assert sorted(path.name for path in Path(world.database).iterdir()) == ["_leman", "shuffled.lance", "t.lance"]
