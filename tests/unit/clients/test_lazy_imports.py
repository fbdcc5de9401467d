"""What reads need not wait for."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
import leman, leman.cli, leman.cli._catalog_commands, leman.cli._job_commands
database = leman.connect(sys.argv[1])
print(database.table_names(), sorted({"lance", "numpy", "pandas", "pyarrow"} & set(sys.modules)))
"""


def test_a_read_imports_neither_arrow_nor_lance(tmp_path):
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path / "typo")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[] []\n"
