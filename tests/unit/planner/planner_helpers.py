"""Tables, requests and stored work, made by hand."""

import pyarrow as pa

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding, ColumnInput
from leman._format.stored_functions import UdfDefinition, UdfKind
from leman_core.model import keys
from leman_core.model.plan import OutputField, Plan
from leman_core.model.row_positions import RowRange
from leman_core.model.table import DataFile, Fragment, TableField, TableSnapshot
from leman_core.storage.checkpoint_records import FragmentRecord
from leman_planner.planning.fragment_status import decide_reuse, inspect_fragments
from leman_planner.planning.plan_draft import draft_plan
from leman_planner.planning.request_resolution import ResolvedRequest, with_filter
from leman_planner.planning.stored_work import KeptWork, OpenInputs, StoredWork, select_relevant

URI = "/data/t.lance"
X, Y, C, OTHER = 0, 1, 2, 3
COLUMN_ID = "c" * 32
UDF = UdfDefinition("f", "1", UdfKind.SCALAR, ("x",), pa.int64(), entrypoint="m:f")


def column_field(name="c", column_id=COLUMN_ID, udf=UDF, inputs=(("x", X),)):
    bound = ColumnBinding(column_id, udf.name, udf.version, tuple(ColumnInput(*i) for i in inputs))
    return column_bindings.bind(pa.field(name, pa.int64()), bound)


def table(fragments, *, column_id=COLUMN_ID, version=7, column="c"):
    fields = (
        TableField(pa.field("x", pa.int64()), (X,)),
        TableField(pa.field("y", pa.string()), (Y,)),
        TableField(column_field(column, column_id), (C,)),
    )
    return TableSnapshot(uri=URI, version=version, incarnation="inc", fields=fields, fragments=tuple(fragments))


def fragment(fragment_id, rows=100, *, deleted=0, source="in", current="", more=()):
    files = [DataFile(f"{source}{fragment_id}.lance", (X, Y))]
    if current:
        files.append(DataFile(current, (C,)))
    return Fragment(fragment_id, rows, deleted, (*files, *more))


def pairs(fragment_id, source="in"):
    return [(X, f"{source}{fragment_id}.lance")]


def fingerprint(fragment_id, *, udf=UDF, column_id=COLUMN_ID, source="in"):
    return keys.fingerprint(udf.name, udf.version, column_id, pairs(fragment_id, source))


def column_file(fragment_id, attempt="a1", *, partial=False, **of):
    return keys.column_file_name(fingerprint(fragment_id, **of), attempt, partial=partial)


def prefix(fragment_id, where="", *, udf=UDF, column="c", source="in"):
    return keys.KeyFamily(udf_name=udf.name, udf_version=udf.version, column=column, uri=URI).prefix(
        where, pairs(fragment_id, source)
    )


def range_key(fragment_id, start, end, where="", **of):
    return keys.range_key(prefix(fragment_id, where, **of), fragment_id, RowRange(start, end))


def record(fragment_id, file, *, rows=100, replaces="", column_id=COLUMN_ID, source="in", computed=None):
    return FragmentRecord(
        file=file,
        src_data_files=(f"{source}{fragment_id}.lance",),
        output_field_ids=(C,),
        column_id=column_id,
        fingerprint=keys.parse_column_file_name(file).fingerprint,
        size_bytes=1,
        digest="d",
        physical_rows=rows,
        rows_computed=rows if computed is None else computed,
        rows_failed=0,
        replaces=replaces,
    )


def resolved(fragments, where="", *, udf=UDF, names=(), **options) -> ResolvedRequest:
    num_frags = options.pop("num_frags", 0)
    snapshot = table(fragments, **options)
    output = OutputField(snapshot.fields[2], options.get("column_id", COLUMN_ID))
    asked = ResolvedRequest(table=snapshot, output=output, udf=udf, inputs=(snapshot.fields[0],), num_frags=num_frags)
    return with_filter(asked, where, names) if where else asked


def plan(asked: ResolvedRequest, *, found=(), records=None, states=None, of_kept=()) -> Plan:
    """Plan; `of_kept`: checkpoint keys of the first version that the column keeps."""
    statuses = inspect_fragments(asked)
    wanted = OpenInputs(statuses, decide_reuse(asked, statuses, states or {}))
    sifted = select_relevant(asked, wanted, found)
    kept = [
        KeptWork(version=1, resolved=earlier, stored=StoredWork(found=select_relevant(earlier, wanted, of_kept).found))
        for earlier in asked.of_kept[:1]
    ]
    stored = StoredWork(states=states or {}, found=sifted.found, records=records or {}, kept=kept)
    return draft_plan(asked, statuses, stored).plan


def reasons(made: Plan) -> dict[str, int]:
    return {count.reason.name: count.fragments for count in made.header.reasons}
