"""Functions: uploads of their bundles, their registration, and plans of previews."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import ParamSpec

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding
from leman._format.stored_functions import RemoteFunction, UdfDefinition, UdfKind
from leman_core.functions import arrow_types, column_checks, function_servers
from leman_core.functions.column_checks import NewColumn
from leman_core.functions.function_definitions import FunctionPolicy, check_remote
from leman_core.functions.function_servers import FunctionDescription
from leman_core.functions.server_credentials import access_to
from leman_core.model.plan import OutputField, PlanHeader, PreviewSpec
from leman_core.model.service_errors import InvalidArgument, LemanError, Unavailable
from leman_core.model.table import TableField, TableSnapshot
from leman_core.model.work import ServerAccess
from leman_core.server.admission import limit_store_calls
from leman_core.server.blocking import STORE, BlockingPool
from leman_core.server.call_streams import with_idle_limit
from leman_core.server.callers import check_code
from leman_core.settings.sections import Udf
from leman_core.storage import lance_sql
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.udf_registry import Bundles, IncomingBundle, UdfRegistry
from leman_planner.catalog.table_catalog import KEEP_TYPE, Catalog
from leman_planner.planning.plan_maker import PlanMaker
from leman_planner.planning.request_resolution import (
    check_format,
    check_inputs,
    defined_column,
    given_types,
    inputs_of,
    with_names_now,
)

P = ParamSpec("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedBundle:
    """The header of an upload."""

    database: str
    sha256: str
    size_bytes: int


class BundleUploads:
    """All uploads of bundles of a process. Each upload has one piece in memory, and uses a thread while it writes."""

    def __init__(self, settings: Udf, registry: Callable[[str], UdfRegistry]) -> None:
        self._places = limit_store_calls(settings.max_uploads, "TOO_MANY_UPLOADS", "calls of UploadBundle")
        self._idle_seconds = settings.upload_idle_seconds
        self._registry = registry
        # An upload has one task at a time: writing a piece or, once its caller has left, removing its file.
        self._threads = BlockingPool(settings.max_uploads, max_queued=1 << 20, name="bundles")
        self._given_up: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait until the files of abandoned uploads are removed."""
        await asyncio.gather(*self._given_up, return_exceptions=True)
        self._threads.close()

    async def take(self, announced: AnnouncedBundle, pieces: AsyncIterator[bytes]) -> bool:
        """Store a bundle. Return False if it exists already.

        Raises:
            LemanError: See `CatalogService.UploadBundle` (protos/leman/v1/catalog.proto).
        """
        with self._places.acquire(STORE.get()):
            bundles = await self._threads.run(self._bundles, announced)
            if await self._threads.run(bundles.has, announced.sha256, announced.size_bytes):
                return False
            upload = _Upload(self._threads, bundles, announced)
            try:
                async with contextlib.aclosing(with_idle_limit(pieces, self._idle_seconds, "the bundle")) as coming:
                    await upload.run(coming)
            except BaseException:
                self._give_up(upload)
                raise
            return True

    def _bundles(self, announced: AnnouncedBundle) -> Bundles:
        registry = self._registry(announced.database)
        registry.policy.check_pickled()
        registry.bundles.check_size(announced.size_bytes, field="header.size_bytes")
        return registry.bundles

    def _give_up(self, upload: _Upload) -> None:
        task = asyncio.create_task(upload.discard())
        self._given_up.add(task)
        task.add_done_callback(self._given_up.discard)


class _Upload:
    """One upload. Its thread continues if the call ends, and `discard` waits for it."""

    def __init__(self, threads: BlockingPool, bundles: Bundles, announced: AnnouncedBundle) -> None:
        self._threads = threads
        self._bundles = bundles
        self._announced = announced
        self._incoming: list[IncomingBundle] = []
        self._at_work: asyncio.Future[None] | None = None

    async def run(self, pieces: AsyncIterator[bytes]) -> None:
        await self._do(self._begin)
        (incoming,) = self._incoming
        async for piece in pieces:
            await self._do(incoming.write, piece)
        await self._do(incoming.finish)

    async def discard(self) -> None:
        if self._at_work is not None:
            await asyncio.wait((self._at_work,))
        for incoming in self._incoming:
            with contextlib.suppress(Exception):
                await self._threads.run(incoming.discard)

    def _begin(self) -> None:
        self._incoming.append(self._bundles.begin(self._announced.sha256, self._announced.size_bytes))

    async def _do(self, function: Callable[P, None], /, *args: P.args, **kwargs: P.kwargs) -> None:
        self._at_work = asyncio.ensure_future(self._threads.run(function, *args, **kwargs))
        await asyncio.shield(self._at_work)


#: How many function servers are called concurrently.
_ASKED_AT_ONCE = 16


class Registrations:
    """Registers functions. It is stateless, so any number of threads may use it.

    Args:
        registry: Returns the registry of a database.
        policy: Decides which functions may be registered.
        credentials: Path of the file with the credentials for function servers, or "".
    """

    def __init__(self, registry: Callable[[str], UdfRegistry], policy: FunctionPolicy, credentials: str = "") -> None:
        self._registry = registry
        self._policy = policy
        self._credentials = credentials

    def described(self, remote: RemoteFunction) -> tuple[FunctionDescription, list[str]]:
        """Ask the servers of a remote function for its description, if the caller may register it.

        Returns:
            The description, and an error text for each server with which TLS failed.

        Raises:
            LemanError: See `CatalogService.RegisterUdf` (protos/leman/v1/catalog.proto).
        """
        check_remote(remote)
        self._policy.check_remote(remote)
        for address in remote.addresses:
            if not self._policy.lists_address(address):  # an unknown program may listen at that address
                check_code(f"Registering a function served at {address}")
        accesses = access_to(remote.addresses, self._credentials)
        with ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="describe") as pool:
            answers = list(pool.map(lambda access: _describe_function(access, remote.function), accesses))
        return _agreed(remote, answers)

    def put(self, database: str, udf: UdfDefinition, bundle: bytes) -> bool:
        """Store a function. Return False if the same function exists already.

        Raises:
            LemanError: As `UdfRegistry.put`.
            InvalidArgument: BAD_UDF – the definition does not name the bundle, or its SQL reads columns that the
                definition does not name; INVALID_EXPRESSION – no table can compute the SQL.
            PermissionDenied: ROLE_REQUIRED – the entrypoint is not listed.
        """
        if bundle and not udf.bundle_sha256:
            raise InvalidArgument(
                "BAD_UDF",
                f"Function {udf.name} is not pickled, but the request has a bundle: leave it out, or name it in "
                "definition.python_bundle",
                field="bundle",
            )
        registry = self._registry(database)
        if udf.kind is UdfKind.SQL:
            registry.check_new(udf)
            lance_sql.check_syntax(udf)
        if udf.entrypoint and not self._policy.lists(udf.entrypoint):  # it could call any installed code
            check_code(f"Registering the entrypoint {udf.entrypoint}")
        return registry.put(udf, bundle)


def _describe_function(access: ServerAccess, function: str) -> FunctionDescription | LemanError:
    try:
        with function_servers.connect_server(access) as client:
            return function_servers.describe_function(client, access, function)
    except LemanError as error:
        return error


def _agreed(
    remote: RemoteFunction, answers: list[FunctionDescription | LemanError]
) -> tuple[FunctionDescription, list[str]]:
    """Return the description on which all reachable servers agree, and error texts for those with which TLS failed.

    Raises:
        LemanError: A server refused, they disagree, or none can be reached.
    """
    described: list[tuple[str, FunctionDescription]] = []
    away: list[Unavailable] = []
    without_tls: list[LemanError] = []
    for address, answer in zip(remote.addresses, answers, strict=True):
        if isinstance(answer, Unavailable):
            away.append(answer)
        elif isinstance(answer, LemanError) and answer.reason == function_servers.TLS_FAILED:
            without_tls.append(answer)
        elif isinstance(answer, LemanError):
            raise answer
        else:
            described.append((address, answer))
    if not described:
        if without_tls:
            raise without_tls[0]
        told = " ".join(f"{error.message}." for error in away[:3])
        raise function_servers.server_unavailable(
            f"No server of function '{remote.function}' answers. {told} Start one, then retry"
        )
    _, first = described[0]
    for address, other in described[1:]:
        function_servers.check_version(address, other, first.version)
        function_servers.check_signature(address, other, first.input_types, first.output)
    return first, [f"{error.message}. The other servers are used" for error in without_tls]


#: The name of the output of a function without a column.
_OUTPUT = "output"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resolved:
    udf: UdfDefinition
    inputs: tuple[TableField, ...]
    #: See `ResolvedRequest.names`.
    names: Mapping[int, str] = field(default_factory=dict)
    output: OutputField
    rows_to_compute: int


class PreviewPlans:
    """Makes plans of previews. It is stateless, so any number of threads may use it."""

    def __init__(self, catalog: Catalog, plans: PlanMaker, tables: LanceTables) -> None:
        self._catalog = catalog
        self._plans = plans
        self._tables = tables

    def plan(self, asked: PreviewSpec) -> PlanHeader:
        """Return the header of a preview's plan. The bundle of an unregistered function is not looked up.

        Raises:
            LemanError: See `PlanningService.PlanPreview` (protos/leman/internal/v1/planning.proto).
        """
        table = self._catalog.table(asked.database, asked.table)
        check_format(table)
        found = self._of_column(asked, table) if asked.column else self._of_function(asked, table)
        version = self._tables.tagged(table.uri, asked.read_tag) if asked.read_tag else asked.read_version
        read = self._tables.snapshot(table.uri, version) if version else table
        inputs = _fields_in(read, found.inputs) if version else found.inputs
        return PlanHeader(
            uri=table.uri,
            read_version=read.version,
            incarnation=table.incarnation,
            output=found.output,
            input_columns=tuple(field.name for field in inputs),
            input_types=given_types(inputs, found.names),
            udf=with_names_now(found.udf, inputs, found.names),
            bundle_uri=self._catalog.registry(asked.database).bundle_uri(found.udf),
            where=self._plans.pinned(read, asked.where) if asked.where else "",
            rows_total=table.live_rows,
            rows_to_compute=found.rows_to_compute,
        )

    def _of_function(self, asked: PreviewSpec, table: TableSnapshot) -> _Resolved:
        udf = self._function(asked, table)
        inputs = column_checks.find_inputs(asked.input_columns or udf.input_columns, udf, table)
        column_checks.check_input_types(inputs, udf)
        arrow_types.check_storable(_OUTPUT, udf.output_type, table.file_format)
        field = column_checks.output_field(_OUTPUT, udf, table.file_format)
        output = OutputField(TableField(field, ()), "")
        return _Resolved(udf=udf, inputs=inputs, output=output, rows_to_compute=table.live_rows)

    def _of_column(self, asked: PreviewSpec, table: TableSnapshot) -> _Resolved:
        column, bound = defined_column(table, asked.column)
        own = self._catalog.registry(asked.database).find_expected(bound.udf_name, bound.udf_version)
        if asked.names_function:
            udf = self._function(asked, table)
        else:
            udf = self._catalog.registry(asked.database).usable(bound.udf_name, bound.udf_version)
        if asked.input_columns:
            inputs = column_checks.find_inputs(asked.input_columns, udf, table)
        else:
            inputs = inputs_of(table, bound, udf, own)
        is_bound = (udf.name, udf.version) == bound.function and not asked.input_columns
        names = bound.names if is_bound else column_checks.NO_NAMES
        check_inputs(column.name, inputs, udf, names)
        column_checks.check_output_type(column, udf, KEEP_TYPE)
        rows = self._rows_of_column(table, column, bound, udf, inputs)
        output = OutputField(column, bound.column_id)
        return _Resolved(udf=udf, inputs=inputs, names=names, output=output, rows_to_compute=rows)

    def _function(self, asked: PreviewSpec, table: TableSnapshot) -> UdfDefinition:
        if asked.definition is not None:
            self._catalog.registry(asked.database).check_new(asked.definition)
            return asked.definition
        column = NewColumn(
            asked.column or _OUTPUT,
            asked.udf_name,
            asked.udf_version,
            sql_expression=asked.sql_expression,
            error_policy=asked.error_policy,
        )
        return self._catalog.function(asked.database, table, column)

    def _rows_of_column(
        self,
        table: TableSnapshot,
        column: TableField,
        bound: ColumnBinding,
        udf: UdfDefinition,
        inputs: Sequence[TableField],
    ) -> int:
        """Count the rows that a backfill of the column would compute with this function and these inputs."""
        if (udf.name, udf.version) != bound.function or [f.field_id for f in inputs] != [
            i.field_id for i in bound.inputs
        ]:
            rebound = column_checks.binding_to(bound.column_id, udf, inputs, bound.added_as, before=bound)
            field = replace(column, arrow=column_bindings.bind(column.arrow, rebound))
            fields = tuple(field if f.field_id == field.field_id else f for f in table.fields)
            table = replace(table, fields=fields)
        return self._plans.forecast(table, column.name, udf).header.rows_to_compute


def _fields_in(read: TableSnapshot, inputs: Sequence[TableField]) -> tuple[TableField, ...]:
    """Return the input columns as they are defined in the version that is read.

    Raises:
        FailedPrecondition: INPUT_COLUMN_MISSING.
    """
    then = [read.find_id(field.field_id) for field in inputs]
    missing = [field.name for field, found in zip(inputs, then, strict=True) if found is None]
    if missing:
        raise column_checks.input_missing(missing, read)
    return tuple(found for found in then if found is not None)
