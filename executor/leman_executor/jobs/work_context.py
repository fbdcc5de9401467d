"""The work context of a plan: what every worker of the job must know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import pyarrow as pa

from leman_core.functions import blobs
from leman_core.functions.remote.credentials import access_to
from leman_core.model.job import Job
from leman_core.model.plan import PlanHeader
from leman_core.model.store import StoreOptions
from leman_core.model.udf import UdfDefinition
from leman_core.model.work import RemoteRef, UdfRef, WorkContext, WorkUnit
from leman_core.settings import Settings
from leman_core.storage.checkpoints.lance_store import checkpoint_root
from leman_core.storage.object_stores.known import options_for, were_renewed
from leman_executor.jobs.function_env import KINDS_WITH_ENV, NO_ENV
from leman_executor.worker.error_store import errors_uri


def work_context(
    job: Job,
    header: PlanHeader,
    settings: Settings,
    ignored_holds: tuple[str, ...] = (),
    env: Mapping[str, str] = NO_ENV,
) -> WorkContext:
    """Return the work context of a plan; bounds that the request gives win over those of the function.

    Args:
        env: environment variables of the job; only a function that has a process of its own is given them.

    Raises:
        FailedPrecondition: FUNCTION_ACCESS_DENIED, where the credentials of a remote function cannot be read.
    """
    udf, spec = header.udf, job.backfill
    field = blobs.values_field(header.output.field.arrow)
    return WorkContext(
        job_id=job.job_id,
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
        udf=UdfRef(
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
    """How workers are to reach object stores by now; empty: as they were given it, and never otherwise since."""

    def __init__(self, places: tuple[str, ...], given: tuple[StoreOptions, ...]) -> None:
        self._places = places
        self._given = given
        self._renewed = False

    @classmethod
    def of(cls, header: PlanHeader, database: str, given: tuple[StoreOptions, ...]) -> Self:
        """Watch what a plan's workers were given."""
        return cls(_places(header, database), given)

    def now(self) -> tuple[StoreOptions, ...]:
        """Return them."""
        now = options_for(self._places)
        self._renewed = self._renewed or now != self._given
        return now if self._renewed else ()

    def since(self, unit: WorkUnit) -> bool:
        """Look whether they are others by now than those that a unit was given out with."""
        for place in self._places:
            were_renewed(place)
        return (self.now() or self._given) != (unit.stores or self._given)


def _places(header: PlanHeader, database: str) -> tuple[str, ...]:
    """Return what workers open: table, checkpoints, where inputs are, the function's bundle, the failed rows."""
    source = "" if header.input_source is None else header.input_source.uri
    return header.uri, checkpoint_root(header.uri), source, header.bundle_uri, errors_uri(database)


def _remote(udf: UdfDefinition, settings: Settings) -> RemoteRef | None:
    """Return how workers have a remote function called: with the credentials of its servers, and of no others."""
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
