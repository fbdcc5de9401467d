"""A source with its views, their oracle, and the check of every refresh."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from leman._format import view_definitions
from leman._format.view_definitions import INTERNAL_COLUMNS, IS_SET, SOURCE_ROW_ID
from leman_core.model import view_metadata
from leman_core.model.job import JobState
from leman_core.model.view import RefreshMode, RefreshResult
from tests.integration.views.histories import functions
from tests.integration.views.histories.oracle import Expected, Shape, State, expect, order_holds
from tests.integration.views.histories.shapes import SHAPES, query
from tests.integration.views.histories.source import CARE, OPERATIONS, ROWS, Source

#: How many of the rows of a fragment may be read for the sake of those that need it.
_READ_AROUND = 2
#: States of its source that a view may look back at where rows were restored.
_REMEMBERED = 4


class World:
    """A database with the table `t` and a view of each shape."""

    def __init__(self, system: Any, folder: Path, shapes: Sequence[Shape] = tuple(SHAPES), rows: int = ROWS) -> None:
        self.system = system
        self.database = str(folder)
        self.shapes = shapes
        folder.mkdir(parents=True)
        system.register(self.database)
        self.source = Source(f"{self.database}/t.lance", rows)
        self.filled: dict[str, State] = {}
        self.past: dict[str, list[State]] = {}
        for shape in shapes:
            system.create(self.database, shape.name, query(shape, self.database, "t"), max_rows_per_fragment=9)

    def copy(self, folder: Path) -> World:
        """The same world elsewhere: views name their source by its path."""
        shutil.copytree(self.database, folder, copy_function=os.link)  # nothing in a lake is written in place
        other = object.__new__(World)
        other.system, other.shapes, other.database = self.system, self.shapes, str(folder)
        other.source = self.source.at(f"{folder}/t.lance")
        other.filled = dict(self.filled)
        other.past = {name: list(states) for name, states in self.past.items()}
        for shape in self.shapes:
            view = lance.dataset(other.uri(shape))
            definition = view_metadata.read(view.schema)
            assert definition is not None
            moved = replace(definition, query=replace(definition.query, database=other.database))
            metadata = view_definitions.write(pa.schema([]), moved).metadata
            view.update_schema_metadata({key.decode(): value.decode() for key, value in metadata.items()})
        return other

    def uri(self, shape: Shape) -> str:
        return f"{self.database}/{shape.name}.lance"

    def change(self, operation: str, number: int) -> None:
        (OPERATIONS | CARE)[operation](self.source, number)

    def refresh_and_check(self, version: int = 0) -> None:
        """To that version of the source; 0: to the latest."""
        for shape in self.shapes:
            self._refresh_and_check(shape, version)
        if not version:
            self.source.compacted = 0

    def go_back_and_check(self, number: int) -> None:
        """To one of the source's earlier versions."""
        versions = sorted(self.source.versions)
        self.refresh_and_check(versions[number % len(versions)])

    def _refresh_and_check(self, shape: Shape, version: int) -> None:
        before = self._layout(shape)
        functions.EVALUATED.clear()
        job = self.system.refresh(self.database, shape.name, **({"src_version": version} if version else {}))
        assert job.state is JobState.DONE, (shape.name, job.error)
        assert job.refresh_result is not None
        state = self.source.versions[version] if version else self.source.state
        expected = expect(shape, self.filled.get(shape.name), state)
        self._check_rows(shape, expected, list(before))
        self._check_calls(shape, expected, state)
        if shape.name in self.filled:
            self._check_cost(shape, expected, job.refresh_result, before, state)
        self.filled[shape.name] = state.copy()
        self.past.setdefault(shape.name, []).append(self.filled[shape.name])

    def _layout(self, shape: Shape) -> dict[int, int]:
        """Source row id → row address, of the view's rows in their order."""
        table = lance.dataset(self.uri(shape)).to_table(columns=[SOURCE_ROW_ID], with_row_address=True)
        return dict(zip(table[SOURCE_ROW_ID].to_pylist(), table["_rowaddr"].to_pylist(), strict=True))

    def _check_rows(self, shape: Shape, expected: Expected, before: Sequence[int]) -> None:
        table = lance.dataset(self.uri(shape)).to_table()
        ids = table.column(SOURCE_ROW_ID).to_pylist()
        assert table.column(IS_SET).to_pylist() == [True] * len(ids)
        assert sorted(ids) == sorted(expected.rows), f"{shape.name}: {set(ids) ^ set(expected.rows)}"
        rows: list[dict[str, Any]] = table.drop_columns(list(INTERNAL_COLUMNS)).to_pylist()
        wrong = [(i, row, expected.rows[i]) for i, row in zip(ids, rows, strict=True) if row != expected.rows[i]]
        assert not wrong, f"{shape.name}: {wrong[:3]}"
        if shape.name in self.filled:
            assert order_holds(before, ids, expected.added), shape.name

    def _check_calls(self, shape: Shape, expected: Expected, state: State) -> None:
        """A row that was computed before, and is the same again, is not computed again as long as the source is plain,
        and few states have to be remembered, and neither is one that has the inputs that it had last; one whose inputs
        the view never had is computed in any case."""
        called = sorted(functions.EVALUATED)
        asked = expected.evaluated if shape.function is not None else []
        known = set().union(*(_same_in(shape, state, past) for past in self.past.get(shape.name, ())))
        seen = {i for past in self.past.get(shape.name, ()) for i in _like_in(shape, state, past)}
        least = [self._id(state, i) for i in asked if i not in seen]
        most = [self._id(state, i) for i in asked]
        if self.source.plain and len(self.past.get(shape.name, ())) <= _REMEMBERED:
            last = self.filled.get(shape.name)
            known |= set() if last is None else _like_in(shape, state, last)
            most = [self._id(state, i) for i in asked if i not in known]
        assert not Counter(least) - Counter(called), (shape.name, called, least)
        assert not Counter(called) - Counter(most), (shape.name, called, most)

    def _id(self, state: State, row_id: int) -> int:
        return int(state.rows[row_id].values["id"] or 0)

    def _check_cost(
        self, shape: Shape, expected: Expected, result: RefreshResult, before: dict[int, int], state: State
    ) -> None:
        """Rows read and files rewritten are those that the change explains."""
        found = (result.rows_added, result.rows_recomputed, result.rows_evicted)
        assert found == (len(expected.added), len(expected.recomputed), len(expected.evicted)), shape.name
        touched = {before[i] >> 32 for i in expected.recomputed}
        assert result.fragments_rewritten == len(touched), shape.name
        assert result.mode in {RefreshMode.NO_OP, RefreshMode.INCREMENTAL}
        if shape.limit is None and not shape.offset:
            old, new = self.filled[shape.name].rows, state.rows
            other = sum(1 for i, row in new.items() if i not in old or not old[i].same(row, shape.reads))
            most = _READ_AROUND * other + len(expected.evaluated)
            assert result.source_rows_read <= most, (shape.name, result.source_rows_read, most)


def _same_in(shape: Shape, state: State, past: State) -> set[int]:
    """Rows that a view had in an earlier state of its source, and that no one wrote since."""
    return {i for i in shape.ids(past) if i in state.rows and state.rows[i].same(past.rows[i], shape.reads)}


def _like_in(shape: Shape, state: State, past: State) -> set[int]:
    """Rows that a view had in an earlier state of its source, with what its function reads."""
    there = [i for i in shape.ids(past) if i in state.rows]
    return {i for i in there if all(state.rows[i].values[c] == past.rows[i].values[c] for c in shape.given)}
