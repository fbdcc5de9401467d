"""Databases that have names, as the services keep them."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from leman._channel import Services
from leman._job_attributes import check_labels
from leman._names import check_name, far_uri
from leman._paging import pages
from leman._request_id import id_of
from leman._tracebacks import boundary, warn
from leman._view_wire import count
from leman._wire_values import given, time
from leman.errors import InvalidArgument
from leman.v1 import databases_pb2


@dataclass(frozen=True, slots=True)
class DatabaseLimits:
    """How many jobs of a database an executor runs at once, and how many may wait for their turn. None: as its settings
    say."""

    max_running_jobs: int | None = None
    max_waiting_jobs: int | None = None


@dataclass(frozen=True, slots=True)
class DatabaseInfo:
    """A registered database. `root`: the path or uri that its name stands for."""

    name: str
    root: str
    description: str
    labels: dict[str, str]
    limits: DatabaseLimits
    created_at: datetime.datetime
    updated_at: datetime.datetime


class Databases:
    """The registered databases of running services; made by `leman.databases`. Closes its connections at the end of a
    `with` block, or by `close()`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._services.close()

    @boundary
    def all(self) -> list[DatabaseInfo]:
        """All of them, by name. A UserWarning tells of a damaged registration, which is left out."""
        found = []
        for page in pages(
            lambda token, size: self._services.databases.ListDatabases(
                databases_pb2.ListDatabasesRequest(page_size=size, page_token=token)
            )
        ):
            found += [_info(item) for item in page.databases]
            for text in page.warnings:
                warn(text)
        return found

    @boundary
    def get(self, name: str) -> DatabaseInfo:
        """One of them. Raises NotFound (DATABASE_NOT_REGISTERED), FailedPrecondition (REGISTRY_NOT_SET)."""
        return find(self._services, name)

    @boundary
    def register(
        self,
        name: str,
        root: str | os.PathLike[str],
        *,
        description: str = "",
        labels: Mapping[str, str] | None = None,
        limits: DatabaseLimits | None = None,
        request_id: str | None = None,
    ) -> DatabaseInfo:
        """Give a database a name: 1 to 63 letters, digits, `-` and `_`. `root`: its uri or absolute path, as the
        services reach it; it need not be there yet. `request_id`: as for `Table.add`.

        Raises AlreadyExists (DATABASE_EXISTS), InvalidArgument, PermissionDenied, and FailedPrecondition whose `reason`
        is REGISTRY_NOT_SET.
        """
        wanted = databases_pb2.Database(
            name=check_name(name, "database"),
            root=far_uri(root),
            description=description,
            labels=check_labels(labels),
            limits=None if limits is None else _limits_message(limits),
        )
        request = databases_pb2.RegisterDatabaseRequest(database=wanted, request_id=id_of(request_id))
        return _info(self._services.databases.RegisterDatabase(request).database)

    @boundary
    def update(
        self,
        name: str,
        *,
        description: str | None = None,
        labels: Mapping[str, str] | None = None,
        limits: DatabaseLimits | None = None,
    ) -> DatabaseInfo:
        """Change what is said of a database; what is None stays. `labels`, `limits`: all that it is to have.

        Raises NotFound (DATABASE_NOT_REGISTERED), InvalidArgument.
        """
        if description is None and labels is None and limits is None:
            raise InvalidArgument("give description=, labels= or limits=")
        request = databases_pb2.UpdateDatabaseRequest()
        request.database.name = check_name(name, "database")
        if description is not None:
            request.database.description = description
            request.update_mask.paths.append("description")
        if labels is not None:
            request.database.labels.update(check_labels(labels))
            request.update_mask.paths.append("labels")
        if limits is not None:
            request.database.limits.CopyFrom(_limits_message(limits))
            request.update_mask.paths.append("limits")
        return _info(self._services.databases.UpdateDatabase(request).database)

    @boundary
    def unregister(self, name: str, *, force: bool = False, request_id: str | None = None) -> None:
        """Take the name from a database. All that is in it stays. `force`: although jobs of it have not ended.
        `request_id`: as for `Table.add`.

        Raises NotFound (DATABASE_NOT_REGISTERED), FailedPrecondition (DATABASE_IN_USE).
        """
        request = databases_pb2.UnregisterDatabaseRequest(
            name=check_name(name, "database"), force=force, request_id=id_of(request_id)
        )
        self._services.databases.UnregisterDatabase(request)


def find(services: Services, name: str) -> DatabaseInfo:
    """A registered database. Raises NotFound, FailedPrecondition, InvalidArgument."""
    request = databases_pb2.GetDatabaseRequest(name=check_name(name, "database"))
    return _info(services.databases.GetDatabase(request).database)


def _info(message: databases_pb2.Database) -> DatabaseInfo:
    return DatabaseInfo(
        message.name,
        message.root,
        message.description,
        dict(message.labels),
        DatabaseLimits(given(message.limits, "max_running_jobs"), given(message.limits, "max_waiting_jobs")),
        time(message.create_time),
        time(message.update_time),
    )


def _limits_message(limits: DatabaseLimits) -> databases_pb2.DatabaseLimits:
    """Limits on the wire. Raises InvalidArgument."""
    return databases_pb2.DatabaseLimits(
        max_running_jobs=count("max_running_jobs", limits.max_running_jobs, bits=31),
        max_waiting_jobs=count("max_waiting_jobs", limits.max_waiting_jobs, least=0, bits=31),
    )
