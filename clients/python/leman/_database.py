"""A database (a folder, or a prefix of an object store, with Lance tables) and the stubs of its services."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Literal, Self, cast

import grpc

from leman import _locations, local
from leman._arrow import pa
from leman._call_boundary import boundary, warn
from leman._format.view_definitions import is_view
from leman._functions import registration
from leman._functions.registration import Registration, entrypoint_definition
from leman._functions.udf_decorator import UdfOptions
from leman._jobs import DatabaseJobs, pages
from leman._local import local_reads
from leman._locations import check_name
from leman._maintenance import Verification, verify
from leman._message_text import Shown
from leman._relation import Query
from leman._table import Table
from leman._table_model import UdfInfo, ViewSummary
from leman._view import View, create_view
from leman._wire import conversions, row_transfer
from leman._wire.channel import PatientChannel, Services
from leman._wire.wire_values import checked_request_id, derived_request_id, function_ref
from leman.error_handling import ErrorHandlingConfig
from leman.errors import (
    ColumnNotFound,
    InvalidArgument,
    LemanError,
    NotFound,
    NotSupported,
    TableExists,
    TableNotFound,
    TypeMismatch,
)
from leman.v1 import (
    catalog_pb2,
    catalog_pb2_grpc,
    commit_pb2,
    commit_pb2_grpc,
    databases_pb2_grpc,
    info_pb2_grpc,
    jobs_pb2_grpc,
    planner_pb2_grpc,
    tables_pb2,
    tables_pb2_grpc,
    udf_pb2,
)

_SECONDS = 600.0  # for calls without a timeout


class Answers:
    """The stream of answers of a call. Iteration raises LemanError. Call `cancel` to stop early."""

    def __init__(self, call: Any, explain: Callable[[grpc.RpcError], LemanError]) -> None:
        self._call = call
        self._explain = explain

    def __iter__(self) -> Iterator[Any]:
        return self

    @boundary
    def __next__(self) -> Any:
        try:
            return next(self._call)
        except grpc.RpcError as error:
            raise self._explain(error) from None

    def cancel(self) -> None:
        """Cancel the call. Iterating over it then raises Cancelled."""
        self._call.cancel()


class Stubs:
    """A stub of the generated module `leman.v1` for each service: every call of the API, as in the protos.

    Like all calls of this client, these carry the token. A unary call is retried while the service is unreachable; a
    stream is opened once. Every call takes `timeout` in seconds, and raises LemanError.
    """

    def __init__(self, services: Services) -> None:
        planner, executor, coordinator = (
            cast("grpc.Channel", _Channel(services, name, _SECONDS))
            for name in ("planner", "executor", "commit_coordinator")
        )
        self.catalog = catalog_pb2_grpc.CatalogServiceStub(planner)
        self.databases = databases_pb2_grpc.DatabaseServiceStub(planner)
        self.info = info_pb2_grpc.InfoServiceStub(planner)
        self.planner = planner_pb2_grpc.PlannerServiceStub(planner)
        self.jobs = jobs_pb2_grpc.JobServiceStub(executor)
        self.commits = commit_pb2_grpc.CommitServiceStub(coordinator)
        self.tables = tables_pb2_grpc.TableServiceStub(coordinator)


class _Channel(PatientChannel):
    """A channel that raises LemanError for streams, too."""

    def unary_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        return boundary(super().unary_unary(method, *codecs, **options))

    def stream_unary(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        send = super().stream_unary(method, *codecs, **options)

        def call(requests: Iterable[Any], timeout: float | None = None) -> Any:
            try:
                return send(iter(requests), timeout=timeout)
            except grpc.RpcError as error:
                raise self._explain(error) from None

        return boundary(call)

    def unary_stream(self, method: str, *codecs: Any, **options: Any) -> Callable[..., Any]:
        send = super().unary_stream(method, *codecs, **options)

        def call(request: Any, timeout: float | None = None) -> Answers:
            return Answers(send(request, timeout=timeout), self._explain)

        return boundary(call)

    def _explain(self, error: grpc.RpcError) -> LemanError:
        return self._services.explain(self._service, error)


class Database(DatabaseJobs, Shown):
    """A database, opened by `leman.connect`. The end of a `with` block, or `close()`, closes its connections."""

    def __init__(self, uri: str, services: Services) -> None:
        self.uri = uri
        self._services = services
        self._registration = Registration(services, uri)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<leman.Database {self.uri}>"

    def close(self) -> None:
        """Close the connections. Jobs continue, and embedded services run on until they are idle."""
        self._services.close()

    @boundary
    def start(self) -> None:
        """Start a local database's services now rather than with the first call that needs them. Raises StartFailed."""
        self._services.start()

    @property
    def stubs(self) -> Stubs:
        """Return the generated stubs of all services, for calls that have no method here.

        Each request must name the database by its `uri`.
        """
        return Stubs(self._services)

    @boundary
    def create_table(
        self,
        name: str,
        data: Any,
        *,
        mode: Literal["create", "overwrite"] = "create",
        exist_ok: bool = False,
        enable_stable_row_ids: bool = True,
        max_rows_per_file: int | None = None,
        request_id: str | None = None,
    ) -> Table:
        """Write a table and open it.

        `data`: an Arrow table, batch, reader or schema (no rows), a list of dicts, a dict of lists, or a DataFrame.
        `mode`: `overwrite` replaces a table of that name; through the services (see `connect`) drop it first instead.
        `max_rows_per_file`: at most this many rows in a fragment. `enable_stable_row_ids`: without stable row ids,
        Leman computes rows again that an update or a compaction only moved.

        `exist_ok`: open an existing table of that name unchanged, without adding these rows, so that you can run a
        program again. The table must have the columns of `data` with their types, and may have more.

        `request_id`: as for `Table.add`. A repeated call returns the table, and adds the rows if the first call could
        not. Without a request id, a table whose rows cannot be added is dropped; with one, it stays for the repeated
        call.

        Raises TableExists (unless `exist_ok`, or `mode` is `overwrite`), ColumnNotFound and TypeMismatch (an existing
        table has other columns), InvalidArgument, NotSupported.
        """
        _check_table_name(name)
        if exist_ok and mode == "overwrite":
            raise InvalidArgument("exist_ok keeps an existing table, mode='overwrite' replaces it: give one of them")
        if request_id is not None and (exist_ok or mode == "overwrite"):
            raise InvalidArgument("leave out mode and exist_ok with a request_id, under which a table is created once")
        if exist_ok:
            data = local.as_arrow(data)
            try:
                return self._existing(name, data.schema)
            except NotFound as error:
                if error.reason not in ("TABLE_NOT_FOUND", "DATABASE_NOT_FOUND"):
                    raise
        try:
            return self._new_table(
                name, data, mode, max_rows_per_file, stable_row_ids=enable_stable_row_ids, request_id=request_id
            )
        except TableExists:
            if not exist_ok:
                raise
            return self._existing(name, data.schema)  # created concurrently

    def _existing(self, name: str, schema: pa.Schema) -> Table:
        """Open an existing table. Raise an error if it lacks one of these columns."""
        table = self._table(name)
        there = table.describe().schema
        if is_view(there.metadata or {}):
            raise TableExists(f"'{name}' is a view: choose another name, or drop it first")
        for field in schema:
            if field.name not in there.names:
                raise ColumnNotFound(
                    f"table '{name}' exists and has no column '{field.name}': add it (Table.add_plain_columns), leave"
                    f" it out, or replace the table (mode='overwrite'). It has {', '.join(there.names[:40])}"
                )
            type_ = there.field(field.name).type
            if field.type != type_ and not pa.types.is_null(field.type):
                raise TypeMismatch(
                    f"table '{name}' exists, and its column '{field.name}' is {type_}, not {field.type}: give it that"
                    " type, or replace the table (mode='overwrite')"
                )
        return table

    def _new_table(
        self,
        name: str,
        data: Any,
        mode: str,
        max_rows_per_file: int | None,
        *,
        stable_row_ids: bool,
        request_id: str | None,
    ) -> Table:
        if mode not in ("create", "overwrite"):
            raise InvalidArgument(f"mode is 'create' or 'overwrite', not {mode!r}")
        _check_rows(max_rows_per_file)
        if not stable_row_ids:
            warn(f"table {name!r} gets no stable row ids: rows that an update or a compaction moves are computed again")
        if not self._services.direct or request_id is not None:
            if mode == "overwrite":
                raise NotSupported("a table cannot be overwritten through the services: call drop_table() first")
            return self._create(name, data, stable_row_ids, max_rows_per_file, request_id)
        local.create_table(
            self._table_uri(name),
            data,
            overwrite=mode == "overwrite",
            stable_row_ids=stable_row_ids,
            max_rows_per_file=max_rows_per_file,
        )
        return self._table(name)

    def _create(
        self,
        name: str,
        data: Any,
        stable_row_ids: bool,  # noqa: FBT001
        max_rows: int | None,
        request_id: str | None,
    ) -> Table:
        """Create a table through the services. Drop it if its rows cannot be added, unless the caller may retry."""
        rows = local.plain_rows(local.as_arrow(data))
        table = self._table(name)
        self._services.tables.CreateTable(
            tables_pb2.CreateTableRequest(
                table=table.ref(),
                schema=rows.schema.serialize().to_pybytes(),
                stable_row_ids=stable_row_ids,
                request_id=checked_request_id(request_id),
            )
        )
        try:
            row_transfer.append_rows(
                self._services, table.ref(), rows, max_rows, derived_request_id(request_id, "rows")
            )
        except BaseException:
            if request_id is None:
                with contextlib.suppress(LemanError):  # report only the first error
                    self.drop_table(name, force=True)
            raise
        return table

    @boundary
    def drop_table(self, name: str, *, force: bool = False, request_id: str | None = None) -> None:
        """Remove a table: its rows in all versions, and what is stored next to them. The history of its jobs stays.

        `force`: remove the table even if views of this database read it, or if its jobs have not ended. These views
        then keep their rows but can no longer be refreshed. These jobs fail (TABLE_NOT_FOUND, or TABLE_REPLACED if
        another table has the name by then); a paused job fails when it is resumed. `request_id`: as for `Table.add`.

        Raises TableNotFound, and FailedPrecondition whose `reason` is IS_A_VIEW or TABLE_IN_USE.
        """
        ref = self._table(check_name(name, "table")).ref()
        self._services.tables.DropTable(
            tables_pb2.DropTableRequest(table=ref, force=force, request_id=checked_request_id(request_id))
        )

    @boundary
    def rename_table(self, name: str, new_name: str, *, force: bool = False, request_id: str | None = None) -> Table:
        """Rename a table on a file system (not in an object store), and open it under the new name.

        Jobs in the history, and checkpoints of unfinished backfills, keep the old name. Views of the table also refer
        to the old name: if there are any, give `force`, as for `drop_table`. `request_id`: as for `Table.add`.

        Raises TableNotFound, TableExists, InvalidArgument, and FailedPrecondition whose `reason` is IS_A_VIEW,
        TABLE_IN_USE or RENAME_NOT_SUPPORTED (in an object store).
        """
        ref = self._table(check_name(name, "table")).ref()
        check_name(new_name, "table")
        own = checked_request_id(request_id)
        request = tables_pb2.RenameTableRequest(table=ref, new_name=new_name, force=force, request_id=own)
        self._services.tables.RenameTable(request)
        return self._table(new_name)

    @boundary
    def open_table(self, name: str) -> Table | Any:
        """Open a table or a view, which type checkers see as a table. Raises TableNotFound."""
        table = self._table(check_name(name, "table"))
        try:
            metadata = table.describe().schema.metadata or {}
        except NotFound as error:
            if error.reason != "DATABASE_NOT_FOUND":
                raise
            raise TableNotFound(
                f"there is no table {name!r}: {error}", reason=error.reason, facts=error.facts
            ) from None
        return self._view(name) if is_view(metadata) else table

    @boundary
    def open_view(self, name: str) -> View:
        """Open a view. Raises TableNotFound, FailedPrecondition (NOT_A_VIEW)."""
        view = self._view(check_name(name, "view"))
        view.describe()
        return view

    @boundary
    def create_materialized_view(
        self,
        name: str,
        query: Query,
        max_rows_per_fragment: int | None = None,
        *,
        exist_ok: bool = False,
        request_id: str | None = None,
    ) -> View:
        """Create a view with a row, empty at first, for each row of the source that the query's filter matches.

        This calls no function: `View.refresh` computes the values. The view's functions are registered in this
        database. `query`: from `table.search(None)`, of this database or another one that the services reach.
        `max_rows_per_fragment`: at most this many rows in a fragment. `exist_ok`: open an existing view of that name
        unchanged if it has the same query and functions, so that you can run a program again, even in several processes
        at once. `request_id`: as for `Table.add`.

        Warns if the source has no stable row ids: the view can then only be refreshed to the version that it was made
        from. Raises TableExists (with `exist_ok`: the view has another query, and the message names the difference),
        ColumnNotFound, InputColumnMissing, TypeMismatch, TableNotFound, and InvalidArgument whose `reason` is
        INVALID_FILTER, INVALID_EXPRESSION, VOLATILE_FUNCTION, NAME_CLASH or RESERVED_NAME.
        """
        place = self._services, self._registration, self.uri, name
        return create_view(*place, query, rows=max_rows_per_fragment, exist_ok=exist_ok, request_id=request_id)

    @boundary
    def drop_view(self, name: str, *, force: bool = False, request_id: str | None = None) -> None:
        """Remove a view: its rows, its history, and the files of an unfinished refresh.

        A running refresh fails. The source and the registered functions stay. `force`: remove the view even if another
        view of this database reads it. That view then keeps its rows and can no longer be refreshed. Views of other
        databases are not checked. `request_id`: as for `Table.add`. Raises TableNotFound, and FailedPrecondition whose
        `reason` is NOT_A_VIEW or VIEW_IN_USE.
        """
        request = commit_pb2.DropViewRequest(
            view=catalog_pb2.TableRef(database=self.uri, table=check_name(name, "view")),
            force=force,
            request_id=checked_request_id(request_id),
        )
        self._services.commits.DropView(request)

    @boundary
    def verify(
        self, *, resume_token: str = "", progress: Callable[[Verification], object] | None = None
    ) -> Verification:
        """Read everything that the database stores, compare it with the stored digests, and return the differences.

        It reads functions and their bundles, metadata of columns and views, job history, checkpoints, and all committed
        files. It changes nothing. Files that other programs or a compaction wrote have no digest: this only checks that
        they exist and are readable, and counts them as not verifiable.

        `progress`: called with the findings so far. A later call with the `resume_token` of a Verification continues
        after that point, and reports only on what it reads itself. Raises NotFound (DATABASE_NOT_FOUND),
        InvalidArgument.
        """
        return verify(self._services, self.uri, resume_token, progress)

    @boundary
    def table_names(self) -> list[str]:
        """Return the sorted names of all tables and views, or [] if the local database does not exist yet."""
        if self._services.reads_alone():
            with contextlib.suppress(OSError):  # the services then report the problem with the folder
                return local_reads.table_names(self.uri)
        request = catalog_pb2.ListTablesRequest(database=self.uri)
        try:
            return [name for page in pages(self._services.catalog.ListTables, request) for name in page.tables]
        except NotFound as error:
            if error.reason != "DATABASE_NOT_FOUND":
                raise
            return []

    @boundary
    def views(self) -> list[ViewSummary]:
        """Return the materialized views, by name. Damaged views are left out with a warning.

        `open_view(...).describe()` returns more about each of them.
        """
        if self._services.reads_alone():
            _locations.check_database_exists(self.uri)
            if (alone := local_reads.local_view_summaries(self.uri)) is not None:
                return alone
        request = catalog_pb2.ListMaterializedViewsRequest(database=self.uri)
        found = pages(self._services.catalog.ListMaterializedViews, request)
        return [conversions.view_summary(item) for page in found for item in page.views]

    @boundary
    def udfs(self) -> list[UdfInfo]:
        """Return the registered functions, by name, then newest first, without their sources."""
        if self._services.reads_alone():
            _locations.check_database_exists(self.uri)
            if (found := local_reads.local_udfs(self.uri)) is not None:
                return [dataclasses.replace(each, source="") for each in found]  # as in the services' listings
        found_pages = pages(self._services.catalog.ListUdfs, catalog_pb2.ListUdfsRequest(database=self.uri))
        return [conversions.udf_info(item) for page in found_pages for item in page.definitions]

    @boundary
    def register_entrypoint(
        self,
        entrypoint: str,
        *,
        name: str,
        version: str,
        input_columns: Sequence[str],
        data_type: pa.DataType,
        kind: Literal["scalar", "array", "record_batch"] = "scalar",
        error_handling: ErrorHandlingConfig | None = None,
    ) -> UdfInfo:
        """Register a function that is installed on the workers, `package.module:name`. No code is sent.

        Use it as `("name@version", ["column"])` in `Table.add_columns`. `version`: change it when the installed code
        computes something else. `kind`: how it is called, as for `leman.udf`. Raises UdfExists, UdfDefinitionError,
        InvalidArgument, PermissionDenied.
        """
        made = entrypoint_definition(
            entrypoint,
            name=name,
            version=version,
            input_columns=input_columns,
            data_type=data_type,
            kind=kind,
            error_handling=error_handling,
        )
        request = catalog_pb2.RegisterUdfRequest(database=self.uri, definition=made)
        self._services.catalog.RegisterUdf(request)
        return conversions.udf_info(made)

    @boundary
    def register_remote(  # noqa: PLR0913 - its options, all by name
        self,
        name: str,
        *,
        addresses: Sequence[str],
        function: str = "",
        version: str = "",
        input_columns: Sequence[str] | None = None,
        batch_size: int | None = None,
        checkpoint_size: int | None = None,
        error_handling: ErrorHandlingConfig | None = None,
        timeout: float | None = None,
    ) -> UdfInfo:
        """Register a function that runs on servers in any language, called over Arrow Flight. See `leman.functions`.

        Use it as `("name@version", ["column"])` in `Table.add_columns`, with the version of the returned function.
        `addresses`: the addresses of its servers, `grpc://host:port` or `grpc+tls://host:port`. At least one server has
        to answer now, and all that answer have to serve the same function. You can later register other addresses and
        options under the same version. The options are those of `leman.udf`. `function`: the function's name on the
        servers; default: `name`. `version`: the version that the servers must have; default: any. `input_columns`: the
        columns that it reads, in the order of its parameters; default: the columns with the parameters' names. If TLS
        fails with some servers while others answer, a UserWarning names them.

        Raises Unavailable (FUNCTION_UNAVAILABLE), NotFound (FUNCTION_NOT_FOUND), FailedPrecondition whose `reason` is
        FUNCTION_VERSION_MISMATCH, FUNCTION_SIGNATURE_MISMATCH, FUNCTION_ACCESS_DENIED, FUNCTION_TLS_FAILED or
        FUNCTION_PROTOCOL, UdfExists, UdfDefinitionError, InvalidArgument, PermissionDenied (UDF_NOT_ALLOWED: the
        services do not go to that address).
        """
        made = registration.remote_definition(
            name,
            addresses=addresses,
            function=function,
            version=version,
            input_columns=input_columns,
            options=UdfOptions(
                batch_size=batch_size,
                checkpoint_size=checkpoint_size,
                error_handling=error_handling or ErrorHandlingConfig(),
                timeout=timeout,
            ),
        )
        request = catalog_pb2.RegisterUdfRequest(database=self.uri, definition=made)
        answer = self._services.catalog.RegisterUdf(request)
        for text in answer.warnings:
            warn(text)
        return conversions.udf_info(answer.definition)

    @boundary
    def upload_bundle(self, data: bytes) -> str:
        """Store a function that another program pickled, and return the sha256 by which `RegisterUdf` refers to it.

        Functions made by `leman.udf` do not need it. Raises InvalidArgument (BUNDLE_TOO_LARGE), PermissionDenied.
        """
        digest = hashlib.sha256(data).hexdigest()
        described = udf_pb2.PythonBundle(sha256=digest, size_bytes=len(data))
        registration.upload_bundle(self._services, self.uri, described, data)
        return digest

    @boundary
    def udf(self, name: str) -> UdfInfo:
        """Return a registered function: `name@version`, or `name` for the newest. Raises UdfNotFound."""
        udf_name, _, version = name.partition("@")
        if self._services.reads_alone() and (found := local_reads.local_udf(self.uri, udf_name, version)) is not None:
            return found
        request = catalog_pb2.GetUdfRequest(database=self.uri, udf=function_ref(udf_name, version))
        return conversions.udf_info(self._services.catalog.GetUdf(request).definition)

    def _table(self, name: str) -> Table:
        return Table(self._services, self._registration, self.uri, name)

    def _view(self, name: str) -> View:
        return View(self._services, self._registration, self.uri, name)

    def _table_uri(self, name: str) -> str:
        return f"{self.uri}/{name}.lance"


def _check_table_name(name: Any) -> None:
    if not isinstance(name, str) or not name[:1].isalnum():
        raise InvalidArgument(f"{name!r} is not a valid table name: it must begin with a letter or a digit")
    if any(c in "/\\:" or not c.isprintable() for c in name):
        raise InvalidArgument(
            f"{name!r} is not a valid table name: it may not contain '/', '\\', ':' or control characters"
        )


def _check_rows(max_rows_per_file: Any) -> None:
    if max_rows_per_file is not None and (not isinstance(max_rows_per_file, int) or max_rows_per_file < 1):
        raise InvalidArgument(f"max_rows_per_file is a number of rows, 1 or more, not {max_rows_per_file!r}")
