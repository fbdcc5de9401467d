"""Connections to databases, and how these are called."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from leman import _local_database, local
from leman._addresses import addresses
from leman._channel import Services
from leman._contact import Remote
from leman._database import Database
from leman._databases import Databases, find
from leman._embedded import Embedded
from leman._names import database_uri, far_uri
from leman._token import Token
from leman._tracebacks import boundary
from leman.errors import InvalidArgument


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
    """Open a database, which is created with its first table.

    Without `endpoint` it is a local folder, and its own services run on this machine. They are found, or started and
    waited for (some seconds), by the first call that needs them; they outlive this process and end by themselves when
    idle. Nothing is started for `table_names`, `views`, `jobs`, `udfs` and `get_errors`, for opening and describing a
    table or view, or for reading rows where pylance is installed. Nothing is started or made for a call that only
    reads where there is no database: it raises NotFound whose `reason` is DATABASE_NOT_FOUND, and `table_names` gives
    none.
    With `endpoint` (`host:port` of any one service, or `dns:///host:port` as gRPC has it) they run elsewhere; the path
    or uri is then one that they can reach, and no relative path. That address is enough: a service answers for the
    others, and these are called themselves where they answer from here. Several of them, such as those of two
    executors, are a sequence, or a str with commas: one is called while it answers, then another one, which goes on
    with the jobs that the first had.
    `token`: what they ask for, or a function that gives it: called once, and again whenever its token is refused, so
    that one that expires is renewed.
    `tls_ca`: PEM file with the certificates to check theirs with; without it there is no TLS. `tls_cert`, `tls_key`:
    PEM files of a certificate that says who calls, where the services take one. Without TLS a token goes to this
    machine alone, unless `plaintext`: for networks that are protected otherwise; the error's `reason` is
    PLAINTEXT_TOKEN else.

    `leman.connect("host:port", database="name")` opens a database that is registered with these services (see
    `leman.databases`): the first argument is the endpoint then.

    `direct`: whether this process reads and writes rows itself, as `to_arrow`, `create_table` and `add` do where
    pylance is installed (None); where it is not, or with False, rows go through the services, and nothing but these
    need reach the storage.

    Raises InvalidArgument, StartFailed, Unavailable, Unauthenticated, MissingDependency, and NotFound whose `reason` is
    DATABASE_NOT_REGISTERED.
    """
    if database is not None:
        if endpoint is not None:
            raise InvalidArgument("with database= the first argument is the endpoint: leave endpoint= out")
        endpoint, uri = os.fspath(path_or_uri), ""
    elif endpoint is None:
        uri = database_uri(path_or_uri)
    else:
        named = ",".join(addresses(endpoint))
        uri = far_uri(path_or_uri, f"leman.connect({named!r}, database='…')")
    by_itself = local.is_available() if direct is None else direct
    if direct:
        local.require()
    if endpoint is None:
        if "://" in uri:
            raise InvalidArgument(f"{uri} is not a local folder: give endpoint='host:port' of running services")
        if plaintext or any(given is not None for given in (token, tls_ca, tls_cert, tls_key)):
            raise InvalidArgument("token, tls_… and plaintext are for endpoint=: local services need none of them")
        _local_database.check_possible(uri)
        return Database(uri, Services(Embedded(uri, direct=by_itself), direct=by_itself))
    services = _remote(endpoint, token, tls_ca, tls_cert, tls_key, plaintext=plaintext, direct=by_itself)
    return Database(uri if database is None else find(services, database).root, services)


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
    """The registered databases of running services. Parameters as for `connect`.

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
