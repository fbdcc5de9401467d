"""Flight SQL's commands about databases and tables, and their answers. See docs/flight.md.

A command is a `google.protobuf.Any` in a FlightDescriptor. The ticket for its answer is the command itself. A catalog
is a database, called by its registered name, path or uri. It has one schema with an empty name. SQL itself is not
supported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import structlog
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import DecodeError

from leman.v1 import catalog_pb2
from leman_coordinator.commits.commit_requests import ReadRequest
from leman_coordinator.lance_io import row_reading
from leman_coordinator.lance_io.row_reading import filter_now
from leman_core.model.service_errors import InvalidArgument, LemanError, Unimplemented
from leman_core.model.view import SCRATCH_PREFIX
from leman_core.process import release
from leman_core.server import request_messages
from leman_core.server.database_locations import DatabaseLocations
from leman_core.server.flight_sql_protocol import FlightSqlCatalog_pb2 as sql
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.locations import table_uri

_NOTHING = pa.schema([])


@dataclass(frozen=True, slots=True)
class Listed:
    """A table or view in a listing. If it cannot be read, it is listed as a table without columns."""

    name: str
    is_view: bool
    schema: pa.Schema


class Catalogs:
    """The databases that callers may browse."""

    def __init__(self, locations: DatabaseLocations) -> None:
        self._locations = locations

    def named(self) -> dict[str, str]:
        """Return the locations of the registered databases, ordered by name.

        Raises:
            LemanError: the registry cannot be read.
        """
        known = self._locations.registrations().by_name
        return {name: known[name].root for name in sorted(known) if self._is_allowed(known[name].root)}

    def tables(self, place: str, wanted: Callable[[str], bool]) -> Iterator[Listed]:
        """Yield the tables and views of a database, ordered by name.

        Args:
            place: The database's canonical location.
            wanted: Selects tables by name.

        Raises the errors of `LanceTables.list_tables`.
        """
        for name in LanceTables().list_tables(place):
            if not name.startswith(SCRATCH_PREFIX) and wanted(name):
                yield self._look(place, name)

    def check_table(self, place: str, name: str) -> None:
        """Refuse a table that is a link to a location that callers may not read.

        Raises the errors of `DatabaseRoots.check_table`.
        """
        self._locations.roots.check_table(place, name)

    def _look(self, place: str, name: str) -> Listed:
        try:
            self.check_table(place, name)
            found = row_reading.inspect_rows(ReadRequest(table_uri(place, name)), filter_now())
        except LemanError:
            return Listed(name, is_view=False, schema=_NOTHING)
        return Listed(name, found.is_view, found.schema)

    def _is_allowed(self, place: str) -> bool:
        try:
            self._locations.roots.check(place)
        except LemanError:
            return False
        return True


_log = structlog.get_logger(__name__)

_PACKAGE = sql.DESCRIPTOR.package
_TYPE_PREFIX = "type.googleapis.com/"
#: The name of the one schema of each catalog.
_SCHEMA = ""
TABLE, VIEW = "TABLE", "VIEW"
_ESCAPE = "\\"
#: The maximum length of a pattern, above that of any table name.
_LONGEST_PATTERN = 1000
_PATTERNS = ("db_schema_filter_pattern", "table_name_filter_pattern")


@dataclass(frozen=True, slots=True)
class Question:
    """A command with its bytes."""

    #: An instance of one of the types in `_ANSWERS`.
    command: Any
    raw: bytes
    #: Contains the requested database, if any, for the check of locations.
    carried: catalog_pb2.ListTablesRequest


def parse_question(raw: bytes) -> Question | None:
    """Parse a Flight SQL command in the bytes of a descriptor or ticket. Return None for other bytes.

    Raises:
        Unimplemented: CALL_NOT_OFFERED.
        InvalidArgument: BAD_MESSAGE, BAD_REQUEST.
    """
    if not _is_command(raw):
        return None
    try:
        packed = Packed.FromString(raw)
        name = packed.type_url.removeprefix(f"{_TYPE_PREFIX}{_PACKAGE}.")
        if name not in _ANSWERS:
            message = (
                f"Flight SQL's {name} is not offered here: it runs no SQL; docs/flight.md lists the supported commands"
            )
            raise Unimplemented("CALL_NOT_OFFERED", message)
        command = getattr(sql, name).FromString(packed.value)
    except (DecodeError, UnicodeDecodeError) as error:
        message = f"This is not a command of Flight SQL: {error}"
        raise InvalidArgument("BAD_MESSAGE", message, field="cmd") from None
    for field in _PATTERNS:
        if len(getattr(command, field, "")) > _LONGEST_PATTERN:
            message = f"{field} has more than {_LONGEST_PATTERN} characters, and names have fewer: give a shorter one"
            raise InvalidArgument("BAD_REQUEST", message, field="cmd")
    request_messages.text_check(command.DESCRIPTOR)(command)
    return Question(command, raw, catalog_pb2.ListTablesRequest(database=getattr(command, "catalog", "")))


def refuse_to_write(raw: bytes) -> None:
    """Refuse a Flight SQL command in the descriptor of a DoPut, which ADBC drivers send to ingest rows.

    Raises:
        Unimplemented: CALL_NOT_OFFERED.
    """
    if _is_command(raw):
        name = raw[:128].partition(f"{_PACKAGE}.".encode())[2]
        shown = re.split(rb"\W", name, maxsplit=1)[0].decode()
        message = (
            f"Flight SQL's {shown} is not offered here: rows are appended by a DoPut whose command is a PutRowsCommand,"
            " or whose path names the table; see docs/flight.md"
        )
        raise Unimplemented("CALL_NOT_OFFERED", message)


def _is_command(raw: bytes) -> bool:
    return f"{_TYPE_PREFIX}{_PACKAGE}.".encode() in raw[:64]


def answer_schema(asked: Question) -> pa.Schema:
    """Return the columns of the answer."""
    described, _ = _ANSWERS[asked.command.DESCRIPTOR.name]
    if asked.command.DESCRIPTOR.name == "CommandGetTables" and asked.command.include_schema:
        return described.append(_TABLE_SCHEMA)
    return described


def answer_question(asked: Question, catalogs: Catalogs) -> pa.Table:
    """Return the answer's rows. Reads databases and tables.

    Raises the errors of `Catalogs`.
    """
    _, rows_of = _ANSWERS[asked.command.DESCRIPTOR.name]
    described = answer_schema(asked)
    columns = list(zip(*rows_of(asked, catalogs), strict=True)) or [()] * len(described)
    return pa.table([_array(values, field) for values, field in zip(columns, described, strict=True)], schema=described)


def matches_pattern(pattern: str, name: str) -> bool:
    r"""Return whether a name matches a pattern, in which % is any text, _ any character, and \ escapes both.

    Takes at most len(pattern) × len(name) steps.
    """
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    at = part = 0
    any_text, any_text_to = -1, 0
    while at < len(name):
        if part < len(parts) and parts[part] == "%":
            any_text, any_text_to = part, at
            part += 1
        elif part < len(parts) and (parts[part] == "_" or parts[part][-1] == name[at]):
            part, at = part + 1, at + 1
        elif any_text >= 0:  # let the last % match one more character
            any_text_to += 1
            part, at = any_text + 1, any_text_to
        else:
            return False
    return all(rest == "%" for rest in parts[part:])


def _array(values: Iterable[Any], field: pa.Field) -> pa.Array:
    return _union(list(values)) if pa.types.is_union(field.type) else pa.array(values, field.type)


# --------------------------------------------------------------------------------------------- the answers' rows


def _asked_about(asked: Question, catalogs: Catalogs) -> dict[str, str]:
    """Return the locations of the requested databases, by the name that the answer uses."""
    if not asked.command.HasField("catalog"):
        return catalogs.named()
    named = asked.command.catalog
    return {named: asked.carried.database} if named else {}  # an empty name asks for tables without a catalog


def _of_catalogs(_asked: Question, catalogs: Catalogs) -> list[tuple[Any, ...]]:
    return [(name,) for name in catalogs.named()]


def _of_schemas(asked: Question, catalogs: Catalogs) -> list[tuple[Any, ...]]:
    if not _fits(asked.command, "db_schema_filter_pattern", _SCHEMA):
        return []
    return [(name, _SCHEMA) for name in _asked_about(asked, catalogs)]


def _of_tables(asked: Question, catalogs: Catalogs) -> list[tuple[Any, ...]]:
    command = asked.command
    if not _fits(command, "db_schema_filter_pattern", _SCHEMA):
        return []
    kinds = set(command.table_types) or {TABLE, VIEW}
    found: list[tuple[Any, ...]] = []
    for catalog, place in _asked_about(asked, catalogs).items():
        try:
            tables = list(catalogs.tables(place, lambda name: _fits(command, "table_name_filter_pattern", name)))
        except LemanError as error:
            if command.HasField("catalog"):
                raise
            _log.warning("a database cannot be listed", database=place, reason=error.reason, error=error.message)
            continue  # list the other databases
        for table in tables:
            kind = VIEW if table.is_view else TABLE
            if kind in kinds:
                described = (table.schema.serialize().to_pybytes(),) if command.include_schema else ()
                found.append((catalog, _SCHEMA, table.name, kind, *described))
    return found


def _of_types(_asked: Question, _: Catalogs) -> list[tuple[Any, ...]]:
    return [(TABLE,), (VIEW,)]


def _of_info(asked: Question, _: Catalogs) -> list[tuple[Any, ...]]:
    known = _info()
    wanted = dict.fromkeys(asked.command.info) or known
    return [(number, known[number]) for number in wanted if number in known]


def _fits(command: Any, field: str, name: str) -> bool:
    return not command.HasField(field) or matches_pattern(getattr(command, field), name)


def _info() -> dict[int, Any]:
    """Return the server's properties by their numbers in Flight SQL's SqlInfo."""
    return {
        0: "Leman",
        1: release.release_version(),
        2: pa.__version__,
        3: True,  # read-only for SQL
        4: False,  # no SQL
        5: False,  # no Substrait
        8: _Bits(0),  # no transactions
        9: False,  # no cancelling of queries
        513: _ESCAPE,
        529: "",  # the term for schemas
        531: "database",  # the term for catalogs
        532: True,
    }


# -------------------------------------------------------------------------------------------- the answers' columns


class _Bits(int):
    """A 32-bit number; a plain int has 64 bits."""


def _text(name: str, *, nullable: bool = False) -> pa.Field:
    return pa.field(name, pa.string(), nullable=nullable)


_KINDS = pa.list_(pa.field("list", pa.int32()))
_VALUE = pa.dense_union(
    [
        pa.field("string_value", pa.string()),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(pa.field("string_data", pa.string()))),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), _KINDS)),
    ]
)
_TABLE_SCHEMA = pa.field("table_schema", pa.binary(), nullable=False)
_IN_SCHEMA = [_text("catalog_name", nullable=True), _text("db_schema_name", nullable=True)]
_Rows = Callable[[Question, Catalogs], list[tuple[Any, ...]]]
#: The columns and rows of the answer to each command, by its name.
_ANSWERS: dict[str, tuple[pa.Schema, _Rows]] = {
    "CommandGetCatalogs": (pa.schema([_text("catalog_name")]), _of_catalogs),
    "CommandGetDbSchemas": (pa.schema([_IN_SCHEMA[0], _text("db_schema_name")]), _of_schemas),
    "CommandGetTables": (pa.schema([*_IN_SCHEMA, _text("table_name"), _text("table_type")]), _of_tables),
    "CommandGetTableTypes": (pa.schema([_text("table_type")]), _of_types),
    "CommandGetSqlInfo": (
        pa.schema([pa.field("info_name", pa.uint32(), nullable=False), pa.field("value", _VALUE, nullable=False)]),
        _of_info,
    ),
}


def _union(values: list[Any]) -> pa.Array:
    """Return values of several types as a union column."""
    places = [{str: 0, bool: 1, int: 2, _Bits: 3}[type(value)] for value in values]
    children = [
        [value for value, at in zip(values, places, strict=True) if at == place] for place in range(len(_VALUE))
    ]
    offsets = [places[:i].count(at) for i, at in enumerate(places)]
    return pa.UnionArray.from_dense(
        pa.array(places, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(child, _VALUE.field(i).type) for i, child in enumerate(children)],
        field_names=[_VALUE.field(i).name for i in range(len(_VALUE))],
    )
