"""16 jobs commit on one table at once, through SubmitCommit: fragments a second, latency, and whether any is lost.

Plans and files are made before the clock runs; a job then sends its requests one after the other, a tenth of its
fragments each, as an executor does. Two cases: each job has a column of its own; and all jobs fill parts of the same
column, of a table with four times the fragments. The other side is 16 writers that commit to Lance by themselves and
try again on conflict.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import lance
import pyarrow as pa
from lance.commit import CommitConflictError
from lance.fragment import DataFile

import leman
from benchmarks.common import Document, Options, Target, figures, interleaved, options_of, percentile, report, scratch
from benchmarks.leman_side import Caller, running
from benchmarks.practical_limit import discard, double, make_table
from leman_core.model import keys
from leman_core.storage.column_files import ColumnFileWriter
from leman_internal.v1 import plan_pb2, planning_pb2, planning_pb2_grpc, submission_pb2, submission_pb2_grpc

JOBS = 16
ROWS_OF_FRAGMENT = 10
_TENTHS = 10
#: Cases, with the table's fragments as a multiple of `--fragments`.
FRAGMENTS = {"own_columns": 1, "one_column": 4}

Send = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Burst:
    """All jobs' commits: wall time, the latency of each request, fragments that are not in the table afterwards."""

    seconds: float
    latencies: list[float]
    fragments: int
    lost: int
    versions: int

    @property
    def rate(self) -> float:
        return self.fragments / self.seconds


class Coordinated:
    """Side A."""

    def __init__(self, caller: Caller, table: str) -> None:
        self._caller = caller
        self._table = table
        self._planner = planning_pb2_grpc.PlanningServiceStub(caller.channel("planner"))
        self._commits = submission_pb2_grpc.CommitSubmissionServiceStub(caller.channel("commit_coordinator"))
        self.uri = caller.uri(table)

    def add_columns(self, names: Sequence[str]) -> None:
        """New columns in one version."""
        make = leman.udf(name="double", version=f"v{uuid.uuid4().hex[:12]}")
        self._caller.sdk.open_table(self._table).add_columns(dict.fromkeys(names, make(double)))

    def stage(self, column: str, share: slice, size: int) -> list[submission_pb2.SubmitCommitRequest]:
        """Requests of a job that has computed a share of a column's fragments."""
        header, tasks = self._plan(column)
        replacements = [self._staged(header, task) for task in tasks[share]]
        return [
            submission_pb2.SubmitCommitRequest(
                uri=header.uri,
                incarnation=header.incarnation,
                request_id=uuid.uuid4().hex,
                read_version=header.read_version,
                job_id=f"{column}-{share.start}",
                replace_column=submission_pb2.ReplaceColumn(
                    output=header.output,
                    input_field_ids=header.input_field_ids,
                    fragments=replacements[at : at + size],
                ),
            )
            for at in range(0, len(replacements), size)
        ]

    def _plan(self, column: str) -> tuple[plan_pb2.PlanHeader, list[plan_pb2.FragmentTask]]:
        request = planning_pb2.CreatePlanRequest(spec=self._caller.spec(self._table, column))
        first, *rest = self._planner.CreatePlan(request, metadata=self._caller.metadata)
        return first.header, [task for message in rest for task in message.tasks.tasks]

    def _staged(self, header: plan_pb2.PlanHeader, task: plan_pb2.FragmentTask) -> submission_pb2.FragmentReplacement:
        name = keys.column_file_name(task.fingerprint, uuid.uuid4().hex[:12], partial=False)
        staged = _write(self.uri, name, header.output.name, task.physical_rows)
        file = plan_pb2.StagedFile(
            file=staged.file,
            size_bytes=staged.size_bytes,
            digest=staged.digest,
            physical_rows=staged.physical_rows,
            rows_computed=staged.rows_computed,
        )
        return submission_pb2.FragmentReplacement(fragment_id=task.fragment_id, file=file, input_files=task.input_files)

    def send(self, request: submission_pb2.SubmitCommitRequest) -> None:
        """Raises RuntimeError where a fragment is not committed."""
        answer = self._commits.SubmitCommit(request, metadata=self._caller.metadata, wait_for_ready=True)
        for outcome in answer.outcomes:
            if outcome.status != submission_pb2.FragmentOutcome.STATUS_COMMITTED:
                raise RuntimeError(f"fragment {outcome.fragment_id}: {outcome.reason} {outcome.message}")

    @staticmethod
    def files(request: submission_pb2.SubmitCommitRequest) -> list[str]:
        """Names of the files that it installs."""
        return [fragment.file.file for fragment in request.replace_column.fragments]


class Uncoordinated:
    """Side B: who loses against another writer tries again from the latest version."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._types = pa.int64()

    def add_columns(self, names: Sequence[str]) -> None:
        """New columns in one version."""
        lance.dataset(self.uri).add_columns(pa.schema([pa.field(name, self._types) for name in names]))

    def stage(self, column: str, share: slice, size: int) -> list[list[tuple[int, str]]]:
        """Commits of a writer: (fragment id, file)."""
        files = []
        for fragment in lance.dataset(self.uri).get_fragments()[share]:
            name = f"{uuid.uuid4().hex}.lance"
            _write(self.uri, name, column, fragment.physical_rows)
            files.append((fragment.fragment_id, name))
        return [files[at : at + size] for at in range(0, len(files), size)]

    def send(self, request: list[tuple[int, str]]) -> None:
        """Until it is committed."""
        operations = lance.LanceOperation
        while True:
            dataset = lance.dataset(self.uri)
            groups = [operations.DataReplacementGroup(f, DataFile.create(dataset, name)) for f, name in request]
            try:
                lance.LanceDataset.commit(
                    dataset, operations.DataReplacement(groups), read_version=dataset.version, max_retries=50
                )
            except CommitConflictError:
                continue
            return

    @staticmethod
    def files(request: list[tuple[int, str]]) -> list[str]:
        """Names of the files that it installs."""
        return [name for _, name in request]


Side = Coordinated | Uncoordinated


def _write(uri: str, name: str, column: str, rows: int) -> Any:
    writer = ColumnFileWriter(uri, pa.field(column, pa.int64()))
    writer.open(name)
    writer.write(pa.array(range(rows), pa.int64()))
    return writer.close(None, frozenset(), name)


def burst(side: Side, repetition: int, fragments: int, *, one_column: bool) -> Burst:
    """Stages everything, then lets all jobs commit at once."""
    columns = [f"c{repetition}"] if one_column else [f"c{repetition}_{job}" for job in range(JOBS)]
    side.add_columns(columns)
    share = -(-fragments // JOBS) if one_column else fragments
    size = max(1, share // _TENTHS)
    jobs: list[list[Any]] = [
        side.stage(columns[0] if one_column else columns[job], slice(start, start + share), size)
        for job, start in enumerate([job * share if one_column else 0 for job in range(JOBS)])
    ]
    before = lance.dataset(side.uri).version
    with ThreadPoolExecutor(JOBS) as threads:
        begin = time.perf_counter()
        timed = list(threads.map(lambda requests: [_timed(side.send, r) for r in requests], jobs))
        seconds = time.perf_counter() - begin
    wanted = {file for requests in jobs for request in requests for file in side.files(request)}
    dataset = lance.dataset(side.uri)
    present = {data.path for fragment in dataset.get_fragments() for data in fragment.metadata.files}
    discard(side.uri, *columns)
    latencies = [latency for job in timed for latency in job]
    return Burst(seconds, latencies, len(wanted), len(wanted - present), dataset.version - before)


def _timed(send: Send, request: Any) -> float:
    begin = time.perf_counter()
    send(request)
    return time.perf_counter() - begin


def _document(bursts: Sequence[Burst]) -> Document:
    latencies = [latency for burst in bursts for latency in burst.latencies]
    return {
        "fragments_per_second": figures([burst.rate for burst in bursts]),
        "request_p50_seconds": percentile(latencies, 50),
        "request_p99_seconds": percentile(latencies, 99),
        "requests_in_a_burst": len(bursts[0].latencies),
        "fragments_in_a_burst": bursts[0].fragments,
        "versions_in_a_burst": figures([burst.versions for burst in bursts])["median"],
        "fragments_lost": sum(burst.lost for burst in bursts),
    }


def measure(case: str, options: Options, sides: Mapping[str, Side]) -> tuple[list[Target], Document]:
    """Both sides of one case."""
    bursts: dict[str, list[Burst]] = {name: [] for name in sides}

    def run(name: str, repetition: int) -> None:
        done = burst(sides[name], repetition, FRAGMENTS[case] * options.fragments, one_column=case == "one_column")
        if repetition:
            bursts[name].append(done)

    interleaved(options.repetitions, lambda r: run("leman", r), lambda r: run("uncoordinated", r))
    documents = {name: _document(found) for name, found in bursts.items()}
    ours = documents["leman"]
    targets = [
        Target(f"{case}: fragments/s ≥ 1000", ours["fragments_per_second"]["median"], 1000, at_least=True),
        Target(f"{case}: p99 ≤ 1 s", ours["request_p99_seconds"], 1.0),
        Target(f"{case}: fragments lost = 0", ours["fragments_lost"], 0),
    ]
    return targets, documents


def main() -> None:
    options = options_of(__doc__ or "", rows=0, fragments=256)
    targets: list[Target] = []
    documents: Document = {}
    with scratch(options) as folder, running(folder / "lake") as caller:
        for case, factor in FRAGMENTS.items():
            plain_uri = str(folder / f"{case}.lance")
            for uri in (caller.uri(case), plain_uri):
                make_table(uri, [ROWS_OF_FRAGMENT] * (factor * options.fragments))
            sides: dict[str, Side] = {"leman": Coordinated(caller, case), "uncoordinated": Uncoordinated(plain_uri)}
            found, documents[case] = measure(case, options, sides)
            targets += found
    report("commit_rate", options, targets, jobs=JOBS, **documents)


if __name__ == "__main__":
    main()
