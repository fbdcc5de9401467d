"""`leman tables` and `leman udfs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from leman._column_graph import reads, tree
from leman._view_model import ViewInfo
from leman.cli._options import (
    DatabaseArgument,
    EndpointOption,
    JsonOption,
    TableArgument,
    TlsOption,
    TokenOption,
    local_relations,
    open_database,
)
from leman.cli._output import plain, print_json, print_line, print_table
from leman.cli._views import print_view
from leman.errors import NotSupported

if TYPE_CHECKING:
    from leman._table_model import RowStates

tables = typer.Typer(help="Lists and shows tables.", no_args_is_help=True)
udfs = typer.Typer(help="Lists and shows registered functions.", no_args_is_help=True)


@tables.command("ls")
def tables_ls(
    db: DatabaseArgument,
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tables of a database."""
    found = local_relations(db, endpoint)
    if found is None:
        with open_database(db, endpoint, token, tls_ca) as database:
            found = [database.open_table(name).describe() for name in database.table_names()]
    if as_json:
        print_json(found)
        return
    headings = ("table", "kind", "rows", "fragments", "version", "computed columns")
    kinds = {True: "view", False: "table"}
    rows = [
        (
            t.name,
            kinds[isinstance(t, ViewInfo)],
            f"{t.row_count:,}",
            t.fragment_count,
            t.version,
            ", ".join(c.name for c in t.computed_columns),
        )
        for t in found
    ]
    print_table(headings, rows)


@tables.command("optimize-indices")
def tables_optimize_indices(
    db: DatabaseArgument,
    table: TableArgument,
    *,
    column: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only indexes on this column; may be given often.")
    ] = None,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring the indexes of a table or view up to date, so that a fast search misses nothing."""
    with open_database(db, endpoint, token, tls_ca) as database:
        found = database.open_table(table).optimize_indices(column)
    if as_json:
        print_json(found)
        return
    headings = ("index", "kind", "columns", "fragments covered", "rows left out")
    rows = [
        (i.name, i.kind, ", ".join(i.columns), f"{i.fragments_covered:,} of {i.fragments:,}", f"{i.rows_left_out:,}")
        for i in found
    ]
    print_table(headings, rows)


@tables.command("show")
def tables_show(
    db: DatabaseArgument,
    table: TableArgument,
    *,
    with_states: Annotated[
        bool, typer.Option("--states", help="Count the rows of computed columns: computed, NULL, failed, not computed.")
    ] = False,
    with_graph: Annotated[
        bool, typer.Option("--graph", help="Show which columns are computed from which, instead of the list.")
    ] = False,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the columns of a table and what computes them."""
    read = None if with_states else local_relations(db, endpoint, table)
    states = {}
    if read is not None:
        found = read[0]
    else:
        with open_database(db, endpoint, token, tls_ca, direct=True) as database:
            opened = database.open_table(table)
            found = opened.describe()
            if with_states and isinstance(found, ViewInfo):
                raise NotSupported(f"'{table}' is a view and keeps no states of its rows: leave --states out")
            states = {c.name: opened.row_states(c.name) for c in found.computed_columns if with_states}
    if with_graph and isinstance(found, ViewInfo):
        raise NotSupported(f"'{table}' is a view, whose columns are computed from its source: leave --graph out")
    if as_json:
        more = {"row_states": states} if with_states else {}
        if with_graph:
            more["graph"] = {c.name: reads(c) for c in found.computed_columns}
        print_json({**plain(found), **more} if more else found)
        return
    if isinstance(found, ViewInfo):
        print_view(found)
        return
    ids = "" if found.stable_row_ids else ", no stable row ids"
    print_line(
        f"{found.name}: {found.row_count:,} rows in {found.fragment_count:,} fragments,"
        f" version {found.version}{ids}\n{found.uri}\n"
    )
    if with_graph:
        print_line("\n".join(tree(found)) or "no column is computed")
        return
    computed = {c.name: f"{c.udf_name}({', '.join(c.input_columns)})" for c in found.computed_columns}
    versions = {c.name: c.udf_version for c in found.computed_columns}
    print_table(
        ("column", "type", "computed by", "function version"),
        [(f.name, f.type, computed.get(f.name), versions.get(f.name)) for f in found.schema],
    )
    if states:
        print_line("")
        headings = ("column", "computed", "NULL", "kept", "failed", "to compute", "checkpointed", "ready")
        print_table(headings, [(name, *_counts(s)) for name, s in states.items()])


def _counts(states: RowStates) -> list[str]:
    kept = sum(k.rows for k in states.kept)
    counts = (states.computed, states.null, kept, states.failed, states.not_computed, states.checkpointed, states.ready)
    return [f"{n:,}" for n in counts]


@udfs.command("ls")
def udfs_ls(
    db: DatabaseArgument,
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the registered functions of a database, newest version first."""
    with open_database(db, endpoint, token, tls_ca, direct=True) as database:
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


@udfs.command("show")
def udfs_show(
    db: DatabaseArgument,
    name: Annotated[str, typer.Argument(help="The function's name, or name@version.", show_default=False)],
    *,
    endpoint: EndpointOption = None,
    token: TokenOption = None,
    tls_ca: TlsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a registered function with its options: one version, or else the newest."""
    with open_database(db, endpoint, token, tls_ca, direct=True) as database:
        found = database.udf(name)
    if as_json:
        print_json(found)
        return
    facts = {
        "kind": found.kind + (", class" if found.stateful else ""),
        "reads": ", ".join(found.input_columns),
        "returns": found.data_type,
        **({"expression": found.sql_expression} if found.sql_expression else {}),
        **({"served at": ", ".join(found.addresses)} if found.addresses else {}),
        **found.options,
    }
    print_line(f"{found.name}@{found.version}\n")
    print_table(("", ""), list(facts.items()))
    if found.source:
        print_line(f"\n{found.source}")
