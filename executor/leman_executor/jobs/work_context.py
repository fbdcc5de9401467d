"""Make the work context, which each worker of a job gets: settings from the plan, and environment variables for the
functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Self

import pyarrow as pa

from leman._format.column_bindings import FunctionVersion
from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.functions import arrow_types
from leman_core.functions.function_definitions import FunctionPolicy
from leman_core.functions.server_credentials import access_to
from leman_core.model.databases import StoreOptions
from leman_core.model.job import Job, JobError
from leman_core.model.plan import PlanHeader
from leman_core.model.service_errors import FailedPrecondition, PermissionDenied
from leman_core.model.work import FunctionSpec, RemoteRef, WorkContext, WorkUnit
from leman_core.server.callers import check_code
from leman_core.settings import Settings
from leman_core.storage.checkpoint_store import checkpoint_root
from leman_core.storage.object_stores import options_for, were_renewed
from leman_executor.worker.error_store import errors_uri

NO_ENV: Mapping[str, str] = MappingProxyType({})
#: Number of notices to remember.
_NOTICES = 1024
#: Kinds of functions that run in a process of their own.
KINDS_WITH_ENV = frozenset(UdfKind) - {UdfKind.SQL, UdfKind.REMOTE}


def check_env_usable(env: Mapping[str, str], functions: Iterable[UdfDefinition]) -> None:
    """If the job has environment variables, check that at least one function can use them.

    Raises:
        FailedPrecondition: ENV_NOT_USABLE.
    """
    if not env or any(udf.kind in KINDS_WITH_ENV for udf in functions):
        return
    raise FailedPrecondition(
        "ENV_NOT_USABLE",
        "No function of this job has an environment: SQL runs in the services, and remote functions on their own "
        "servers. Leave env out, and configure a remote function's server directly",
        field="env",
    )


def check_functions_unchanged(
    env: Mapping[str, str], before: Mapping[str, FunctionVersion], now: Mapping[str, FunctionVersion]
) -> None:
    """If the job has environment variables, check that each column still has its function from when the job was
    created.

    Raises:
        PermissionDenied: ENV_NOT_ALLOWED.
    """
    for column, function in now.items():
        if env and before.get(column) != function:
            had = f"had {before[column]}" if column in before else "was not there"
            listed = ", ".join(sorted(env))
            raise PermissionDenied(
                "ENV_NOT_ALLOWED",
                f"Column {column} {had} when the job was given environment variables ({listed}). It now has "
                f"{function}, which does not get them. Finished work is kept; to let this function have them, run the "
                "job again with env",
                column=column,
                env_names=listed,
            )


def check_may_set_env(env: Mapping[str, str], policy: FunctionPolicy) -> None:
    """Check that the caller may give these environment variables to functions.

    Raises:
        PermissionDenied: ENV_NOT_ALLOWED; or ROLE_REQUIRED, if no setting lists allowed variables.
    """
    if env and not policy.env_names:
        check_code("Giving functions environment variables")
    policy.check_env(env)


class EnvNotices:
    """Return a notice about variables that a restart would lose, once for each database and set of names."""

    def __init__(self) -> None:
        self._given: set[tuple[str, tuple[str, ...]]] = set()

    def next(self, database: str, names: Iterable[str]) -> str:
        """Return the notice for a job that begins, or an empty text if an earlier job had the same notice."""
        asked = database, tuple(sorted(names))
        if asked in self._given:
            return ""
        if len(self._given) >= _NOTICES:
            self._given.clear()
        self._given.add(asked)
        return f"{', '.join(asked[1])} kept in memory only: if all services stop, run the job again with env"


def env_lost_error(job_id: str, names: Iterable[str], stored: int) -> JobError:
    """Return the error of a job whose environment variables lost their values.

    Args:
        stored: How many rows of the job are stored.
    """
    listed = ", ".join(names)
    message = (
        f"The executor of this job died, and with it the values of its environment variables ({listed}), which are "
        f"only in memory. Finished work is kept ({stored:,} rows); run it again with env. "
        "LEMAN_EXECUTOR__ENV_FOLDER keeps such values over a restart."
    )
    facts = {"job_id": job_id, "env_names": listed}
    return JobError(kind="FailedPrecondition", reason="ENV_LOST", message=message, facts=facts)


def work_context(
    job: Job,
    header: PlanHeader,
    settings: Settings,
    ignored_holds: tuple[str, ...] = (),
    env: Mapping[str, str] = NO_ENV,
) -> WorkContext:
    """Return the work context of a plan. Limits in the request override those of the function.

    Args:
        env: Environment variables of the job, for functions that run in their own process.

    Raises:
        FailedPrecondition: FUNCTION_ACCESS_DENIED – the credentials of a remote function cannot be read.
    """
    udf, spec = header.udf, job.backfill
    field = arrow_types.values_field(header.output.field.arrow)
    return WorkContext(
        job_id=job.job_id,
        job_key=job.key,
        uri=header.uri,
        read_version=header.read_version,
        output_schema=pa.schema([field]).serialize().to_pybytes(),
        output_field_ids=header.output.field.field_ids,
        column_id=header.output.column_id,
        input_columns=header.input_columns if header.input_source is None else header.input_source.columns,
        input_schema=_schema_of(header.input_types),
        input_source=header.input_source,
        inputs_version=header.inputs_version,
        manifest=header.manifest,
        udf=FunctionSpec(
            name=udf.name,
            version=udf.version,
            kind=udf.kind,
            input_columns=udf.input_columns,
            bundle_uri=header.bundle_uri,
            bundle_sha256=udf.bundle_sha256,
            bundle_python=udf.bundle_python,
            entrypoint=udf.entrypoint,
            stateful=udf.stateful,
            batch_size=udf.batch_size,
            error_policy=udf.error_policy,
            sql_expression=udf.sql_expression,
            timeout_seconds=udf.timeout_seconds,
            remote=_remote(udf, settings),
        ),
        where=header.where,
        checkpoint=spec.checkpoint.over(udf.checkpoint),
        checkpoint_seconds=settings.executor.checkpoint_interval_seconds,
        checkpoint_max_bytes=settings.executor.checkpoint_max_bytes,
        errors_uri=errors_uri(spec.database),
        store_messages=udf.error_policy.store_errors,
        redis_url=(settings.redis.workers_url.get_secret_value() or settings.redis.url.get_secret_value()),
        reservation_ttl=settings.executor.reservation_ttl_seconds,
        threads=spec.intra_applier_concurrency or 1,
        heartbeat_seconds=settings.writer.stall_check_seconds / 2,
        failed_only=header.failed_only,
        versions=header.versions,
        attempt=job.attempt,
        ignored_holds=ignored_holds,
        of_latest=not (spec.read_version or spec.read_tag),
        env=dict(env) if udf.kind in KINDS_WITH_ENV else {},
        stores=options_for(_places(header, spec.database)),
    )


def _schema_of(types: Sequence[pa.DataType]) -> bytes:
    fields = [pa.field("", kind) for kind in types]
    return pa.schema(fields).serialize().to_pybytes() if fields else b""


class RenewedStores:
    """Watch for renewed credentials of the object stores that workers use."""

    def __init__(self, places: tuple[str, ...], given: tuple[StoreOptions, ...]) -> None:
        self._places = places
        self._given = given
        self._renewed = False

    @classmethod
    def of(cls, header: PlanHeader, database: str, given: tuple[StoreOptions, ...]) -> Self:
        """Start with the store options that a plan's workers have now."""
        return cls(_places(header, database), given)

    def now(self) -> tuple[StoreOptions, ...]:
        """Return the current store options."""
        now = options_for(self._places)
        self._renewed = self._renewed or now != self._given
        return now if self._renewed else ()

    def since(self, unit: WorkUnit) -> bool:
        """Return whether the store options have changed since a unit was handed out."""
        for place in self._places:
            were_renewed(place)
        return (self.now() or self._given) != (unit.stores or self._given)


def _places(header: PlanHeader, database: str) -> tuple[str, ...]:
    """Return the locations that workers open: table, checkpoints, inputs, the function's bundle, failed rows."""
    source = "" if header.input_source is None else header.input_source.uri
    return header.uri, checkpoint_root(header.uri), source, header.bundle_uri, errors_uri(database)


def _remote(udf: UdfDefinition, settings: Settings) -> RemoteRef | None:
    """Return how workers call a remote function. Include only the credentials of that function's servers."""
    if udf.remote is None:
        return None
    types = [pa.field(name, type_) for name, type_ in zip(udf.input_columns, udf.input_types, strict=True)]
    return RemoteRef(
        function=udf.remote.function,
        servers=access_to(udf.remote.addresses, settings.udf.remote_credentials),
        input_schema=pa.schema(types).serialize().to_pybytes(),
        patience_seconds=settings.udf.remote_patience_seconds,
        answer_seconds=0.0 if udf.timeout_seconds else settings.udf.remote_answer_seconds,
    )
