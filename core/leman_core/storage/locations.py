"""The places of databases and tables, in one canonical form. Standard library only: nothing here reads a table.

Everything that is remembered by place (workers, reservations, job histories, request ids) uses this form, so `/x`,
`/x/`, `/x/../x`, a link to it and `file:///x` are one database. Leman's own folder in a database is no database, and
its content no tables.
"""

from __future__ import annotations

import os
import re
import urllib.parse

from leman_core.model.service_errors import CONTROL_CHARACTERS, FailedPrecondition, InvalidArgument, excerpt

OWN_FOLDER = "_leman"
"""Folder of a database that holds what Leman keeps there: functions, job history, locks."""
MOVED_PREFIX = "moved-"
"""Begins the name of a folder in `OWN_FOLDER` that was a table: the name of a table that is dropped leads there."""
TABLE_ENDING = ".lance"

_MOST_BYTES = 3_500
_MOST_PART_BYTES = 255
_MOST_NAME_BYTES = 249
"""With the ending it is the name of a folder."""
#: Schemes that both Lance and pyarrow understand: Azure, Google Cloud Storage, and S3-compatible stores.
STORES = ("abfss", "gs", "s3")
#: Other schemes that one of the two understands, or that are known from elsewhere → the uri to write instead.
_AZURE = "abfss://container@account.dfs.core.windows.net/path"
_MEANT = {
    **dict.fromkeys(("abfs", "adl", "az", "azure", "wasb", "wasbs"), _AZURE),
    "gcs": "gs://bucket/path",
    **dict.fromkeys(("s3a", "s3n"), "s3://bucket/path"),
}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
#: Parts of a uri that only Lance cuts off or decodes: two databases would become one.
_CUT_BY_LANCE = re.compile(r"[#?]|%[0-9A-Fa-f]{2}")


def is_database_name(text: str) -> bool:
    """Return whether a text can be the name of a registered database, and so no absolute path or uri."""
    return _NAME.fullmatch(text) is not None


def in_object_store(uri: str) -> bool:
    """Return whether a canonical place is in an object store; one on a disk is a plain path."""
    return "://" in uri


def store_of(place: str) -> str:
    """Return the store of a canonical place, such as `gs://bucket`; empty: it is on this machine."""
    return "/".join(place.split("/", 3)[:3]) if in_object_store(place) else ""


def leads_elsewhere(text: str, place: str) -> bool:
    """Return whether a canonical place was reached by a name or a link, and not just another spelling."""
    if text == place or is_database_name(text):
        return text != place
    return not in_object_store(place) and os.path.normpath(f"/{_path_of(text).lstrip('/')}") != place


def canonical_database(text: str, field: str = "database") -> str:
    """Return the canonical path or uri of a database: a local path is absolute, without links or a trailing `/`.

    Args:
        text: The path or uri.
        field: The request's field, for the error.

    Raises:
        InvalidArgument: BAD_DATABASE: empty, relative, a file or below one, or not a uri of a store.
            RESERVED_DATABASE: inside Leman's own folder, or a table's.
        FailedPrecondition: STORAGE_DENIED: the service may not read a link in it.
    """
    place = resolved_database(text, field)
    check_folder(place, text, field)
    return place


def resolved_database(text: str, field: str = "database") -> str:
    """Return what `canonical_database` does, without a check that the place can be a folder.

    Raises:
        InvalidArgument: As `canonical_database`.
        FailedPrecondition: STORAGE_DENIED.
    """
    try:
        place = _canonical(text)
    except InvalidArgument as error:
        raise InvalidArgument(error.reason, error.message, field=field) from None
    parts = place.split("/")
    if any(part.endswith(TABLE_ENDING) for part in parts):
        raise InvalidArgument(
            "RESERVED_DATABASE",
            f"'{excerpt(text)}' lies in the folder of a table (*{TABLE_ENDING}): name the database above it",
            field=field,
        )
    if OWN_FOLDER in parts:
        raise InvalidArgument(
            "RESERVED_DATABASE",
            f"'{excerpt(text)}' lies in a folder {OWN_FOLDER}, which Leman keeps for itself: name the database above "
            "it",
            field=field,
        )
    return place


def check_folder(place: str, text: str, field: str = "database") -> None:
    """Refuse a resolved place that is a file, lies below one, or can never exist: Lance would try for seconds.

    Args:
        place: What `resolved_database` returned for the text. Errors do not show it, because links may lead to it.
        text: The text.
        field: The request's field, for the error.

    Raises:
        InvalidArgument: BAD_DATABASE.
    """
    if in_object_store(place) or os.path.isdir(place):  # noqa: PTH112 - for every call: a Path would cost more
        return
    shown = excerpt(text)
    if any(len(part) > _MOST_PART_BYTES for part in os.fsencode(place).split(b"/")):
        raise _bad(f"a part of '{shown}' is longer than {_MOST_PART_BYTES} bytes, as no folder's name is", field)
    while not os.path.lexists(place):
        place = os.path.dirname(place)  # noqa: PTH120
    if not os.path.isdir(place):  # noqa: PTH112
        shown = place if os.path.normpath(text).startswith(place) else shown
        raise _bad(f"'{shown}' is a file, and a database is a folder: name another place", field)


def is_link(uri: str) -> bool:
    """Return whether a canonical place is a link. Users may know its target by another name."""
    return not in_object_store(uri) and os.path.islink(uri)  # noqa: PTH114 - a place is a str


def _canonical(text: str) -> str:
    # names in a database are longer, and no path exceeds 4,096 bytes
    if len(text) > _MOST_BYTES or len(text.encode(errors="replace")) > _MOST_BYTES:
        raise _bad(f"'{excerpt(text)}' is longer than {_MOST_BYTES} bytes: name a shorter path or uri")
    if not text.strip():
        raise _bad("database is empty; give a path or uri")
    _check_characters(text, text)
    scheme = _SCHEME.match(text)
    return _canonical_uri(text) if scheme and scheme[1].lower() != "file" else _canonical_path(_path_of(text), text)


def _check_characters(place: str, text: str) -> None:
    found = CONTROL_CHARACTERS.search(place)
    if found:
        raise _bad(f"'{excerpt(text)}' has the control character {found[0]!a}: write the path or uri without it")


def table_uri(database: str, table: str, field: str = "table") -> str:
    """Return the uri of a table's Lance dataset.

    Args:
        database: The database.
        table: The table.
        field: The request's `TableRef`, for the error.

    Raises:
        InvalidArgument: BAD_TABLE_NAME, and as `canonical_database`.
        FailedPrecondition: STORAGE_DENIED.
    """
    check_table_name(table, f"{field}.table")
    return f"{canonical_database(database, f'{field}.database').rstrip('/')}/{table}{TABLE_ENDING}"


def check_table_name(table: str, field: str) -> None:
    """Refuse an invalid name of a table.

    Raises:
        InvalidArgument: BAD_TABLE_NAME.
    """
    if not table or table.startswith((".", OWN_FOLDER)) or any(c in table for c in "/\\") or not table.isprintable():
        raise InvalidArgument(
            "BAD_TABLE_NAME",
            f"{excerpt(table)!r} is no table name: it must not be empty, contain /, \\ or characters that cannot be "
            f"printed, or begin with a dot or {OWN_FOLDER}",
            field=field,
        )
    check_length(table, field)


def check_length(table: str, field: str) -> None:
    """Refuse a name of a table that is too long for a folder.

    Raises:
        InvalidArgument: BAD_TABLE_NAME.
    """
    if len(table.encode()) > _MOST_NAME_BYTES:
        raise InvalidArgument(
            "BAD_TABLE_NAME",
            f"a table's name has {_MOST_NAME_BYTES} bytes at the most, not {len(table.encode())}",
            field=field,
        )


def canonical_table(uri: str) -> str:
    """Return the canonical uri of a table's Lance dataset, `<database>/<name>.lance`.

    Raises:
        InvalidArgument: BAD_TABLE_URI, and as `table_uri`.
    """
    return table_uri(*database_and_table(uri))


def database_and_table(uri: str) -> tuple[str, str]:
    """Return the place of a table's database, and the name of the table.

    Raises:
        InvalidArgument: BAD_TABLE_URI.
    """
    database, _, name = uri.rstrip("/").rpartition("/")
    if uri.startswith("/"):
        database = f"/{database}"
    if not database or not name.endswith(TABLE_ENDING):
        raise InvalidArgument(
            "BAD_TABLE_URI", f"'{excerpt(uri)}' is no table: <database>/<name>{TABLE_ENDING}", field="uri"
        )
    if _SCHEME.match(uri) and uri[:5].lower() == "file:":
        name = urllib.parse.unquote(name)
    return database, name.removesuffix(TABLE_ENDING)


def _path_of(text: str) -> str:
    """Return the local path in a path or a file uri (RFC 8089)."""
    if not _SCHEME.match(text):
        return text
    parts = urllib.parse.urlsplit(text)
    if parts.netloc.lower() not in ("", "localhost"):
        raise _bad(f"'{excerpt(text)}' names a file of a host: a file uri has three slashes, file:///path")
    return urllib.parse.unquote(text[len(parts.scheme) + 1 :].removeprefix(f"//{parts.netloc}"))


def _canonical_path(path: str, text: str) -> str:
    _check_characters(path, text)
    if not path.startswith("/"):
        raise _bad(f"'{excerpt(text)}' is a relative path, and a service has a folder of its own: give an absolute one")
    try:
        place = os.path.realpath(f"/{path.lstrip('/')}")  # in POSIX `//x` may differ from `/x`
    except OSError as error:  # a link that only others may read
        raise FailedPrecondition(
            "STORAGE_DENIED",
            f"'{excerpt(text)}' leads through a link that the user of the service may not read: name another place, "
            "or grant the rights",
        ) from error
    _check_characters(place, text)
    return place


def _canonical_uri(text: str) -> str:
    shown = excerpt(text)
    scheme, _, rest = text.partition("://")
    if not rest:
        raise _bad(f"'{shown}' is no uri: write scheme://bucket/path")
    scheme = scheme.lower()
    if scheme not in STORES:
        known = ", ".join(f"{store}://" for store in STORES)
        hint = f". Write {_MEANT[scheme]}" if scheme in _MEANT else ""
        raise _bad(f"'{shown}' names no supported store: give a path, or a uri with {known}{hint}")
    if scheme == "abfss" and "@" not in rest.partition("/")[0]:
        raise _bad(f"'{shown}' names no storage account: write {_AZURE}")
    parts = [part for part in rest.split("/") if part]
    if any(part in (".", "..") for part in parts):
        raise _bad(f"'{shown}' has a part '.' or '..', which is a name in an object store: write the uri without it")
    if found := _CUT_BY_LANCE.search(rest):
        raise _bad(
            f"'{shown}' has '{found[0]}', which Lance does not take as part of a place's name. Choose a name without"
            " '#' and '?', and write characters as they are, not encoded with '%'"
        )
    return f"{scheme}://{'/'.join(parts)}"


def _bad(message: str, field: str = "database") -> InvalidArgument:
    return InvalidArgument("BAD_DATABASE", message, field=field)
