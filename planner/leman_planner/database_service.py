"""DatabaseService: the registry of names of databases."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, TypeAlias

import grpc

from leman.v1 import databases_pb2, databases_pb2_grpc
from leman_core.model.databases import (
    NO_LIMITS,
    DatabaseLimits,
    RegisteredDatabase,
    RegistrationRequest,
    Registrations,
    describe_damage,
)
from leman_core.model.service_errors import CONTROL_CHARACTERS, FailedPrecondition, InvalidArgument, excerpt
from leman_core.server import paging
from leman_core.server.blocking import BlockingPool
from leman_core.server.request_messages import body_digest
from leman_core.storage.database_registry import DatabaseRegistry
from leman_core.storage.locations import is_database_name
from leman_core.storage.object_stores import options_of
from leman_core.storage.stored_jobs import open_jobs_of
from leman_core.storage.table_creation import check_conditional_puts
from leman_core.wire.convert_values import labels_from_proto, number_from_proto, timestamp_to_proto

_MOST_DESCRIPTION_BYTES = 1000
_CHANGEABLE = {"description", "labels", "limits"}
#: How many jobs an error lists.
_JOBS_NAMED = 10

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class DatabaseServicer(databases_pb2_grpc.DatabaseServiceServicer):
    """The RPCs of DatabaseService, as protos/leman/v1/databases.proto describes them.

    Args:
        registry: The registry, or None if none is configured.
    """

    def __init__(self, registry: DatabaseRegistry | None, pool: BlockingPool) -> None:
        self._kept = registry
        self._pool = pool

    @property
    def _registry(self) -> DatabaseRegistry:
        if self._kept is None:
            raise FailedPrecondition(
                "REGISTRY_NOT_SET",
                "No registry of databases is configured. Use the path or URI of a database, or set "
                "LEMAN_SERVER__REGISTRY for all services",
            )
        return self._kept

    async def RegisterDatabase(
        self, request: databases_pb2.RegisterDatabaseRequest, _context: Context
    ) -> databases_pb2.RegisterDatabaseResponse:
        registry, asked = self._registry, RegistrationRequest(request.request_id, body_digest(request))
        database = _database(request.database)
        if options_of(database.root) is not None:  # an object store, which this service may be unable to reach
            await self._pool.run(check_conditional_puts, database.root)
        made = await self._pool.run(registry.register, database, asked)
        return databases_pb2.RegisterDatabaseResponse(database=_message(made))

    async def GetDatabase(
        self, request: databases_pb2.GetDatabaseRequest, _context: Context
    ) -> databases_pb2.GetDatabaseResponse:
        found = await self._pool.run(self._registry.get, request.name)
        return databases_pb2.GetDatabaseResponse(database=_message(found))

    async def ListDatabases(
        self, request: databases_pb2.ListDatabasesRequest, _context: Context
    ) -> databases_pb2.ListDatabasesResponse:
        page = paging.read_page(request.page_size, request.page_token, "ListDatabases")
        found: Registrations = await self._pool.run(self._registry.read)
        databases = [found.by_name[name] for name in sorted(found.by_name)]
        chosen, token = paging.cut(databases, page, lambda database: database.name)
        first = page.after is None
        return databases_pb2.ListDatabasesResponse(
            databases=[_message(database) for database in chosen],
            next_page_token=token,
            warnings=[describe_damage(name) for name in sorted(found.damaged)] if first else [],
        )

    async def UpdateDatabase(
        self, request: databases_pb2.UpdateDatabaseRequest, _context: Context
    ) -> databases_pb2.UpdateDatabaseResponse:
        named = set(request.update_mask.paths)
        if not named or named - _CHANGEABLE:
            raise InvalidArgument(
                "BAD_UPDATE_MASK", "update_mask must name description, labels or limits", field="update_mask"
            )
        name = _required_field(request.database.name, "database.name")
        changes: dict[str, Any] = {}
        if "description" in named:
            changes["description"] = _description(request.database)
        if "labels" in named:
            changes["labels"] = labels_from_proto(request.database.labels, "database.labels")
        if "limits" in named:
            changes["limits"] = _limits(request.database)
        changed = await self._pool.run(self._registry.update, name, lambda before: replace(before, **changes))
        return databases_pb2.UpdateDatabaseResponse(database=_message(changed))

    async def UnregisterDatabase(
        self, request: databases_pb2.UnregisterDatabaseRequest, _context: Context
    ) -> databases_pb2.UnregisterDatabaseResponse:
        name = _required_field(request.name, "name")
        asked = RegistrationRequest(_required_field(request.request_id, "request_id"), body_digest(request))
        await self._pool.run(self._registry.unregister, name, asked, _anyway if request.force else _check_unused)
        return databases_pb2.UnregisterDatabaseResponse()


def _anyway(_database: RegisteredDatabase) -> None:
    """Accept any database."""


def _check_unused(database: RegisteredDatabase) -> None:
    jobs = open_jobs_of(database.root)
    if jobs:
        more = f" and {len(jobs) - _JOBS_NAMED} more" if len(jobs) > _JOBS_NAMED else ""
        raise FailedPrecondition(
            "DATABASE_IN_USE",
            f"Database '{database.name}' has unfinished jobs: {', '.join(jobs[:_JOBS_NAMED])}{more}. Wait for them, "
            "cancel them, or use force",
            name=database.name,
            jobs=",".join(jobs[:_JOBS_NAMED]),
        )


def _database(message: databases_pb2.Database) -> RegisteredDatabase:
    name = _required_field(message.name, "database.name")
    if not is_database_name(name):
        raise InvalidArgument(
            "BAD_DATABASE_NAME",
            f"'{excerpt(name[:100])}' is not a valid name of a database. Use 1 to 63 letters, digits, '-' and '_', "
            "beginning with a letter or a digit",
            field="database.name",
        )
    now = time.time()
    return RegisteredDatabase(
        name=name,
        root=_required_field(message.root, "database.root"),
        description=_description(message),
        labels=labels_from_proto(message.labels, "database.labels"),
        limits=_limits(message),
        created_at=now,
        updated_at=now,
    )


def _description(message: databases_pb2.Database) -> str:
    size = len(message.description.encode())
    if size > _MOST_DESCRIPTION_BYTES:
        raise InvalidArgument(
            "BAD_TEXT",
            f"The description has {size} bytes; at most {_MOST_DESCRIPTION_BYTES} are allowed",
            field="database.description",
        )
    found = CONTROL_CHARACTERS.search(message.description.replace("\n", "").replace("\t", ""))
    if found:
        raise InvalidArgument(
            "BAD_TEXT",
            f"The description contains the control character {found[0]!a}: remove it",
            field="database.description",
        )
    return message.description


def _limits(message: databases_pb2.Database) -> DatabaseLimits:
    return DatabaseLimits(
        max_running_jobs=number_from_proto(message.limits, "max_running_jobs", default=None),
        max_waiting_jobs=number_from_proto(message.limits, "max_waiting_jobs", least=0, default=None),
    )


def _required_field(text: str, field: str) -> str:
    if not text:
        raise InvalidArgument("MISSING_FIELD", f"{field} is empty: set it", field=field)
    return text


def _message(database: RegisteredDatabase) -> databases_pb2.Database:
    return databases_pb2.Database(
        name=database.name,
        root=database.root,
        description=database.description,
        labels=dict(database.labels),
        limits=_limits_message(database.limits),
        create_time=timestamp_to_proto(database.created_at),
        update_time=timestamp_to_proto(database.updated_at),
    )


def _limits_message(limits: DatabaseLimits) -> databases_pb2.DatabaseLimits | None:
    if limits == NO_LIMITS:
        return None
    return databases_pb2.DatabaseLimits(
        max_running_jobs=limits.max_running_jobs, max_waiting_jobs=limits.max_waiting_jobs
    )
