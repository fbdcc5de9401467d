"""A real Lance table with computed columns, requests as an executor would send them, and a coordinator's commit
queues."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import lance
import numpy as np
import pyarrow as pa

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding, ColumnInput
from leman.v1 import catalog_pb2
from leman_coordinator.commits.commit_queue import CommitQueues, Limits
from leman_coordinator.commits.commit_requests import CommitResult, ReplaceRequest
from leman_coordinator.lance_io import column_definitions
from leman_coordinator.lance_io.table_handle import TableHandle
from leman_core.functions import binding
from leman_core.model import keys
from leman_core.model.plan import FragmentReplacement, OutputField, StagedFile
from leman_core.model.table import Fragment
from leman_core.storage.column_files import ColumnFileWriter
from leman_core.storage.lance_tables import LanceTables

ROWS = 10
DEADLINE = 30.0
T = TypeVar("T")


@dataclass(frozen=True)
class Table:
    """`id` and `x` are data; computed columns are filled with `scale * x`."""

    uri: str

    def open(self) -> lance.LanceDataset:
        return lance.dataset(self.uri)

    def snapshot(self):
        return LanceTables().snapshot(self.uri)

    def column(self, name: str = "c") -> list[Any]:
        return self.open().to_table(columns=[name]).column(name).to_pylist()

    def fragment_values(self, fragment_id: int, name: str = "c") -> list[Any]:
        return self.open().get_fragment(fragment_id).to_table(columns=[name]).column(name).to_pylist()

    def files(self, fragment_id: int, name: str = "c") -> tuple[str, ...]:
        snapshot = self.snapshot()
        fragment = next(f for f in snapshot.fragments if f.fragment_id == fragment_id)
        return fragment.files_of(snapshot.column(name).field_ids)


def ref_of(uri: str) -> catalog_pb2.TableRef:
    """Name a table by its uri."""
    database, _, name = uri.rstrip("/").rpartition("/")
    return catalog_pb2.TableRef(database=database, table=name.removesuffix(".lance"))


def make_table(uri: str, fragments: int = 4, columns: Sequence[str] = ("c",), **options: Any) -> Table:
    """A table with stable row ids, `fragments` fragments of ROWS rows and empty computed columns of `x`."""
    rows = range(fragments * ROWS)
    data = pa.table({"id": pa.array(rows, pa.int64()), "x": pa.array(rows, pa.int64())})
    lance.write_dataset(data, uri, max_rows_per_file=ROWS, enable_stable_row_ids=True, **options)
    add_columns(uri, columns)
    return Table(uri)


def add_columns(uri: str, names: Sequence[str], type_: pa.DataType | None = None, inputs: str = "x") -> None:
    handle = TableHandle(uri)
    base = handle.latest()
    schema = pa.schema([new_field(base, name, type_, inputs) for name in names])
    column_definitions.add_null_columns(handle, base, schema)


def new_field(base, name: str, type_: pa.DataType | None = None, inputs: str = "x") -> pa.Field:
    bound = ColumnBinding(
        uuid.uuid4().hex, "f", "v1", (ColumnInput(inputs, base.column(inputs).field_id),), added_as=name
    )
    return column_bindings.bind(pa.field(name, type_ or pa.int64()), bound)


class Planner:
    """Plans and stages files as planner and executor do, from one snapshot of the table."""

    def __init__(self, table: Table, column: str = "c", scale: int = 10, version: str = "v1") -> None:
        self.table = table
        self.snapshot = table.snapshot()
        field = self.snapshot.column(column)
        self.bound = binding.read(field.arrow)
        self.output = OutputField(field, self.bound.column_id)
        self.scale = scale
        self.version = version
        inputs = self.snapshot.column(self.bound.inputs[0].name)
        self.input_name, self.input_ids = inputs.name, inputs.field_ids

    @property
    def fragments(self) -> dict[int, Fragment]:
        return {f.fragment_id: f for f in self.snapshot.fragments}

    def request(self, *fragment_ids: int, request_id: str = "", job_id: str = "job", **staging: Any) -> ReplaceRequest:
        return ReplaceRequest(
            uri=self.table.uri,
            incarnation=self.snapshot.incarnation,
            request_id=request_id or uuid.uuid4().hex,
            job_id=job_id,
            read_version=self.snapshot.version,
            output=self.output,
            replacements=tuple(self.replacement(i, **staging) for i in fragment_ids),
        )

    def replacement(self, fragment_id: int, *, partial: bool = False, values: Any = None) -> FragmentReplacement:
        fragment = self.fragments[fragment_id]
        staged = self.stage(fragment, partial, values)
        current = fragment.files_of(self.output.field.field_ids)
        return FragmentReplacement(
            fragment_id=fragment_id,
            staged=staged,
            input_files=self.input_files(fragment),
            replaces=current[0] if current else "",
        )

    def input_files(self, fragment: Fragment) -> tuple[str, ...]:
        return fragment.files_of(self.input_ids)

    def stage(self, fragment: Fragment, partial: bool = False, values: Any = None) -> StagedFile:
        inputs = [(i, path) for i in self.input_ids for path in fragment.files_of([i])]
        fingerprint = keys.fingerprint("f", self.version, self.output.column_id, inputs)
        file = keys.column_file_name(fingerprint, uuid.uuid4().hex[:8], partial=partial)
        if values is None:
            values = self.values_of(fragment)
        return write_file(self.table.uri, file, self.output.field.arrow, values, partial)

    def values_of(self, fragment: Fragment) -> list[int | None]:
        """One for each physical row, in order, from the version that was planned."""
        dataset = lance.dataset(self.table.uri, version=self.snapshot.version)
        rows = dataset.scanner(
            columns=[self.input_name],
            fragments=[dataset.get_fragment(fragment.fragment_id)],
            with_row_id=True,
            include_deleted_rows=True,
        ).to_table()
        return [None if v is None else v * self.scale for v in rows.column(self.input_name).to_pylist()]


def write_file(uri: str, file: str, field: pa.Field, values: Sequence[Any], partial: bool = False) -> StagedFile:
    writer = ColumnFileWriter(uri, field)
    writer.open(file)
    writer.write(pa.array(values, field.type))
    states = np.ones(len(values), np.uint8) if partial else None
    return writer.close(states, frozenset(), file)


def with_file(request: ReplaceRequest, staged: StagedFile) -> ReplaceRequest:
    """The request with another file for its first fragment."""
    first = replace(request.replacements[0], staged=staged)
    return replace(request, replacements=(first, *request.replacements[1:]))


def in_queues(work: Callable[[CommitQueues], Coroutine[Any, Any, T]], limits: Limits | None = None) -> T:
    """What `work` gives, with the commit queues of a coordinator."""

    async def run() -> T:
        queues = CommitQueues(limits or Limits())
        try:
            async with asyncio.timeout(DEADLINE):
                return await work(queues)
        finally:
            await queues.close()

    return asyncio.run(run())


def submit(*requests: Any, limits: Limits | None = None) -> list[CommitResult]:
    """The results of requests that were sent at once. Raises what one of them raises."""

    async def all_at_once(queues: CommitQueues) -> list[CommitResult]:
        return list(await asyncio.gather(*(queues.submit(request) for request in requests)))

    return in_queues(all_at_once, limits)


def reasons(result: CommitResult) -> list[str]:
    """Of each fragment: the reason, or the status where it was not rejected."""
    return [outcome.reason or outcome.status.value for outcome in result.outcomes]


def flatten(results: Sequence[CommitResult]) -> list[str]:
    return list(itertools.chain.from_iterable(reasons(result) for result in results))


def between(monkeypatch, action: Callable[[], Any]) -> None:
    """Runs `action` once, after the coordinator has looked and before it commits."""
    commit, todo = lance.LanceDataset.commit, [action]

    def late(*args: Any, **kwargs: Any) -> lance.LanceDataset:
        if todo:
            todo.pop()()
        return commit(*args, **kwargs)

    monkeypatch.setattr(lance.LanceDataset, "commit", late)
