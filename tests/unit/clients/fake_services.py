"""A Leman for the SDK's unit tests: real gRPC on loopback, everything else made up. No test of behaviour belongs to it:
those run against the real services."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pyarrow as pa
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from leman.v1 import (
    catalog_pb2,
    catalog_pb2_grpc,
    commit_pb2,
    commit_pb2_grpc,
    databases_pb2,
    databases_pb2_grpc,
    info_pb2,
    info_pb2_grpc,
    jobs_pb2,
    jobs_pb2_grpc,
    planner_pb2,
    planner_pb2_grpc,
    tables_pb2,
    tables_pb2_grpc,
    udf_pb2,
)

State = jobs_pb2.Job.State


def status(code: str, reason: str, message: str, **facts: str) -> status_pb2.Status:
    """A google.rpc.Status as the services make them."""
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(domain="leman", reason=reason, metadata=facts))
    return status_pb2.Status(code=code_pb2.Code.Value(code), message=message, details=[detail])


def make_job(job_id: str, state: str, **fields: Any) -> jobs_pb2.Job:
    """A job in the middle of its life."""
    job = jobs_pb2.Job(job_id=job_id, state=State.Value(f"STATE_{state}"), udf=udf_pb2.UdfRef(name="f", version="1"))
    job.backfill.table.database, job.backfill.table.table, job.backfill.column = "db", "docs", "n"
    job.create_time.GetCurrentTime()
    job.progress.MergeFrom(jobs_pb2.Progress(**fields.pop("progress", {})))
    for name, value in fields.items():
        target = getattr(job, name)
        if hasattr(target, "CopyFrom"):
            target.CopyFrom(value)
        elif hasattr(target, "extend"):
            target.extend(value)
        else:
            setattr(job, name, value)
    return job


def make_view(
    name: str = "adults", source: str = "docs", database: str = "db", **fields: Any
) -> catalog_pb2.MaterializedView:
    """A view of ten rows, three of them without values."""
    schema = pa.schema([("text", pa.string()), ("n", pa.int64())])
    view = catalog_pb2.MaterializedView(
        name=name,
        version=4,
        source_version=5,
        row_reference=catalog_pb2.ROW_REFERENCE_STABLE_ROW_ID,
        row_count=10,
        rows_set=7,
        schema=schema.serialize().to_pybytes(),
    )
    query = view.query
    query.source.database, query.source.table = database, source
    query.columns.add(name="text")
    query.functions.add(name="n", udf=udf_pb2.UdfRef(name="words", version="1"), input_columns=["text"])
    query.where, query.shuffle_seed, query.limit, query.offset = "size > 21", 42, 100, 2
    for key, value in fields.items():
        setattr(view, key, value)
    return view


class FakeLeman:
    """One server that is planner, executor and coordinator at once.

    `scripts` maps a method to what it answers: a value, an exception, or a function of the request. `calls` has every
    request with its metadata.
    """

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.scripts: dict[str, Any] = {}
        self.calls: list[tuple[str, Any, dict[str, str]]] = []
        self.udfs: dict[tuple[str, str], Any] = {}
        self.views: dict[str, catalog_pb2.MaterializedView] = {}
        self.databases: dict[str, databases_pb2.Database] = {}
        self.address = ""
        self._server: grpc.Server | None = None
        self.changed = threading.Condition()

    def start(self, address: str = "127.0.0.1:0") -> str:
        """Serves, at the same address again after a stop."""
        server = grpc.server(ThreadPoolExecutor(8))
        servicer = _Servicer(self)
        catalog_pb2_grpc.add_CatalogServiceServicer_to_server(servicer, server)
        planner_pb2_grpc.add_PlannerServiceServicer_to_server(servicer, server)
        jobs_pb2_grpc.add_JobServiceServicer_to_server(servicer, server)
        commit_pb2_grpc.add_CommitServiceServicer_to_server(servicer, server)
        databases_pb2_grpc.add_DatabaseServiceServicer_to_server(servicer, server)
        info_pb2_grpc.add_InfoServiceServicer_to_server(servicer, server)
        tables_pb2_grpc.add_TableServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port(address)
        server.start()
        self.address = f"127.0.0.1:{port}"
        self._server = server
        return self.address

    def stop(self) -> None:
        """Stops serving at once, as a killed process would."""
        if self._server is not None:
            self._server.stop(0).wait()
            self._server = None

    def named(self, method: str) -> list[Any]:
        """The requests of one method so far."""
        return [request for name, request, _ in self.calls if name == method]

    def wait_for(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        """Waits until a call made `condition` true."""
        end = time.monotonic() + seconds
        with self.changed:
            while not condition():
                assert self.changed.wait(max(0.0, end - time.monotonic())), "nothing happened in time"


class _Servicer(
    catalog_pb2_grpc.CatalogServiceServicer,
    planner_pb2_grpc.PlannerServiceServicer,
    jobs_pb2_grpc.JobServiceServicer,
    commit_pb2_grpc.CommitServiceServicer,
    databases_pb2_grpc.DatabaseServiceServicer,
    info_pb2_grpc.InfoServiceServicer,
    tables_pb2_grpc.TableServiceServicer,
):
    def __init__(self, fake: FakeLeman) -> None:
        self._fake = fake

    def _answer(self, method: str, request: Any, context: grpc.ServicerContext, default: Any) -> Any:
        fake = self._fake
        metadata = dict(context.invocation_metadata())
        with fake.changed:
            fake.calls.append((method, request, metadata))
            fake.changed.notify_all()
        if fake.token and metadata.get("authorization") != f"Bearer {fake.token}":
            _abort(context, status("UNAUTHENTICATED", "TOKEN_REQUIRED", "a valid token is needed"))
        script = fake.scripts.get(method, default)
        answer = script(request) if callable(script) else script
        if isinstance(answer, status_pb2.Status):
            _abort(context, answer)
        if isinstance(answer, grpc.StatusCode):
            context.abort(answer, "made up")
        return answer

    def GetInfo(self, request, context):
        address = self._fake.address
        return self._answer(
            "GetInfo",
            request,
            context,
            info_pb2.GetInfoResponse(
                service="planner",
                planner_address=address,
                executor_address=address,
                commit_coordinator_address=address,
            ),
        )

    def RegisterUdf(self, request, context):
        def store(r):
            self._fake.udfs[r.definition.name, r.definition.version] = r.definition
            return catalog_pb2.RegisterUdfResponse(created=True)

        return self._answer("RegisterUdf", request, context, store)

    def GetUdf(self, request, context):
        def find(r):
            for (name, version), definition in reversed(self._fake.udfs.items()):
                if name == r.udf.name and r.udf.version in ("", version):
                    return catalog_pb2.GetUdfResponse(definition=definition)
            return status("NOT_FOUND", "UDF_NOT_FOUND", f"no function {r.udf.name}")

        return self._answer("GetUdf", request, context, find)

    def ListUdfs(self, request, context):
        answer = catalog_pb2.ListUdfsResponse(definitions=list(self._fake.udfs.values()))
        return self._answer("ListUdfs", request, context, answer)

    def AddColumns(self, request, context):
        return self._answer("AddColumns", request, context, catalog_pb2.AddColumnsResponse(version=2))

    def AlterColumns(self, request, context):
        return self._answer("AlterColumns", request, context, catalog_pb2.AlterColumnsResponse(version=3))

    def UploadBundle(self, requests, context):
        messages = list(requests)
        answer = catalog_pb2.UploadBundleResponse(created=True)
        return self._answer("UploadBundle", messages, context, answer)

    def AlterMaterializedView(self, request, context):
        def altered(r):
            view = self._fake.views[r.view.table]
            view.version += 1
            view.stale_columns[:] = [function.name for function in r.functions]
            return catalog_pb2.AlterMaterializedViewResponse(view=view)

        return self._answer("AlterMaterializedView", request, context, altered)

    def ListMaterializedViews(self, request, context):
        def listed(r):
            answer = catalog_pb2.ListMaterializedViewsResponse()
            for view in self._fake.views.values():
                answer.views.add(
                    name=view.name,
                    uri=f"{r.database}/{view.name}.lance",
                    version=view.version,
                    source=view.query.source,
                    source_version=view.source_version,
                    row_reference=view.row_reference,
                    row_count=view.row_count,
                    rows_set=view.rows_set,
                    stale_columns=view.stale_columns,
                )
            return answer

        return self._answer("ListMaterializedViews", request, context, listed)

    def DescribeTable(self, request, context):
        metadata = {"leman::view::query": "{}"} if request.table.table in self._fake.views else None
        schema = pa.schema([("text", pa.string()), ("size", pa.int32())], metadata)
        answer = catalog_pb2.DescribeTableResponse(
            uri=f"{request.table.database}/{request.table.table}.lance",
            version=7,
            row_count=10,
            fragment_count=2,
            schema=schema.serialize().to_pybytes(),
            computed_columns=[
                catalog_pb2.ComputedColumn(name="n", udf=udf_pb2.UdfRef(name="f", version="1"), input_columns=["text"])
            ],
            stable_row_ids=True,
        )
        return self._answer("DescribeTable", request, context, answer)

    def ListTables(self, request, context):
        answer = catalog_pb2.ListTablesResponse(tables=["docs", *self._fake.views])
        return self._answer("ListTables", request, context, answer)

    def CreateMaterializedView(self, request, context):
        def make(r):
            made = self._fake.views[r.view.table] = make_view(
                r.view.table, r.query.source.table, r.query.source.database
            )
            return catalog_pb2.CreateMaterializedViewResponse(view=made)

        return self._answer("CreateMaterializedView", request, context, make)

    def GetMaterializedView(self, request, context):
        def find(r):
            if r.view.table not in self._fake.views:
                return status("FAILED_PRECONDITION", "NOT_A_VIEW", f"Table '{r.view.table}' is not a materialized view")
            view = catalog_pb2.MaterializedView(uri=f"{r.view.database}/{r.view.table}.lance")
            view.MergeFrom(self._fake.views[r.view.table])
            return catalog_pb2.GetMaterializedViewResponse(view=view)

        return self._answer("GetMaterializedView", request, context, find)

    def ExplainRefresh(self, request, context):
        answer = planner_pb2.ExplainRefreshResponse(
            version=4,
            source_version=5,
            target_version=9,
            mode=planner_pb2.REFRESH_MODE_INCREMENTAL,
            reason=planner_pb2.REFRESH_REASON_SOURCE_CHANGED,
            message="The source went from version 5 to 9",
            rows=10,
        )
        answer.changes.add(kind=planner_pb2.SOURCE_CHANGE_KIND_APPEARED, fragments=2)
        answer.changes.add(kind=planner_pb2.SOURCE_CHANGE_KIND_DELETIONS, fragments=1)
        answer.functions.add(column="n", most_rows=1200)
        return self._answer("ExplainRefresh", request, context, answer)

    def PreviewFunction(self, request, context):
        return self._answer("PreviewFunction", request, context, jobs_pb2.PreviewFunctionResponse())

    def ExplainPlan(self, request, context):
        answer = planner_pb2.ExplainPlanResponse(
            column=request.spec.column,
            udf=udf_pb2.UdfRef(name="f", version="1"),
            input_columns=["text"],
            read_version=7,
            rows_total=2000,
            rows_reused=1000,
            rows_to_compute=1000,
            rows_failed_before=3,
            summary="1 of 2 fragments to do",
        )
        answer.reasons.add(reason=planner_pb2.REASON_REUSED, fragments=1, rows=1000)
        answer.reasons.add(reason=planner_pb2.REASON_MISSING, fragments=1, rows=1000)
        decision = answer.decisions.add(fragment_id=1, physical_rows=1001, deleted_rows=1)
        decision.reason = planner_pb2.REASON_MISSING
        decision.missing.add(start=0, end=1001)
        return self._answer("ExplainPlan", request, context, answer)

    def GetRowStates(self, request, context):
        answer = planner_pb2.GetRowStatesResponse(
            version=7,
            rows_computed=9,
            rows_null=2,
            rows_failed=1,
            rows_not_computed=3,
            rows_checkpointed=2,
            rows_ready_to_commit=1,
        )
        answer.kept.add(udf=udf_pb2.UdfRef(name="f", version="0"), rows=4)
        if request.state == planner_pb2.ROW_STATE_FAILED:
            moved, other = (4 << 32) | 1, (4 << 32) | 7
            answer.row_addresses.append(other if request.page_token else moved)
            answer.row_ids.append(-1 if request.page_token else 105)
            answer.next_page_token = "" if request.page_token else "more"
        return self._answer("GetRowStates", request, context, answer)

    def RetryJob(self, request, context):
        answer = jobs_pb2.RetryJobResponse(job=make_job("job-1", "RUNNING", retry_of=request.job_id))
        return self._answer("RetryJob", request, context, answer)

    def CreateJob(self, request, context):
        answer = jobs_pb2.CreateJobResponse(job=make_job("job-1", "RUNNING"))
        return self._answer("CreateJob", request, context, answer)

    def GetJob(self, request, context):
        answer = jobs_pb2.GetJobResponse(job=make_job(request.job_id, "RUNNING"))
        return self._answer("GetJob", request, context, answer)

    def ListJobs(self, request, context):
        answer = jobs_pb2.ListJobsResponse(jobs=[make_job("job-1", "DONE")])
        return self._answer("ListJobs", request, context, answer)

    def WatchJob(self, request, context) -> Iterator[jobs_pb2.WatchJobResponse]:
        done = jobs_pb2.WatchJobResponse(sequence=1, job=make_job("job-1", "DONE"))
        for answer in self._answer("WatchJob", request, context, [done]):
            if isinstance(answer, grpc.StatusCode):
                context.abort(answer, "made up")
            yield answer() if callable(answer) else answer

    def CancelJob(self, request, context):
        answer = jobs_pb2.CancelJobResponse(job=make_job(request.job_id, "CANCELLING"))
        return self._answer("CancelJob", request, context, answer)

    def DeleteJob(self, request, context):
        return self._answer("DeleteJob", request, context, jobs_pb2.DeleteJobResponse())

    def PauseJob(self, request, context):
        answer = jobs_pb2.PauseJobResponse(job=make_job(request.job_id, "PAUSING"))
        return self._answer("PauseJob", request, context, answer)

    def ResumeJob(self, request, context):
        answer = jobs_pb2.ResumeJobResponse(job=make_job(request.job_id, "PENDING"))
        return self._answer("ResumeJob", request, context, answer)

    def ListJobErrors(self, request, context):
        errors = [jobs_pb2.RowError(job_id=request.job_id, column="n", row_address=(1 << 32) | 5, row_id=105)]
        errors[0].error_type, errors[0].error_message, errors[0].attempt = "ValueError", "bad text", 1
        lost = [] if request.page_token else ["errors.lance is damaged."]
        answer = jobs_pb2.ListJobErrorsResponse(errors=errors, warnings=lost if request.job_id == "job-lost" else [])
        return self._answer("ListJobErrors", request, context, answer)

    def GroupJobErrors(self, request, context):
        error = jobs_pb2.RowError(job_id=request.job_id, column="n", row_address=(1 << 32) | 5, row_id=105)
        group = jobs_pb2.RowErrorGroup(error_type="ValueError", error_message="bad text", rows=1, examples=[error])
        answer = jobs_pb2.GroupJobErrorsResponse(groups=[group], total_size=1, rows=1)
        if request.job_id == "job-many":
            answer.total_size, answer.rows, answer.rows_ungrouped, answer.next_page_token = 3, 10, 7, "more"
        if request.job_id == "job-lost":
            answer.warnings.append("errors.lance is damaged.")
        return self._answer("GroupJobErrors", request, context, answer)

    def _database(self, name):
        missing = status("NOT_FOUND", "DATABASE_NOT_REGISTERED", f"No database is registered as '{name}'")
        return self._fake.databases.get(name, missing)

    def RegisterDatabase(self, request, context):
        def register(r):
            self._fake.databases[r.database.name] = r.database
            return databases_pb2.RegisterDatabaseResponse(database=r.database)

        return self._answer("RegisterDatabase", request, context, register)

    def GetDatabase(self, request, context):
        def find(r):
            found = self._database(r.name)
            is_error = isinstance(found, status_pb2.Status)
            return found if is_error else databases_pb2.GetDatabaseResponse(database=found)

        return self._answer("GetDatabase", request, context, find)

    def ListDatabases(self, request, context):
        answer = databases_pb2.ListDatabasesResponse(
            databases=self._fake.databases.values(), warnings=["odd is damaged"]
        )
        return self._answer("ListDatabases", request, context, answer)

    def UpdateDatabase(self, request, context):
        answer = databases_pb2.UpdateDatabaseResponse(database=request.database)
        return self._answer("UpdateDatabase", request, context, answer)

    def UnregisterDatabase(self, request, context):
        def unregister(r):
            del self._fake.databases[r.name]
            return databases_pb2.UnregisterDatabaseResponse()

        return self._answer("UnregisterDatabase", request, context, unregister)

    def DropView(self, request, context):
        def drop(r):
            if r.view.table not in self._fake.views:
                return status("FAILED_PRECONDITION", "NOT_A_VIEW", f"Table '{r.view.table}' is not a materialized view")
            del self._fake.views[r.view.table]
            return commit_pb2.DropViewResponse()

        return self._answer("DropView", request, context, drop)

    def ReadRows(self, request, context):
        for answer in self._answer("ReadRows", request, context, []):
            if isinstance(answer, status_pb2.Status):
                _abort(context, answer)
            if isinstance(answer, grpc.StatusCode):
                context.abort(answer, "made up")
            yield answer

    def AppendRows(self, requests, context):
        return self._answer("AppendRows", list(requests), context, None)

    def CreateTable(self, request, context):
        return self._answer("CreateTable", request, context, lambda _: tables_pb2.CreateTableResponse(version=1))

    def DropTable(self, request, context):
        return self._answer("DropTable", request, context, lambda _: tables_pb2.DropTableResponse())

    def UpdateRows(self, request, context):
        return self._answer("UpdateRows", request, context, None)

    def MergeRows(self, requests, context):
        return self._answer("MergeRows", list(requests), context, None)

    def VerifyDatabase(self, request, context) -> Iterator[commit_pb2.VerifyDatabaseResponse]:
        kinds = commit_pb2.VerificationFinding
        first = commit_pb2.VerifyDatabaseResponse(resume_token="half", table="docs")
        first.counts.add(subject=kinds.SUBJECT_COLUMN_FILE, looked=2, bytes=100)
        last = commit_pb2.VerifyDatabaseResponse()
        last.counts.add(subject=kinds.SUBJECT_COLUMN_FILE, looked=1, flawed=1, bytes=50)
        last.counts.add(subject=kinds.SUBJECT_DATA_FILE, looked=3, unverifiable=3)
        found = last.findings.add(subject=kinds.SUBJECT_COLUMN_FILE, flaw=kinds.FLAW_DAMAGED, path="docs.lance/data/a")
        found.message, found.table, found.fragment_id, found.rows = "a is damaged: restore it", "docs", 4, 10
        found.columns.append("n")
        answers = [last] if request.resume_token == "half" else [first, last]
        for answer in self._answer("VerifyDatabase", request, context, answers):
            if isinstance(answer, grpc.StatusCode):
                context.abort(answer, "made up")
            yield answer

    def OptimizeIndices(self, request, context):
        index = planner_pb2.IndexCoverage(
            name="n_idx", kind="BTree", columns=["n"], fragments=3, fragments_covered=3, rows_left_out=0
        )
        answer = commit_pb2.OptimizeIndicesResponse(version=8, indices=[index])
        return self._answer("OptimizeIndices", request, context, answer)

    def CollectGarbage(self, request, context):
        answer = commit_pb2.CollectGarbageResponse(
            version=7, files_removed=2, bytes_removed=1234, files_kept=3, bytes_kept=9
        )
        file = answer.files.add(
            path="_checkpoints/k.lance", size_bytes=5, udf=udf_pb2.UdfRef(name="f_range-1-2", version="ab")
        )
        file.column, file.fragment_id, file.removed = "n", 3, not request.dry_run
        file.kind, file.use, file.fate = file.KIND_CHECKPOINT, file.USE_SETTLED, file.FATE_GARBAGE
        file.range.start, file.range.end = 0, 100
        answer.files.add(
            path="_checkpoints/abc.lance",
            fragment_id=-1,
            kind=file.KIND_CHECKPOINT,
            use=file.USE_LEGACY,
            fate=file.FATE_GARBAGE,
        )
        return self._answer("CollectGarbage", request, context, answer)


def _abort(context: grpc.ServicerContext, found: status_pb2.Status) -> None:
    context.abort_with_status(rpc_status.to_status(found))
