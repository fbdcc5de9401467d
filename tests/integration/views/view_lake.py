"""A database with a source table and views over it, made and filled by hand as the commit coordinator would."""

import dataclasses
import json
import secrets

import lance
import pyarrow as pa
from lance.file import LanceFileWriter

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman._format.view_definitions import IS_SET, SOURCE_ROW_ID, ViewColumn, ViewFunction, ViewQuery, updates
from leman_core.model.view import RefreshSpec
from leman_core.model.view_metadata import read
from leman_core.storage.lance_tables import LanceTables
from leman_core.storage.transactions import commit_properties
from leman_core.storage.udf_registry import UdfRegistry
from leman_planner.views.refresh_reader import ViewReader
from leman_planner.views.view_catalog import ViewCatalog
from tests.integration.planner.planner_lake import rows

ROWS = 10
UDF = UdfDefinition("double", "1", UdfKind.SCALAR, ("x",), pa.int64(), (pa.int64(),), entrypoint="m:double")


def column(name, expression=""):
    text = expression or f"`{name}`"
    return ViewColumn(name, text, "" if expression else name)


class ViewLake:
    """`t`: id, x, body, box in fragments of ROWS rows."""

    def __init__(self, folder, fragments=3, *, stable_row_ids=True):
        self.database = str(folder)
        self.uri = f"{self.database}/t.lance"
        lance.write_dataset(
            rows(fragments * ROWS), self.uri, max_rows_per_file=ROWS, enable_stable_row_ids=stable_row_ids
        )
        self.registry = UdfRegistry(self.database)
        self.registry.put(UDF)
        self.tables = LanceTables()
        self.reader = ViewReader(self.tables)

    def source(self):
        return lance.dataset(self.uri)

    def open(self, name="v"):
        return lance.dataset(f"{self.database}/{name}.lance")

    def query(self, *columns, functions=(), table="t", database="", **options):
        return ViewQuery(database, table, tuple(columns), tuple(functions), **options)

    def creation(self, query, name="v", database=None):
        return ViewCatalog(self.tables).creation(database or self.database, name, query)

    def create(self, query=None, name="v", rows_per_fragment=ROWS):
        """A view of placeholders; by default of id and double(x)."""
        if query is None:
            query = self.query(column("id"), functions=[ViewFunction("d", "double", "", ("x",))])
        made = self.creation(query, name)
        found = read(made.schema)
        source = lance.dataset(found.source_uri, version=found.base_version)
        ids = source.to_table(columns=[], filter=found.query.where or None, with_row_id=True)["_rowid"].to_pylist()
        parts = [ids[at : at + rows_per_fragment] for at in range(0, len(ids), rows_per_fragment)]
        dataset = lance.write_dataset(made.schema.empty_table(), made.uri, enable_stable_row_ids=True)
        for part in parts:
            values = placeholders(made.schema, part)
            append(dataset.uri, write(dataset.uri, values, "placeholders-"), len(part))
        return made

    def fill(self, *fragment_ids, name="v"):
        """Gives placeholders values (zeros and empty ones), by default all."""
        dataset = self.open(name)
        found = [f for f in dataset.get_fragments() if not fragment_ids or f.fragment_id in fragment_ids]
        groups = []
        for fragment in found:
            schema = pa.schema([f for f in dataset.schema if f.name != SOURCE_ROW_ID])
            values = pa.table({f.name: filled(f, fragment.metadata.physical_rows) for f in schema}, schema=schema)
            file = lance.fragment.DataFile.create(dataset, write(dataset.uri, values, "view-"))
            groups.append(lance.LanceOperation.DataReplacementGroup(fragment.fragment_id, file))
        commit(dataset, lance.LanceOperation.DataReplacement(groups))

    def record(self, base_version, name="v", record=""):
        """Says that the view is right for another version of its source, and what it keeps of that."""
        dataset = self.open(name)
        found = read(dataset.schema)
        incarnation = self.tables.snapshot(found.source_uri, base_version).identity
        later = dataclasses.replace(found, base_version=base_version, base_incarnation=incarnation, base_record=record)
        dataset.update_schema_metadata(updates(later))

    def plan(self, name="v", **spec):
        return self.reader.plan(RefreshSpec(self.database, name, **spec))


def placeholders(schema, ids):
    nothing = {f.name: pa.nulls(len(ids), f.type) for f in schema}
    own = {SOURCE_ROW_ID: pa.array(ids, pa.int64()), IS_SET: pa.array([False] * len(ids))}
    return pa.table({**nothing, **own}, schema=schema)


def filled(field, count):
    if field.name == IS_SET:
        return pa.array([True] * count)
    return pa.nulls(count, field.type)


def write(uri, values, prefix):
    name = f"{prefix}{secrets.token_hex(16)}.lance"
    writer = LanceFileWriter(f"{uri}/data/{name}", values.schema.remove_metadata())
    for batch in values.to_batches():
        writer.write_batch(batch)
    writer.close()
    return name


def append(uri, name, count):
    dataset = lance.dataset(uri)
    file = lance.fragment.DataFile.create(dataset, name)
    made = lance.FragmentMetadata(id=0, files=[file], physical_rows=count)
    commit(dataset, lance.LanceOperation.Append([made]))


def commit(dataset, operation):
    transaction = lance.Transaction(
        dataset.version,
        operation,
        secrets.token_hex(16),
        transaction_properties=commit_properties(["request"], ["job"]),
    )
    return lance.LanceDataset.commit(dataset, transaction)


def query_json(dataset):
    return json.loads(dataset.schema.metadata[b"leman::view::query"])
