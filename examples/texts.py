"""6,000 texts of this machine, paragraphs of Python's own modules, get columns, and are asked what is in them.

Prints:
    6,000 texts
    6,000 rows computed
    the longest: * words, in *
    again: nothing to do
    12 texts more: 12 rows computed
    about files: * texts, such as *
"""

import inspect
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import leman

TEXTS = 6_000


def texts(folder: Path) -> Iterator[dict[str, str]]:
    """The paragraphs of the programs in a folder, by place."""
    for program in sorted(folder.glob("**/*.py")):
        paragraphs = program.read_text(encoding="utf-8", errors="replace").split("\n\n")
        for number, text in enumerate(paragraphs):
            if len(text) > 40:
                yield {"place": f"{program.stem}:{number}", "text": inspect.cleandoc(text)}


@leman.udf
def words(text: str) -> int:
    return len(text.split())


@leman.udf(data_type=pa.list_(pa.float32(), 64))
def vector(text: str) -> list[float]:
    """Counts of pairs of letters, folded into 64 numbers: near texts have near vectors."""
    counts = [0.0] * 64
    for a, b in zip(text.lower(), text.lower()[1:], strict=False):
        counts[(ord(a) * 31 + ord(b)) % 64] += 1.0
    length = sum(value * value for value in counts) ** 0.5 or 1.0
    return [value / length for value in counts]


def computed(table: leman.Table, column: str) -> int:
    """Backfill a column, and tell how many rows that took."""
    return db.job(table.backfill(column)).progress.rows_computed


found = texts(Path(sysconfig.get_path("stdlib")))
first = [row for _, row in zip(range(TEXTS), found, strict=False)]
db = leman.connect(sys.argv[1])
table = db.create_table("texts", first, mode="overwrite")
print(f"{table.count_rows():,} texts")

columns: dict[str, Any] = {"words": words, "vector": vector, "about_files": "text LIKE '%file%'"}
table.add_columns(columns)
table.backfill("vector")
print(f"{computed(table, 'words'):,} rows computed")
rows: list[dict[str, Any]] = table.to_arrow(["place", "words"]).to_pylist()
longest = max(rows, key=lambda row: row["words"])
print(f"the longest: {longest['words']:,} words, in {longest['place']}")

plan = table.plan_backfill("words")
print("again:", "nothing to do" if not plan.rows_to_compute else f"{plan.rows_to_compute} rows")
table.add([row for _, row in zip(range(12), found, strict=False)])
print(f"12 texts more: {computed(table, 'words')} rows computed")

table.backfill()  # the columns that are left, and the new rows of the others
about = table.to_arrow(["place"], "about_files")["place"].to_pylist()
print(f"about files: {len(about):,} texts, such as {about[0]}")
