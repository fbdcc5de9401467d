"""A materialized view: a table whose rows and columns a query over another table defines."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leman._call_boundary import boundary, warn
from leman._columns import OnStaleInput, SqlExpression
from leman._format.view_definitions import INTERNAL_COLUMNS, IS_SET
from leman._functions.registration import Registration
from leman._functions.udf_decorator import UDF
from leman._job_model import Progress, RefreshResult
from leman._jobs import JobFuture, create_job, wait_for_job, with_usable_env
from leman._local import local_reads
from leman._local.embedded_services import reading_service
from leman._locations import check_name
from leman._relation import Query, Relation, query_message
from leman._table_model import RefreshPlan, RefreshPolicy, ViewInfo
from leman._wire.channel import Services
from leman._wire.conversions import count, refresh_plan, refresh_spec, view_info
from leman._wire.wire_values import checked_request_id, derived_request_id, function_ref
from leman.errors import FailedPrecondition, Internal, InvalidArgument, TableNotFound
from leman.v1 import catalog_pb2, planner_pb2

ViewFunctionColumn = UDF | tuple[UDF | str, Sequence[str]]
"""A function, or a pair of a function and the source's columns that replace its inputs. An empty list keeps the present
inputs, or else stands for the columns that the parameters name. In a pair, the function may be registered (`name` or
`name@version`)."""

_COLUMNS = (
    "its query defines its columns: `View.alter_columns` gives them other functions, a new view has another query"
)
_VALUES = "a refresh computes it: `View.refresh`, `refresh_async` or `plan_refresh`"
_ROWS = "its query defines its rows: change its source, and refresh it"
#: Advice for methods that only tables have.
_INSTEAD = {
    **dict.fromkeys(("add_columns", "add_plain_columns", "drop_columns", "rename_column", "retype_column"), _COLUMNS),
    **dict.fromkeys(("backfill", "backfill_async", "plan_backfill"), _VALUES),
    **dict.fromkeys(("add", "delete", "update", "merge_insert"), _ROWS),
    "preview": "preview the function on the view's source",
    **dict.fromkeys(("row_states", "rows_in_state"), "`View.describe().stale_columns` names columns to refresh"),
    "get_failed_row_addresses": "`View.get_errors(job_id=...)` has the failed rows of a refresh",
}


class _OnlyOfTables(FailedPrecondition, AttributeError, reason="IS_A_VIEW"):
    """Raised for a method that views do not have. As an AttributeError, it makes `hasattr` return False."""


class View(Relation):
    """A view of a database. It caches nothing: each call reads the current state. It shows only rows with values."""

    _shown, _hidden = IS_SET, INTERNAL_COLUMNS

    def __repr__(self) -> str:
        return f"<leman.View {self.name} in {self._database}>"

    if not TYPE_CHECKING:  # hidden from type checkers, which know the attributes

        def __getattr__(self, name: str) -> Any:
            if name in _INSTEAD:
                raise _OnlyOfTables(f"a view has no {name}: {_INSTEAD[name]}")
            raise AttributeError(f"'View' object has no attribute {name!r}", name=name, obj=self)

    @boundary
    def describe(self) -> ViewInfo:
        """Return the query, the source version that the view matches, and the rows and columns that queries show.

        Raises TableNotFound, FailedPrecondition (NOT_A_VIEW).
        """
        table = super().describe()
        if self._services.reads_alone() and (found := local_reads.local_view(table)) is not None:
            return found
        return view_info(table, self._materialized())

    @boundary
    def refresh(  # noqa: PLR0913 each says another thing of the job
        self,
        src_version: int | None = None,
        max_rows_per_fragment: int | None = None,
        policy: RefreshPolicy = "auto",
        *,
        concurrency: int | None = None,
        cascade: bool = False,
        on_stale_input: OnStaleInput | None = None,
        optimize_indices: bool = False,
        env: Mapping[str, str] | None = None,
        request_id: str | None = None,
        progress: bool | Callable[[Progress], object] | None = None,
    ) -> RefreshResult:
        """Update the view to a version of its source, wait, and return what was done.

        `src_version`: an earlier or later version; None: the latest. `max_rows_per_fragment`: rows in each new
        fragment. `policy`: `auto` computes what changed, or everything if the changes are unknown; `incremental`
        refuses to compute everything; `full` always computes everything. `concurrency`: at most this many worker
        processes. `cascade`: if the source is a view, refresh it first, and so on for its source. `on_stale_input`:
        what to do if the view reads computed columns of its source that are stale or not computed: `error` (also None)
        refuses, `first` computes them first, `warn` uses the existing values. `optimize_indices`: afterwards update the
        view's indexes, as `optimize_indices()` does. `progress`, `env` and `request_id`: as for `Table.backfill`.

        A function column is NULL in rows on which its function failed. The result counts these rows and names the jobs
        whose `get_errors` returns the errors, and a warning is logged. Ctrl-C cancels the refresh; finished work is
        kept. Raises JobFailed, TableNotFound, VersionNotFound, TypeMismatch, InvalidArgument, InputColumnStale, and
        FailedPrecondition whose `reason` is STABLE_ROW_IDS_REQUIRED, FULL_REFRESH_NEEDED, SOURCE_COLUMN_MISSING or
        EXTERNAL_WRITES.
        """
        asked: dict[str, Any] = {
            "src_version": src_version,
            "max_rows_per_fragment": max_rows_per_fragment,
            "optimize_indices": optimize_indices,
        }
        had_env: list[bool] = []

        def one(view: View, usable: Mapping[str, str] | None, **more: Any) -> RefreshResult:
            if on_stale_input == "warn":
                stale = view.plan_refresh(more.get("src_version"), policy=policy).stale_inputs
                if stale:
                    warn(f"{view.name} reads values that are not current: {'; '.join(map(str, stale))}")
            result = view._refresh(
                progress=progress,
                policy=policy,
                concurrency=concurrency,
                on_stale_input=on_stale_input,
                env=usable,
                **more,
            )
            had_env.append(usable is not None)
            return result

        if not cascade:
            return one(self, env, request_id=request_id, **asked)
        _check_cascade(src_version)
        for distance, source in reversed(list(enumerate(self.sources(), 1))):
            own = derived_request_id(request_id, f"source-{distance}")
            with_usable_env(functools.partial(one, source, request_id=own), env)
        result = with_usable_env(functools.partial(one, self, request_id=request_id, **asked), env)
        if env and not any(had_env):
            warn(f"env has no effect: no Python function computes {self.name} or a view that it reads")
        return result

    @boundary
    def refresh_async(  # noqa: PLR0913 likewise
        self,
        src_version: int | None = None,
        max_rows_per_fragment: int | None = None,
        policy: RefreshPolicy = "auto",
        *,
        concurrency: int | None = None,
        on_stale_input: OnStaleInput | None = None,
        optimize_indices: bool = False,
        labels: Mapping[str, str] | None = None,
        priority: int = 0,
        env: Mapping[str, str] | None = None,
        request_id: str | None = None,
    ) -> JobFuture:
        """Start a `refresh`, and return once its job is created. `job().refresh_result` has its result when it ends.

        `labels`, `priority`, `env` and `request_id`: as for `Table.backfill`. Raises the errors of `plan_refresh`.
        """
        spec = refresh_spec(self.ref(), src_version, max_rows_per_fragment, policy, concurrency, on_stale_input)
        spec.optimize_indices = bool(optimize_indices)
        return create_job(self._services, self._database, labels, priority, env, request_id, refresh=spec)

    @boundary
    def plan_refresh(
        self,
        src_version: int | None = None,
        max_rows_per_fragment: int | None = None,
        policy: RefreshPolicy = "auto",
        *,
        on_stale_input: OnStaleInput | None = None,
    ) -> RefreshPlan:
        """Return what a refresh would do, and why. Changes nothing; print the result."""
        spec = refresh_spec(self.ref(), src_version, max_rows_per_fragment, policy, None, on_stale_input)
        with reading_service(self._services, "planner") as services:
            answer = services.planner.ExplainRefresh(planner_pb2.ExplainRefreshRequest(spec=spec))
        return refresh_plan(self.name, answer)

    @boundary
    def sources(self) -> list[View]:
        """Return the views that this one reads, directly or through others, the nearest first, in any database.

        The list is empty if the source is a plain table, or was dropped. A refresh reports a dropped source.
        """
        found: list[View] = []
        seen = {self.uri}
        here: View = self
        while True:
            source = here._materialized().query.source
            here = View(self._services, Registration(self._services, source.database), source.database, source.table)
            try:
                here._materialized()
            except (FailedPrecondition, TableNotFound) as error:
                if error.reason in ("NOT_A_VIEW", "TABLE_NOT_FOUND"):
                    return found
                raise
            if here.uri in seen:
                raise FailedPrecondition(f"view {self.name!r} reads itself: drop one of {sorted(seen)}")
            seen.add(here.uri)
            found.append(here)

    @boundary
    def alter_columns(self, columns: Mapping[str, ViewFunctionColumn], *, request_id: str | None = None) -> int:
        """Replace the functions of function columns, all or nothing, and return the view's new version.

        The next refresh computes only these columns, for every row, because all values of a view's column come from one
        function. Until then the columns keep their values, and `describe().stale_columns` lists them. `columns`: maps a
        name to a function, or to `(function, [columns of the source])`. `request_id`: as for `Table.add`.

        Raises ColumnNotDefined, InputColumnMissing, TypeMismatch, UdfExists, UdfDefinitionError, InvalidArgument.
        """
        request = catalog_pb2.AlterMaterializedViewRequest(view=self.ref(), request_id=checked_request_id(request_id))
        request.update_mask.paths.append("functions")
        for name, value in columns.items():
            udf, inputs = value if isinstance(value, tuple) else (value, ())
            if isinstance(udf, SqlExpression) or isinstance(value, str):
                raise InvalidArgument(f"column {name!r}: a view's SQL expressions are part of its query")
            found = self._registration.resolve(udf)
            request.functions.add(name=name, udf=function_ref(found.name, found.version), input_columns=inputs)
        return self._services.catalog.AlterMaterializedView(request).view.version

    def _refresh(self, *, progress: bool | Callable[[Progress], object] | None, **asked: Any) -> RefreshResult:
        job = wait_for_job(self.refresh_async(**asked), self.name, progress=progress)
        if job.refresh_result is None:
            raise Internal(f"job {job.job_id} ended without a result: report this as a bug in Leman")
        return job.refresh_result

    def _materialized(self) -> catalog_pb2.MaterializedView:
        request = catalog_pb2.GetMaterializedViewRequest(view=self.ref())
        return self._services.catalog.GetMaterializedView(request).view


def create_view(
    services: Services,
    registration: Registration,
    database: str,
    name: Any,
    query: Any,
    *,
    rows: int | None,
    exist_ok: bool,
    request_id: str | None,
) -> View:
    """Create a view without values, see `Database.create_materialized_view`."""
    check_name(name, "view")
    if not isinstance(query, Query):
        raise InvalidArgument(f"a view is made of a query, such as table.search(None).where(...), not {query!r}")
    request = catalog_pb2.CreateMaterializedViewRequest(
        view=catalog_pb2.TableRef(database=database, table=name),
        query=query_message(query, registration),
        max_rows_per_fragment=count("max_rows_per_fragment", rows),
        request_id=checked_request_id(request_id),
        exist_ok=exist_ok,
    )
    for text in services.catalog.CreateMaterializedView(request).warnings:
        warn(text)
    return View(services, registration, database, name)


def _check_cascade(src_version: int | None) -> None:
    if src_version is not None:
        raise InvalidArgument("cascade refreshes the source to its latest version: leave out src_version")
