"""`leman verify` of a database whose services do not run: none are started, and nothing is written to it."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.integration.commits.test_verification import World, contents, flip, folders

DEADLINE = 120.0


def verified(database, *arguments):
    run = "from leman.cli import main; main()"
    command = [sys.executable, "-c", run, "verify", str(database), "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_database_at_rest_is_verified_and_left_as_it_was(tmp_path):
    database = tmp_path / "lake"
    database.mkdir()
    world = World(database)
    flip(world.installed())
    before = contents(database), folders(database)
    code, out, err = verified(database)
    document = json.loads(out)
    assert (code, err) == (3, "")
    assert [(f["subject"], f["flaw"], f["fragment_id"]) for f in document["findings"]] == [
        ("column_file", "damaged", 0)
    ]
    assert (contents(database), folders(database)) == before


def test_a_database_that_is_not_there_is_not_made(tmp_path):
    code, _, err = verified(tmp_path / "none")
    assert code == 1
    assert f"no database at {tmp_path / 'none'}" in err
    assert list(tmp_path.iterdir()) == []
