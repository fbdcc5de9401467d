"""The same histories, shorter, through SDK, gRPC, Spark and Redis."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import leman
from leman_core.model import keys
from leman_core.model.plan import BackfillSpec
from leman_core.storage.checkpoint_store import LanceCheckpointStore, checkpoint_root
from tests.conftest import System as Running
from tests.integration.stateful import udfs
from tests.integration.stateful.harness import Fate
from tests.integration.stateful.oracle import Asked, Where
from tests.integration.stateful.test_machine import LONG, Machine, run

INPUTS = {"f": ["id", "x"], "g": ["id", "c"]}


def logged(name: str, version: int, path: Path) -> leman.UDF:
    """The function of the machine, which writes the ids that it sees to a file."""
    value: Callable[[int, int, int | None], int | None] = udfs.VALUES[name]
    file = str(path)

    def call(id_: int, argument: int | None) -> int | None:
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, f"{id_}\n".encode())
        os.close(handle)
        return value(version, id_, argument)

    skip = leman.ErrorHandlingConfig(on_error=[leman.Skip()])
    return leman.udf(
        data_type=pa.int64(), name=name, version=str(version), input_columns=INPUTS[name], error_handling=skip
    )(call)


class ServicesMachine(Machine):
    """Jobs run in the embedded system. Crashes are left to the fault tests."""

    registers = False  # the SDK does
    running: Running

    def __init__(self) -> None:
        super().__init__()
        self.seen = self.folder / "seen.txt"
        self.functions = {(n, v): logged(n, v, self.seen) for n in ("f", "g") for v in (1, 2, 3)}
        self.database = self.running.connect(self.folder)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.database.close()

    def _add_to_table(self, name: str, function: str, version: int, inputs: tuple[str, ...]) -> None:
        table = self.database.open_table("t")
        table.add_columns({name: (self.functions[function, version], list(inputs))})

    def _backfill(
        self,
        spec: BackfillSpec,
        version: int,
        where: Where,
        fate: Fate | None = None,
        meanwhile: str = "",
        number: int = 0,
    ) -> int:
        """One job. The planner is asked before which fragments it will write."""
        table = self.database.open_table("t")
        column = self.oracle.state.columns[spec.column]
        function = self.functions[column.function, version] if version else None
        table.plan_backfill(spec.column, udf=function)  # registers the function
        parts = self._parts(spec, version, where)
        plan = self.system.plan(spec)
        written = [parts[task.fragment_id] for task in plan.tasks]
        layout = self._planned_layout_at(plan.header.read_version)
        before = set(self._keys())
        self.seen.unlink(missing_ok=True)
        job = self.database.job(
            table.backfill(
                spec.column,
                udf=function,
                where=where.text or None,
                checkpoint_size=spec.checkpoint.checkpoint_size or None,
                task_size=spec.task_size or None,
                progress=False,
            )
        )
        seen = [int(line) for line in self.seen.read_text().split()] if self.seen.exists() else []
        self._check(seen, job.progress.rows_evaluated, parts, {p.fragment for p in written})
        for key in set(self._keys()) - before:
            self._note(key, parts, layout)
        files = self._files_of(spec.column)
        for part in written:
            self.oracle.committed(part, files[part.fragment])
        return len(seen)

    def _files_of(self, column: str) -> dict[int, str]:
        """Fragment → the file that holds the column there."""
        dataset = self.system.open()
        field = dataset.lance_schema.field(column).id()
        return {
            fragment.fragment_id: file.path
            for fragment in dataset.get_fragments()
            for file in fragment.metadata.files
            if field in file.fields
        }

    def _parts(self, spec: BackfillSpec, version: int, where: Where) -> dict[int, Asked]:
        """A job plans again where a staged file is refused because a restore brought rows back."""
        parts = self.oracle.plan(spec.column, version, where)
        for number, part in parts.items():
            if not self.oracle.state.fragments[number].live <= part.live:
                self.oracle.forget(part)
        return self.oracle.plan(spec.column, version, where)

    def _check(self, seen: list[int], reported: int, parts: dict[int, Asked], written: set[int]) -> None:
        needed = {i for p in parts.values() for i in p.needed}
        optional = {i for p in parts.values() for i in p.optional}
        assert len(seen) == len(set(seen)) == reported
        assert needed <= set(seen) <= needed | optional
        assert {f for f, p in parts.items() if p.needed} <= written

    def _note(self, key: str, parts: dict[int, Asked], layout: dict[int, dict[int, int]]) -> None:
        parsed = keys.parse_range_key(key)
        if parsed is None:
            record = keys.parse_record_key(key)
            if record is not None:  # else it says what was found out about compacted files
                self.oracle.staged(parts[record[1]], key)
            return
        batch = LanceCheckpointStore(checkpoint_root(self.system.uri))[key]
        held = layout[parsed.fragment_id]
        offsets = [a & 0xFFFFFFFF for a in batch.column("_rowaddr").to_pylist()]
        self.oracle.stored(parts[parsed.fragment_id], key, [held[o] for o in offsets if o in held])

    def _keys(self) -> list[str]:
        """Changes of what is stored under a key that was there before are of the same rows."""
        return LanceCheckpointStore(checkpoint_root(self.system.uri)).list_keys()


@pytest.mark.spark
@pytest.mark.timeout(7200 if LONG else 300)
def test_histories_through_the_services_agree_with_the_oracle(system):
    ServicesMachine.running = system
    assert run(ServicesMachine, 400 if LONG else 6, 5) >= 0.5
