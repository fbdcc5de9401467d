"""Make the database that the next release must open, continue and verify: `python make_database.py ARCHIVE`.

Run it in an environment of the release that is the one before, from this folder. It leaves a running job behind,
as kill -9 of all services does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tarfile
import tempfile
import threading
from pathlib import Path

import psutil
import pyarrow as pa
import upgrade_functions as functions

import leman

#: Rows of `answers` that must be in checkpoints before the services are killed.
CHECKPOINTED = 40
#: Files that belong to the processes that made the database.
LEFT_OUT = ("service.json", "supervisor.lock")


def main(archive: str) -> None:
    """Write the archive: the database `lake`, and `expected.json` with what it must still say."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder + "/state"
        lake = Path(folder, "lake")
        expected = _fill(leman.connect(lake))
        (lake.parent / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
        _kill_services(os.environ["XDG_STATE_HOME"])
        with tarfile.open(archive, "w:gz", compresslevel=9) as packed:
            packed.add(lake, "lake", filter=lambda file: None if Path(file.name).name in LEFT_OUT else file)
            packed.add(lake.parent / "expected.json", "expected.json")


def _kill_services(state: str) -> None:
    """Kill every other process that has this state folder."""
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("XDG_STATE_HOME") == state:
                process.send_signal(signal.SIGKILL)
        except psutil.Error:
            continue


def _fill(db: leman.Database) -> dict[str, object]:
    texts = [f"text {number}" for number in range(60)]
    docs = db.create_table("docs", pa.table({"id": range(60), "text": texts}), max_rows_per_file=20)
    docs.add_columns({"stamp": (functions.stamp, ["text"]), "length": "length(text)"})
    docs.add_columns({"grade": (functions.grade, ["text"]), "chained": (functions.chained, ["stamp"])})
    jobs = docs.backfill(progress=False)
    view = docs.search(None).where("id % 2 = 0").add_column("seen", (functions.stamp, ["text"]))
    even = view.create_materialized_view(db, "even")
    jobs.append(even.refresh(progress=False).job_id)
    docs.add(pa.table({"id": range(60, 65), "text": [f"text {number}" for number in range(60, 65)]}))
    docs.update("id = 3", {"text": "edited"})
    docs.delete("id = 4")

    answers = db.create_table("answers", pa.table({"question": [f"question {n}" for n in range(200)]}))
    answers.add_columns({"answer": (functions.answer, ["question"])})
    Path(functions.SLOW).touch()
    try:
        running = answers.backfill_async("answer", commit_granularity=1000, checkpoint_size=10).job_id
        pause = threading.Event()
        while True:
            rows = answers.to_arrow(include_checkpointed=True)
            stored = {row["question"]: row["answer"] for row in rows.to_pylist() if row["answer"]}
            if len(stored) >= CHECKPOINTED:
                break
            pause.wait(0.2)
    finally:
        Path(functions.SLOW).unlink()
    return {
        "docs": docs.to_arrow().to_pylist(),
        "even": even.to_arrow().to_pylist(),
        "ended jobs": {job: db.job(job).state.name for job in jobs},
        "failed rows": len(docs.get_failed_row_addresses(column_name="grade")),
        "running job": running,
        "checkpointed answers": stored,
    }


if __name__ == "__main__":
    main(sys.argv[1])
