"""What a run costs after rows came, an input was updated and the function was fixed: see docs/coming_from.md.

Prints:
    first run: 299 rows computed, 1 failed, 300 calls
    20 rows added, 2 updated: 22 calls
    the same again: 0 calls
    the fixed function: 1 call, 320 rows computed
    read by Lance alone: 320 vectors
"""

import sys
from pathlib import Path

import lance
import pyarrow as pa

import leman

HERE = Path(sys.argv[1]).absolute()
CALLS = str(HERE.parent / "calls.txt")  # workers write down what they are called with


def vector_of(text: str) -> list[float]:
    with Path(CALLS).open("a") as calls:
        calls.write(f"{text}\n")
    return [float(len(text)), float(sum(map(ord, text)) % 1000)]


def calls() -> int:
    """How many calls there were since the last look."""
    log = Path(CALLS)
    count = len(log.read_text().splitlines()) if log.exists() else 0
    log.unlink(missing_ok=True)
    return count


skip = leman.ErrorHandlingConfig(on_error=[leman.Skip(ValueError)])


@leman.udf(name="embed", data_type=pa.list_(pa.float32(), 2), error_handling=skip)
def embed(text: str) -> list[float]:
    found = vector_of(text)
    if text == "text 7":
        raise ValueError("no number is lucky")
    return found


@leman.udf(name="embed", data_type=pa.list_(pa.float32(), 2), error_handling=skip)
def embed_mended(text: str) -> list[float]:
    return vector_of(text)


db = leman.connect(str(HERE))
table = db.create_table("docs", {"id": range(300), "text": [f"text {i}" for i in range(300)]}, mode="overwrite")
table.add_columns({"embedding": embed})
job_id = table.backfill("embedding", progress=False)
states = table.row_states("embedding")
print(f"first run: {states.computed} rows computed, {states.failed} failed, {calls()} calls")

table.add({"id": range(300, 320), "text": [f"more {i}" for i in range(20)]})
table.update(where="id < 2", values={"text": "another text"})
table.backfill("embedding", progress=False)
print(f"20 rows added, 2 updated: {calls()} calls")

table.backfill("embedding", progress=False)
print(f"the same again: {calls()} calls")

db.retry_job(job_id, udf=embed_mended, keep_others=True, progress=False)
states = table.row_states("embedding")
print(f"the fixed function: {calls()} call, {states.computed} rows computed")

vectors = lance.dataset(table.uri).to_table(["embedding"])["embedding"]
print(f"read by Lance alone: {len(vectors) - vectors.null_count} vectors")
