"""The registrations of named databases: sealed documents in one table, `databases.lance` (`DocumentTable`).

database.<name>   the registration
root.<digest>     the name of the database with that root, so that two names for one root conflict in one key
unregistered      the last requests that took a name away
"""

from __future__ import annotations

import dataclasses
import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from leman._format import stored_documents
from leman_core.model import keys
from leman_core.model.databases import DatabaseLimits, RegisteredDatabase, RegistrationRequest, Registrations
from leman_core.model.service_errors import (
    Aborted,
    AlreadyExists,
    ResourceExhausted,
    UnknownFormat,
    check_format,
    reused_request_id,
)
from leman_core.storage.documents import DocumentTable

TABLE = "databases.lance"
#: The limit of registrations: all of them are read at once.
MOST_DATABASES = 1000
MOST_REMOVALS = 16
#: Attempts of a write among concurrent writers.
_TRIES = 10
_DATABASE, _ROOT, _REMOVALS = "database.", "root.", "unregistered"


class DatabaseRegistry:
    """The registrations in a folder, or under a prefix of an object store.

    Any number of processes may write, and no write is lost. If the storage cannot be used, calls raise what
    `table_error` gives.

    Args:
        place: The folder in its canonical form.
    """

    def __init__(self, place: str) -> None:
        self._uri = f"{place.rstrip('/')}/{TABLE}"
        self._table = DocumentTable(self._uri, f"The registry {self._uri}")

    def read(self) -> Registrations:
        """Return all registrations; none if there is no registry yet."""
        return _registrations(self._table.read().values)

    def get(self, name: str) -> RegisteredDatabase:
        """Return a registration.

        Raises:
            NotFound: DATABASE_NOT_REGISTERED.
            DataLoss: REGISTRATION_DAMAGED.
        """
        return self.read().get(name)

    def register(self, wanted: RegisteredDatabase, request: RegistrationRequest) -> RegisteredDatabase:
        """Register a database. A repeated request returns its registration.

        Raises:
            AlreadyExists: DATABASE_EXISTS, REQUEST_ID_REUSED.
            ResourceExhausted: TOO_MANY_DATABASES.
            Aborted: CONFLICT.
        """
        for _ in range(_TRIES):
            state = self._table.read()
            registrations = _registrations(state.values)
            known = registrations.by_name.get(wanted.name)
            if known is not None:
                made_by = _request_of(state.values[_DATABASE + wanted.name])
                if not request.request_id or made_by.request_id != request.request_id:
                    raise _exists(known.name, known.root)
                if made_by != request:
                    raise reused_request_id(request.request_id)
                return known
            _check_room(registrations, wanted)
            document = _sealed(wanted, request)
            if self._table.write(state, {_DATABASE + wanted.name: document, _root_key(wanted.root): wanted.name}):
                return wanted
        raise self._conflict()

    def update(self, name: str, change: Callable[[RegisteredDatabase], RegisteredDatabase]) -> RegisteredDatabase:
        """Change a registration on top of concurrent changes.

        Raises:
            NotFound: DATABASE_NOT_REGISTERED.
            DataLoss: REGISTRATION_DAMAGED.
            Aborted: CONFLICT.
        """
        for _ in range(_TRIES):
            state = self._table.read()
            after = replace(change(_registrations(state.values).get(name)), updated_at=time.time())
            made_by = _request_of(state.values[_DATABASE + name])
            if self._table.write(state, {_DATABASE + name: _sealed(after, made_by)}):
                return after
        raise self._conflict()

    def unregister(self, name: str, request: RegistrationRequest, check: Callable[[RegisteredDatabase], None]) -> None:
        """Take the name from a database. A repeated request changes nothing.

        Args:
            name: The name.
            request: The request.
            check: Raises if the database may not lose its name. It is not called for a damaged registration.

        Raises:
            NotFound: DATABASE_NOT_REGISTERED.
            AlreadyExists: REQUEST_ID_REUSED.
            Aborted: CONFLICT.
            Exception: What `check` raises.
        """
        for _ in range(_TRIES):
            state = self._table.read()
            removals = _removals(state.values)
            if request.request_id in removals:
                if removals[request.request_id] != request.body:
                    raise reused_request_id(request.request_id)
                return
            values: dict[str, str | None] = {_DATABASE + name: None}
            registrations = _registrations(state.values)
            if name not in registrations.damaged:
                database = registrations.get(name)
                check(database)
                values[_root_key(database.root)] = None
            noted = {request.request_id: request.body, **removals}
            values[_REMOVALS] = json.dumps([[by, known] for known, by in noted.items()][:MOST_REMOVALS])
            if self._table.write(state, values):
                return
        raise self._conflict()

    def _conflict(self) -> Aborted:
        return Aborted("CONFLICT", f"Other writers kept changing the registry {self._uri} at the same time: try again")


def _check_room(registrations: Registrations, wanted: RegisteredDatabase) -> None:
    owner = registrations.name_of(wanted.root)
    if owner:
        raise _exists(owner, wanted.root)
    if len(registrations.by_name) >= MOST_DATABASES:
        raise ResourceExhausted(
            "TOO_MANY_DATABASES", f"{MOST_DATABASES} databases are registered, which is the limit: unregister one"
        )


def _exists(name: str, root: str) -> AlreadyExists:
    return AlreadyExists(
        "DATABASE_EXISTS",
        f"'{name}' is registered, with the root {root}: a name has one root, and a root one name",
        name=name,
    )


def _root_key(root: str) -> str:
    return _ROOT + keys.md5(root)


def _sealed(database: RegisteredDatabase, request: RegistrationRequest) -> str:
    document = {
        "format": stored_documents.REGISTRATION.current,
        "name": database.name,
        "root": database.root,
        "description": database.description,
        "labels": dict(database.labels),
        "limits": {name: n for name, n in dataclasses.asdict(database.limits).items() if n is not None},
        "created_at": database.created_at,
        "updated_at": database.updated_at,
        "request": [request.request_id, request.body],
        "written": uuid.uuid4().hex,  # makes this write distinct from others of the same content
    }
    return stored_documents.seal(document).decode()


def _registrations(config: Mapping[str, str]) -> Registrations:
    found: dict[str, RegisteredDatabase] = {}
    damaged: set[str] = set()
    unknown: dict[str, UnknownFormat] = {}
    for key in sorted(config):
        if not key.startswith(_DATABASE):
            continue
        name = key.removeprefix(_DATABASE)
        try:
            found[name] = _read(name, config[key])
        except (ValueError, KeyError, TypeError, AttributeError):
            damaged.add(name)
        except UnknownFormat as error:
            unknown[name] = error
    return Registrations(by_name=found, damaged=frozenset(damaged), unknown=unknown)


def _read(name: str, text: str) -> RegisteredDatabase:
    document = stored_documents.unseal(text.encode())
    check_format(stored_documents.REGISTRATION, document.get("format"), f"The registration of database '{name}'")
    if document["name"] != name:
        raise ValueError("it is that of another database")
    return RegisteredDatabase(
        name=name,
        root=str(document["root"]),
        description=str(document["description"]),
        labels={str(key): str(value) for key, value in document["labels"].items()},
        limits=DatabaseLimits(**{str(limit): int(n) for limit, n in document["limits"].items()}),
        created_at=float(document["created_at"]),
        updated_at=float(document["updated_at"]),
    )


def _request_of(text: str) -> RegistrationRequest:
    request_id, body = stored_documents.unseal(text.encode())["request"]
    return RegistrationRequest(request_id, body)


def _removals(config: Mapping[str, str]) -> dict[str, str]:
    """Return the last requests that removed a name: id → body. Unreadable ones are forgotten."""
    try:
        stored: Any = json.loads(config.get(_REMOVALS, "[]"))
        return {str(request_id): str(body) for body, request_id in stored}
    except (ValueError, TypeError):
        return {}
