"""Connections to databases: `connect`, the registry of named databases, and `session`."""

from __future__ import annotations

import contextlib
import datetime
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from leman import _locations, local
from leman._call_boundary import boundary
from leman._database import Database
from leman._jobs import check_labels, pages
from leman._local import running_systems
from leman._local.embedded_services import Embedded
from leman._local.running_systems import ServiceFile, child_processes
from leman._locations import check_name, database_uri, far_uri
from leman._wire.channel import Remote, Services
from leman._wire.conversions import count
from leman._wire.credentials import Token, parse_addresses
from leman._wire.wire_values import checked_request_id, or_none, time
from leman.errors import InvalidArgument
from leman.v1 import databases_pb2


@dataclass(frozen=True, slots=True)
class DatabaseLimits:
    """How many jobs of a database an executor runs concurrently, and how many may wait.

    With None, the executor's settings apply.
    """

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
    """The registered databases of running services, made by `leman.databases`.

    The end of a `with` block, or `close()`, closes its connections.
    """

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
        """Return all databases, by name. Damaged registrations are left out with a warning."""
        found = pages(self._services.databases.ListDatabases, databases_pb2.ListDatabasesRequest())
        return [_info(item) for page in found for item in page.databases]

    @boundary
    def get(self, name: str) -> DatabaseInfo:
        """Return a registered database.

        Raises NotFound (DATABASE_NOT_REGISTERED), FailedPrecondition (REGISTRY_NOT_SET).
        """
        return find_database(self._services, name)

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
        """Give a database a name of 1 to 63 letters, digits, `-` and `_`.

        `root`: its uri or absolute path, as the services reach it; the database need not exist yet. `request_id`: as
        for `Table.add`.

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
        request = databases_pb2.RegisterDatabaseRequest(database=wanted, request_id=checked_request_id(request_id))
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
        """Change the description, the labels or the limits of a database. An argument that is None changes nothing.

        `labels` and `limits` replace all earlier ones. Raises NotFound (DATABASE_NOT_REGISTERED), InvalidArgument.
        """
        if description is None and labels is None and limits is None:
            raise InvalidArgument("nothing would change: give description=, labels= or limits=")
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
        """Remove the name of a database. The database itself, with all its data, stays.

        `force`: remove the name even if jobs of the database have not ended. `request_id`: as for `Table.add`. Raises
        NotFound (DATABASE_NOT_REGISTERED), FailedPrecondition (DATABASE_IN_USE).
        """
        request = databases_pb2.UnregisterDatabaseRequest(
            name=check_name(name, "database"), force=force, request_id=checked_request_id(request_id)
        )
        self._services.databases.UnregisterDatabase(request)


def find_database(services: Services, name: str) -> DatabaseInfo:
    """Return a registered database. Raises NotFound, FailedPrecondition, InvalidArgument."""
    request = databases_pb2.GetDatabaseRequest(name=check_name(name, "database"))
    return _info(services.databases.GetDatabase(request).database)


def _info(message: databases_pb2.Database) -> DatabaseInfo:
    return DatabaseInfo(
        message.name,
        message.root,
        message.description,
        dict(message.labels),
        DatabaseLimits(or_none(message.limits, "max_running_jobs"), or_none(message.limits, "max_waiting_jobs")),
        time(message.create_time),
        time(message.update_time),
    )


def _limits_message(limits: DatabaseLimits) -> databases_pb2.DatabaseLimits:
    return databases_pb2.DatabaseLimits(
        max_running_jobs=count("max_running_jobs", limits.max_running_jobs, bits=31),
        max_waiting_jobs=count("max_waiting_jobs", limits.max_waiting_jobs, least=0, bits=31),
    )


@boundary
def connect(  # noqa: PLR0913 - each is an option of its own
    path_or_uri: str | os.PathLike[str],
    endpoint: str | Sequence[str] | None = None,
    *,
    token: str | Callable[[], str] | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    plaintext: bool = False,
    direct: bool | None = None,
    database: str | None = None,
) -> Database:
    """Open a database. Its first table creates it.

    Without `endpoint`, the database is a local folder, and its services run on this machine. The first call that needs
    the services uses running ones, or starts them and waits some seconds. They outlive this process and end when they
    are idle. If pylance is installed, some calls start no services: `table_names`, `views`, `jobs`, `udfs`,
    `get_errors`, opening and describing a table or view, and reading rows. If the database does not exist, a call that
    only reads starts and creates nothing: it raises NotFound whose `reason` is DATABASE_NOT_FOUND; `table_names`
    returns an empty list.

    `endpoint`: the address of any one service that runs elsewhere, `host:port`, or `dns:///host:port` as in gRPC. The
    path or uri must then be absolute, and one that the services can reach. One address is enough: a service forwards
    calls to the others, which are called directly if they can be reached from here. Several addresses, such as those of
    two executors, are a sequence, or a str with commas. One is used as long as it answers, then another one, which
    continues the jobs of the first. `token`: the token for the services, or a function that returns it. The function is
    called again whenever its token is refused, so that tokens can expire. `tls_ca`: PEM file with the CA certificates
    that the services' certificates are checked with; without it there is no TLS. `tls_cert`, `tls_key`: PEM files of a
    client certificate, for services that accept one. `plaintext`: allow sending the token to other machines without
    TLS, on a network that is protected in another way. Otherwise that raises InvalidArgument whose `reason` is
    PLAINTEXT_TOKEN.

    `leman.connect("host:port", database="name")` opens a database that is registered with these services, see
    `leman.databases`. The first argument is then the endpoint.

    `direct`: True if this process reads and writes rows itself, with pylance; False if rows go through the services,
    so that only these need to reach the storage; None: True if pylance is installed.

    Raises InvalidArgument, StartFailed, Unavailable, Unauthenticated, MissingDependency, and NotFound whose `reason` is
    DATABASE_NOT_REGISTERED.
    """
    if database is not None:
        if endpoint is not None:
            raise InvalidArgument("with database=, the first argument is the endpoint: leave out endpoint=")
        endpoint, uri = os.fspath(path_or_uri), ""
    elif endpoint is None:
        uri = database_uri(path_or_uri)
    else:
        named = ",".join(parse_addresses(endpoint))
        uri = far_uri(path_or_uri, f"leman.connect({named!r}, database='…')")
    by_itself = local.is_available() if direct is None else direct
    if direct:
        local.require()
    if endpoint is None:
        if "://" in uri:
            raise InvalidArgument(f"{uri} is not a local folder: give endpoint='host:port' of running services")
        if plaintext or any(given is not None for given in (token, tls_ca, tls_cert, tls_key)):
            raise InvalidArgument("token, tls_… and plaintext need endpoint=: leave them out for local services")
        _locations.check_database_possible(uri)
        return Database(uri, Services(Embedded(uri, direct=by_itself), direct=by_itself))
    services = _remote(endpoint, token, tls_ca, tls_cert, tls_key, plaintext=plaintext, direct=by_itself)
    return Database(uri if database is None else find_database(services, database).root, services)


@boundary
def databases(
    endpoint: str | Sequence[str],
    *,
    token: str | Callable[[], str] | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    plaintext: bool = False,
) -> Databases:
    """Open the registry of running services. Parameters as for `connect`.

    Raises InvalidArgument, Unavailable, Unauthenticated.
    """
    return Databases(_remote(endpoint, token, tls_ca, tls_cert, tls_key, plaintext=plaintext, direct=False))


def _remote(
    endpoint: str | Sequence[str],
    token: str | Callable[[], str] | None,
    tls_ca: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    *,
    plaintext: bool,
    direct: bool,
) -> Services:
    remote = Remote(endpoint, Token(token), tls_ca or "", tls_cert or "", tls_key or "", plaintext=plaintext)
    services = Services(remote, direct=direct)
    services.begin()
    return services


_PREFIX = "leman-session-"
#: A file in a session's folder that its program locks until it ends or crashes.
_LOCK = "program"


class Session:
    """Made by `leman.session`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._opened: list[Database] = []

    @boundary
    def connect(self, path: str | os.PathLike[str], *, direct: bool | None = None) -> Database:
        """Open a local database, served by this session's services, until the session ends.

        Parameters as for `leman.connect`. Raises InvalidArgument, and StartFailed if other services serve the database.
        """
        uri = database_uri(path)
        if "://" in uri:
            raise InvalidArgument(f"{uri} is not a local folder: leman.connect() takes endpoint='host:port'")
        _locations.check_database_possible(uri)
        by_itself = local.is_available() if direct is None else direct
        services = Services(Embedded(uri, home=self._home, lifeline=True, direct=by_itself), direct=by_itself)
        self._opened.append(Database(uri, services))
        return self._opened[-1]

    def _close(self) -> None:
        for database in self._opened:
            database.close()
        said = ServiceFile(self._home).running()
        if said is not None:
            running_systems.System(self._home, said).down()
        for child in list(child_processes.values()):
            if child.stdin is not None and str(self._home) in str(child.args):
                child.stdin.close()  # a supervisor that is still starting ends when its input does
                child.wait()
                del child_processes[child.pid]


@contextlib.contextmanager
def session() -> Iterator[Session]:
    """Run services of its own for this block, independent of all others on this machine.

        with leman.session() as session:
            db = session.connect(tmp_path)

    The services start with the first call that needs them. They end within three seconds at the end of the block, and
    also if this process is killed. They leave only the databases behind; if a program was killed, the next session
    removes its folder. In tests, use it as a fixture of the whole run:

        @pytest.fixture(scope="session")
        def leman_session():
            with leman.session() as session:
                yield session
    """
    folder = Path(tempfile.gettempdir()).resolve()
    _sweep(folder)
    home, lock = _own_folder(folder)
    made = Session(home)
    try:
        yield made
    finally:
        made._close()
        shutil.rmtree(home, ignore_errors=True)
        os.close(lock)


def _own_folder(folder: Path) -> tuple[Path, int]:
    """Create a session's folder. Return the folder, and a file in it that stays locked until it is closed."""
    while True:
        home = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
        lock = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        _take(lock)
        if (home / _LOCK).exists():  # otherwise another program has removed the folder
            return home, lock
        os.close(lock)


def _sweep(folder: Path) -> None:
    """Remove the folders of sessions whose programs and services have ended."""
    for home in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(home / _LOCK, os.O_RDWR)
            try:
                if _take(lock, wait=False) and not ServiceFile(home).is_held():
                    shutil.rmtree(home, ignore_errors=True)
            finally:
                os.close(lock)


def _take(lock: int, *, wait: bool = True) -> bool:
    """Lock an open file, and return whether it is locked. Raises BlockingIOError if another program has locked it."""
    try:
        import fcntl  # noqa: PLC0415 - not on Windows
    except ImportError:
        return False
    fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True
