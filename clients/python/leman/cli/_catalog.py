"""`leman tables`, `leman udfs` and `leman checkpoints`."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow.fs as pafs
import typer

from leman._database import database_uri
from leman.cli._options import (
    DatabaseArgument,
    EndpointOption,
    JsonOption,
    TableArgument,
    TlsOption,
    TokenOption,
    open_database,
)
from leman.cli._output import print_json, print_line, print_table
from leman.errors import TableNotFound

tables = typer.Typer(help="Lists and shows tables.", no_args_is_help=True)
udfs = typer.Typer(help="Lists registered functions.", no_args_is_help=True)
checkpoints = typer.Typer(help="Lists checkpoints.", no_args_is_help=True)

_KEY = re.compile(
    r"udf-(?P<udf>.+)_ver-(?P<version>.+)_col-(?P<column>.+)_where-.*_frag-(?P<fragment>\d+)"
    r"(?:_range-(?P<start>\d+)-(?P<end>\d+)|_file)"
)


@dataclass(frozen=True)
class CheckpointFile:
    """A file in a table's checkpoint folder. Where the key is stored under its hash only `file` is known."""

    file: str
    size_bytes: int
    kind: str
    udf_name: str = ""
    udf_version: str = ""
    column: str = ""
    fragment_id: int | None = None
    start: int | None = None
    end: int | None = None


@tables.command("ls")
def tables_ls(
    db: DatabaseArgument,
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Lists the tables of a database."""
    with open_database(db, endpoint, token, tls_ca) as database:
        found = [database.open_table(name).describe() for name in database.table_names()]
    if as_json:
        print_json(found)
        return
    headings = ("table", "rows", "fragments", "version", "computed columns")
    rows = [
        (t.name, f"{t.row_count:,}", t.fragment_count, t.version, ", ".join(c.name for c in t.computed_columns))
        for t in found
    ]
    print_table(headings, rows)


@tables.command("show")
def tables_show(
    db: DatabaseArgument,
    table: TableArgument,
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Shows the columns of a table and what computes them."""
    with open_database(db, endpoint, token, tls_ca) as database:
        found = database.open_table(table).describe()
    if as_json:
        print_json(found)
        return
    ids = "" if found.stable_row_ids else ", no stable row ids"
    print_line(
        f"{found.name}: {found.row_count:,} rows in {found.fragment_count:,} fragments,"
        f" version {found.version}{ids}\n{found.uri}\n"
    )
    computed = {c.name: f"{c.udf_name}({', '.join(c.input_columns)})" for c in found.computed_columns}
    versions = {c.name: c.udf_version for c in found.computed_columns}
    print_table(
        ("column", "type", "computed by", "function version"),
        [(f.name, f.type, computed.get(f.name), versions.get(f.name)) for f in found.schema],
    )


@udfs.command("ls")
def udfs_ls(
    db: DatabaseArgument,
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Lists the registered functions of a database, newest version first."""
    with open_database(db, endpoint, token, tls_ca) as database:
        found = database.udfs()
    if as_json:
        print_json(found)
        return
    print_table(
        ("function", "version", "kind", "reads", "returns"),
        [
            (u.name, u.version, u.kind + (", class" if u.stateful else ""), ", ".join(u.input_columns), u.data_type)
            for u in found
        ],
    )


@checkpoints.command("ls")
def checkpoints_ls(db: DatabaseArgument, table: TableArgument, *, as_json: JsonOption = False) -> None:
    """Lists the checkpoint files of a table, straight from its folder."""
    found = checkpoint_files(f"{database_uri(db)}/{table}.lance")
    if as_json:
        print_json(found)
        return
    print_table(
        ("kind", "column", "function", "fragment", "rows", "bytes"),
        [
            (
                c.kind,
                c.column or c.file,
                f"{c.udf_name}@{c.udf_version}" if c.udf_name else None,
                c.fragment_id,
                f"{c.start}-{c.end}" if c.start is not None else None,
                f"{c.size_bytes:,}",
            )
            for c in found
        ],
    )


def checkpoint_files(uri: str) -> list[CheckpointFile]:
    """What lies in a table's checkpoint folder, by name. Raises TableNotFound."""
    is_uri = "://" in uri
    files, root = pafs.FileSystem.from_uri(uri) if is_uri else (pafs.LocalFileSystem(), uri)
    if files.get_file_info(root).type is pafs.FileType.NotFound:
        raise TableNotFound(f"there is no table at {uri}")
    selector = pafs.FileSelector(f"{root}/_checkpoints", allow_not_found=True)
    found = [_read(info.base_name, info.size) for info in files.get_file_info(selector) if info.is_file]
    return sorted(found, key=lambda c: (c.column, c.fragment_id or 0, c.start or 0, c.file))


def _read(name: str, size: int) -> CheckpointFile:
    if name.endswith(".damaged"):
        return CheckpointFile(name, size, "damaged")
    match = _KEY.fullmatch(name.removesuffix(".lance"))
    if match is None:
        return CheckpointFile(name, size, "hashed" if name.startswith("key-") else "other")
    is_range = match["start"] is not None
    return CheckpointFile(
        file=name,
        size_bytes=size,
        kind="checkpoint" if is_range else "fragment record",
        udf_name=match["udf"],
        udf_version=match["version"],
        column=match["column"],
        fragment_id=int(match["fragment"]),
        start=int(match["start"]) if is_range else None,
        end=int(match["end"]) if is_range else None,
    )
