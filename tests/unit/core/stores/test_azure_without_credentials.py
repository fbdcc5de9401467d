"""A container of Azure that nothing gives credentials for: refused in time, with a reason, in a process that lives."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
from leman_core.model.service_errors import FailedPrecondition
from leman_core.storage.lance_tables import LanceTables, database_exists
for place in ("abfss://c@nobody.dfs.core.windows.net/lake", "abfss://c@nobody.dfs.core.windows.net"):
    for look in (LanceTables().list_tables, database_exists):
        try:
            look(place)
        except FailedPrecondition as error:
            print(error.reason, "LEMAN_STORAGE__OPTIONS_FILE" in error.message)
"""


def test_a_container_without_credentials_is_refused_and_ends_no_process():
    """In a process of its own: asked for the container alone, pyarrow would end it."""
    kept = {"PATH": "", "HOME": os.environ.get("HOME", "/"), "PYTHONPATH": ":".join(filter(None, sys.path))}
    # no address of Azure's own answers here, so that no machine's identity is found
    asked = subprocess.run([sys.executable, "-c", PROGRAM], env=kept, capture_output=True, text=True, check=False)
    assert (asked.returncode, asked.stdout.split("\n")[:4]) == (0, ["STORAGE_DENIED True"] * 4), asked.stderr[-2000:]
