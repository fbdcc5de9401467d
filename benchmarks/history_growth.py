"""What a long job history costs: the size of a version, an append, and the memory of an executor, by number of jobs.

Each of `--rows` jobs is written with two states, 250 jobs in a version, as an executor under load does. Then single
states are appended: in a history with a hundredth of the jobs, and in the whole one. A new process opens the history,
as an executor does when it starts, and says what its memory grows by. No service runs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil

from benchmarks.common import Document, Options, Target, figures, options_of, report, say, scratch
from leman_core.model.job import Job, JobState, Progress
from leman_core.model.plan import BackfillSpec
from leman_executor.history.job_history import JobHistory

JOBS_AT_ONCE = 250
APPENDS = 40
#: Versions are removed so often: it is a matter of time, not of what is measured.
FORGET_AFTER = 20


def job_of(database: str, number: int) -> Job:
    request = BackfillSpec(database, f"table-{number % 100}", "column", where="length(text) > 3")
    made = Job(f"job-{number:020d}", f"request-{number}", JobState.RUNNING, request, 1e9 + number, 1e9 + number)
    return replace(made, udf_name="embed", udf_version="v1", executor="executor-1", plan_summary="64 fragments: 64 new")


def end_of(job: Job) -> Job:
    progress = Progress(rows_total=100_000, rows_evaluated=100_000, udf_seconds=12.5, read_seconds=0.5)
    return replace(job, state=JobState.DONE, progress=progress, table_version=7, updated_at=job.updated_at + 60)


def fill(history: JobHistory, database: str, begin: int, end: int) -> None:
    """Writes two states of each of these jobs."""
    for count, first in enumerate(range(begin, end, JOBS_AT_ONCE), 1):
        jobs = [job_of(database, n) for n in range(first, min(first + JOBS_AT_ONCE, end))]
        history.save_all(jobs)
        history.save_all([end_of(job) for job in jobs])
        if history.untidy:
            history.tidy()
        if count % FORGET_AFTER == 0:
            history.forget_past()
            say(f"{first + len(jobs)} jobs")


def appended(history: JobHistory, database: str, number: int) -> Document:
    """What it takes to append one state, and how large the version is that it makes."""
    wall, cpu = [], []
    for n in range(number, number + APPENDS):
        begin, used = time.perf_counter(), time.process_time()
        history.save(job_of(database, n))
        wall.append(1e3 * (time.perf_counter() - begin))
        cpu.append(1e3 * (time.process_time() - used))
    latest = min(Path(database, "_leman/jobs.lance/_versions").glob("*.manifest"))
    return {"milliseconds": figures(wall), "cpu_milliseconds": figures(cpu), "manifest_bytes": latest.stat().st_size}


def memory_of(database: str) -> int:
    """By how many bytes the memory of a process grows that opens the history."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.history_growth", "open", database],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stdout)


def open_history(database: str) -> None:
    """Prints by how many bytes the memory of this process grows."""
    JobHistory(f"{database}-none").find("none")  # what is loaded with the first history belongs to no job
    before = psutil.Process().memory_info().rss
    history = JobHistory(database)
    history.news()
    print(psutil.Process().memory_info().rss - before)


def main(options: Options) -> None:
    with scratch(options) as folder:
        database = str(folder / "db")
        history = JobHistory(database)
        history.prepare()
        few = max(APPENDS, options.rows // 100)
        fill(history, database, 0, few)
        small = appended(history, database, few)
        fill(history, database, few + APPENDS, options.rows)
        large = appended(history, database, options.rows)
        history.tidy()
        history.forget_past()
        stored = sum(path.stat().st_size for path in Path(database).rglob("*") if path.is_file())
        begin = time.perf_counter()
        memory = memory_of(database)
        opened = time.perf_counter() - begin
    ratio = large["cpu_milliseconds"]["median"] / small["cpu_milliseconds"]["median"]
    targets = [
        Target("bytes of a version", large["manifest_bytes"], 64 * 1024),
        Target("CPU of an append, all jobs / a hundredth of them", ratio, 2.0),
        Target("memory of an executor for a job, bytes", memory / options.rows, 4096),
    ]
    leman = {"few": {"jobs": few, **small}, "all": {"jobs": options.rows, **large}}
    report(
        "history_growth", options, targets, leman=leman, stored_bytes=stored, memory_bytes=memory, open_seconds=opened
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["open"]:
        open_history(sys.argv[2])
    else:
        main(options_of(__doc__ or "", rows=100_000))
