"""Made-up tables with everything that may are next to their data, and an oracle that knows what each file is worth."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import strategies as st

from leman._format import column_bindings
from leman._format.column_bindings import ColumnBinding, ColumnInput
from leman_coordinator.garbage.retention import CHECKPOINTS, DATA, Inventory, PartialStates, Uses
from leman_core.model import keys
from leman_core.model.garbage import DAY, OpenJob, StoredFile
from leman_core.model.row_positions import RowRange
from leman_core.model.table import DataFile, Fragment, TableField, TableSnapshot
from leman_core.storage.checkpoint_records import FragmentRecord

URI = "/lake/t.lance"
ROWS = 10
NOW = 1_000 * DAY
X, Y = 1, 2
COLUMN_ID = "c0ffee"
FILTERS = ["", "x > 1", "x > 2"]
NAMES = ["f", "f_ver-1_col-y_where-z", "g_frag-1_range-0-5"]


def sources(file: str) -> str:
    return keys.sources([(X, file)])


def family(name: str = "f", version: str = "1", column: str = "y", uri: str = URI) -> keys.KeyFamily:
    return keys.KeyFamily(udf_name=name, udf_version=version, column=column, uri=uri)


def fingerprint(file: str, name: str = "f", version: str = "1", column_id: str = COLUMN_ID) -> str:
    return keys.fingerprint(name, version, column_id, [(X, file)])


def snapshot(version: int, fragments, name: str = "f", *, with_column: bool = True) -> TableSnapshot:
    """`fragments`: (id, input file, output file or empty)."""
    fields = [TableField(pa.field("x", pa.int64()), (X,))]
    if with_column:
        bound = ColumnBinding(COLUMN_ID, name, "1", (ColumnInput("x", X),))
        fields.append(TableField(column_bindings.bind(pa.field("y", pa.int64()), bound), (Y,)))
    made = []
    for fragment_id, source, output in fragments:
        files = [DataFile(source, (X,))] + ([DataFile(output, (Y,))] if output else [])
        made.append(Fragment(fragment_id, ROWS, 0, tuple(files)))
    return TableSnapshot(uri=URI, version=version, incarnation="i", fields=tuple(fields), fragments=tuple(made))


def stored(key: str, age: float = 30 * DAY, name: str = "") -> StoredFile:
    return StoredFile(
        folder=CHECKPOINTS, name=name or f"{keys.md5(key)}.lance", size_bytes=100, modified=NOW - age, key=key
    )


def data(name: str, age: float = 30 * DAY) -> StoredFile:
    return StoredFile(folder=DATA, name=name, size_bytes=1000, modified=NOW - age)


def record(file: str, source: str, column_id: str = COLUMN_ID, name: str = "f", version: str = "1") -> FragmentRecord:
    print_ = fingerprint(source, name, version, column_id)
    return FragmentRecord(
        file=file,
        src_data_files=(source,),
        output_field_ids=(Y,),
        column_id=column_id,
        fingerprint=print_,
        size_bytes=1000,
        digest="d",
        physical_rows=ROWS,
        rows_computed=ROWS,
        rows_failed=0,
        replaces="",
    )


def inventory(files, *versions: TableSnapshot, older_than: float = 7 * DAY, **more) -> Inventory:
    uses = Uses(versions[0], own_folder=True)
    for version in versions[1:]:
        uses.add(version)
    return Inventory(now=NOW, older_than=older_than, uses=uses, files=files, **more)


@dataclass
class World:
    """`history`: for each version, newest first, fragment id → (input file, state of the output, its file).

    `expected`: by file, whether the oracle says that it must stay whatever its age.
    """

    name: str
    history: list[dict[int, tuple[str, str, str]]] = field(default_factory=list)
    files: list[StoredFile] = field(default_factory=list)
    needed: dict[str, bool] = field(default_factory=dict)
    records: dict[str, FragmentRecord] = field(default_factory=dict)
    states: dict[str, PartialStates] = field(default_factory=dict)
    jobs: list[OpenJob] = field(default_factory=list)
    older_than: float = 7 * DAY

    def snapshots(self) -> list[TableSnapshot]:
        rows = [[(i, s, o) for i, (s, _, o) in fragments.items()] for fragments in self.history]
        return [snapshot(len(rows) - n, fragments, self.name) for n, fragments in enumerate(rows)]

    def newest(self, source: str, fragment_id: int) -> tuple[str, str] | None:
        """State and file of the fragment in the newest version that has it with that input."""
        for fragments in self.history:
            if fragment_id in fragments and fragments[fragment_id][0] == source:
                return fragments[fragment_id][1:]
        return None

    def inventory(self) -> Inventory:
        made = inventory(self.files, *self.snapshots(), older_than=self.older_than)
        return dataclasses.replace(made, records=self.records, states=self.states, jobs=self.jobs)


AGES = st.sampled_from([0.0, 3600.0, 2 * DAY, 6 * DAY, 8 * DAY, 100 * DAY])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = World(draw(st.sampled_from(NAMES)), older_than=draw(st.sampled_from([0.0, 3600.0, DAY, 7 * DAY])))
    for _ in range(draw(st.integers(1, 3))):
        world.history.append(_fragments(draw, world))
    for n in range(draw(st.integers(0, 6))):
        draw(st.sampled_from([_checkpoint, _record, _column_file]))(draw, world, n)
    for _ in range(draw(st.integers(0, 2))):
        column = draw(st.sampled_from(["y", "other"]))
        world.jobs.append(OpenJob("job", column, NOW - draw(AGES)))
    return world


def _fragments(draw: st.DrawFn, world: World) -> dict[int, tuple[str, str, str]]:
    fragments = {}
    for fragment_id in range(draw(st.integers(0, 2)) + 1):
        source = draw(st.sampled_from(["a.lance", "b.lance"]))
        state = draw(st.sampled_from(["empty", "external", "stale", "partial", "full"]))
        attempt = f"{fragment_id}{len(world.history)}"
        if state == "empty":
            output = ""
        elif state == "external":
            output = f"external{attempt}.lance"
        else:
            version = "0" if state == "stale" else "1"
            output = keys.column_file_name(
                fingerprint(source, world.name, version), attempt, partial=state == "partial"
            )
        if state == "partial":
            start, end = sorted(draw(st.tuples(st.integers(0, ROWS), st.integers(0, ROWS))))
            untouched = (RowRange(start, end),) if start < end else ()
            filters = frozenset(keys.md5(f) for f in draw(st.sets(st.sampled_from(FILTERS[1:]))))
            world.states[output] = PartialStates(untouched, filters)
        fragments[fragment_id] = (source, state, output)
    return fragments


def _key_parts(draw: st.DrawFn, world: World) -> tuple[keys.KeyFamily, str, str, int]:
    kind = draw(st.sampled_from(["own"] * 3 + ["version", "column", "uri"]))
    made = {
        "own": family(world.name),
        "version": family(world.name, "2"),
        "column": family(world.name, column="gone"),
        "uri": family(world.name, uri="/elsewhere/t.lance"),
    }[kind]
    source = draw(st.sampled_from(["a.lance", "b.lance", "c.lance"]))
    return made, draw(st.sampled_from(FILTERS)), source, draw(st.integers(0, 2))


def _own(world: World) -> tuple[keys.KeyFamily, keys.KeyFamily]:
    """Return the families of the column's keys: of today, and from before the table was moved with its folder."""
    return family(world.name), family(world.name, uri="/elsewhere/t.lance")


def _checkpoint(draw: st.DrawFn, world: World, n: int) -> None:
    made, where, source, fragment_id = _key_parts(draw, world)
    start = draw(st.integers(0, ROWS - 1))
    covered = RowRange(start, draw(st.integers(start + 1, ROWS)))
    key = keys.range_key(made.prefix(where, [(X, source)]), fragment_id, covered)
    file = stored(key, draw(AGES), f"c{n}.lance")
    world.files.append(file)
    found = world.newest(source, fragment_id) if made in _own(world) else None
    needed = found is not None and found[0] in ("empty", "external", "stale")
    if found is not None and found[0] == "partial":
        states = world.states[found[1]]
        open_rows = {row for r in states.untouched for row in range(r.start, r.end)}
        needed = bool(open_rows & set(range(*covered))) and keys.md5(where) not in states.filters
    world.needed[file.name] = needed


def _record(draw: st.DrawFn, world: World, n: int) -> None:
    made, where, source, fragment_id = _key_parts(draw, world)
    column_id = draw(st.sampled_from([COLUMN_ID, COLUMN_ID, "dropped"]))
    print_ = fingerprint(source, made.udf_name, made.udf_version, column_id)
    name = keys.column_file_name(print_, f"staged{n}", partial=False)
    file = stored(keys.record_key(made.prefix(where, [(X, source)]), fragment_id), draw(AGES), f"r{n}.lance")
    world.files.append(file)
    world.records[file.name] = record(name, source, column_id, made.udf_name, made.udf_version)
    exists = draw(st.booleans())
    found = world.newest(source, fragment_id) if made in _own(world) else None
    needed = exists and found is not None and found[0] != "full" and column_id == COLUMN_ID
    world.needed[file.name] = needed
    if exists:
        world.files.append(data(name, draw(AGES)))
        world.needed[name] = needed


def _column_file(draw: st.DrawFn, world: World, n: int) -> None:
    """No one's, or one that a version refers to."""
    outputs = sorted(
        {o for fragments in world.history for _, state, o in fragments.values() if state in ("partial", "full")}
    )
    if outputs and draw(st.booleans()):
        name = draw(st.sampled_from(outputs))
        if name not in world.needed:
            world.files.append(data(name, draw(AGES)))
            world.needed[name] = True
        return
    name = keys.column_file_name(fingerprint("a.lance"), f"lost{n}", partial=draw(st.booleans()))
    world.files.append(data(name, draw(AGES)))
    world.needed[name] = False
