"""Compares all that a database keeps with the digests of what was written: disks change bits in silence.

Prints:
    True 0
    damaged column_file
"""

import sys
from pathlib import Path

import leman

db = leman.connect(sys.argv[1])
table = db.create_table("facts", {"x": [1, 2, 3]}, mode="overwrite")
table.add_columns({"y": "x * 2"})
table.backfill("y")
sound = db.verify()
print(sound.sound, len(sound.findings))
file = next(path for path in Path(table.uri, "data").glob("*-*.lance"))
whole = file.read_bytes()
file.write_bytes(whole[:-1] + b"!")  # what a bad disk does
print(*(f"{finding.flaw} {finding.subject}" for finding in db.verify().findings))
file.write_bytes(whole)
