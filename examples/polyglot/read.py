"""Reads what Go appended and Java computed, and shows the files with the most different words."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import leman


def main(endpoint: str, database: str) -> None:
    """Print the table."""
    with leman.connect(database, endpoint=endpoint, token=os.environ["LEMAN_TOKEN"]) as db:
        table = db.open_table("files")
        rows = table.to_arrow(["path", "vocabulary"])
        version = table.describe().version
    most = rows.sort_by([("vocabulary", "descending")]).slice(0, 8)
    print("different words  file")
    for path, words in zip(*most.to_pydict().values(), strict=True):
        print(f"{words:15,}  {Path(path).name}")
    print(f"read {rows.num_rows:,} rows of version {version}")


if __name__ == "__main__":
    main(*sys.argv[1:])
