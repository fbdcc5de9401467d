"""Connections to databases, and how these are called."""

from __future__ import annotations

import os
import re
import urllib.parse

from leman import local
from leman._channel import Remote, Services
from leman._database import Database
from leman._embedded import Embedded
from leman._tracebacks import boundary
from leman.errors import InvalidArgument

_FILE_URI = re.compile("file:(//(localhost)?)?(?=/(?!/))", re.IGNORECASE)


@boundary
def connect(
    path_or_uri: str | os.PathLike[str],
    endpoint: str | None = None,
    *,
    token: str | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    direct: bool | None = None,
) -> Database:
    """Open a database, which is created with its first table.

    Without `endpoint` it is a local folder, and its own services run on this machine: they are found, or
    started and waited for (about ten seconds); they outlive this process and end by themselves when idle.
    With `endpoint` (`host:port` of any one service) they run elsewhere; the path or uri is then one that
    they can reach. That address is enough: a service answers for the others, and these are called themselves where they
    answer from here. `token`: what they ask for. `tls_ca`: PEM file with the certificates to check theirs
    with; without it there is no TLS. `tls_cert`, `tls_key`: PEM files of a certificate that says who calls, where the
    services take one.

    `direct`: whether this process reads and writes rows itself, as `to_arrow`, `create_table` and `add` do where
    pylance is installed (None); where it is not, or with False, rows go through the services, and nothing but these
    need reach the storage.

    Raises InvalidArgument, StartFailed, Unavailable, Unauthenticated, MissingDependency.
    """
    uri = database_uri(path_or_uri)
    by_itself = local.is_available() if direct is None else direct
    if direct:
        local.require()
    if endpoint is None:
        if "://" in uri:
            raise InvalidArgument(f"{uri} is not a local folder: give endpoint='host:port' of running services")
        if any(given is not None for given in (token, tls_ca, tls_cert, tls_key)):
            raise InvalidArgument("token and tls_… are for endpoint=: local services need none of them")
        make_folder(uri)
        embedded = Embedded(uri)
        embedded.locate_answering()
        return Database(uri, Services(embedded, direct=by_itself))
    remote = Remote(endpoint, token or "", tls_ca or "", tls_cert or "", tls_key or "")
    services = Services(remote, direct=by_itself)
    services.look_again()
    return Database(uri, services)


def database_uri(path_or_uri: str | os.PathLike[str]) -> str:
    """How a database is called on the wire: a local path absolute and without links, a uri as it is.

    The services bring every spelling into one form (their `core.locations`); what only this process knows, its folder
    and its home, is resolved here. Raises InvalidArgument.
    """
    given: object = path_or_uri
    text = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidArgument(f"a database needs a path or uri, not {given!r}")
    if _FILE_URI.match(text):
        text = urllib.parse.unquote(_FILE_URI.sub("", text))
    if "://" in text:
        return text.rstrip("/")
    path = os.path.realpath(os.path.expanduser(text))  # noqa: PTH111 - a database is called by a str
    if "_leman" in path.split("/"):
        raise InvalidArgument(f"{path} lies in a folder _leman, which Leman keeps for itself: name the database above")
    return path


def make_folder(path: str) -> None:
    """The folder of a local database. Raises InvalidArgument where there can be none."""
    try:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103 - a database is called by a str, as on the wire
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be a database: {error.strerror}") from None
