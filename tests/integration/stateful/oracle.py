"""What the table must hold and which rows a backfill may evaluate. Pure Python: knows no Lance and no Leman.

Data files are tokens: a number for each file that Lance would write, 0 where a fragment has none. Rows are known by
their id. Its rules are those of docs/architecture.md and of the decision records.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

Value = int | None
Row = dict[int, Value]  # by column identity
Layout = Mapping[int, Collection[int]]  # fragment → ids of live rows

#: Whether compaction leaves computed values current. While it does not, rows of a compacted fragment are stale.
COMPACTION_IS_FREE = True

ID, X, Z = 0, 1, 2
#: How the oracle calls what was migrated, before the fragment and the key from where.
_MIGRATED = "migrated from "


@dataclass(frozen=True)
class Column:
    """A column by identity: renaming keeps it, dropping and adding again does not."""

    identity: int
    function: str = ""
    version: int = 0
    inputs: tuple[tuple[str, int], ...] = ()  # (name when added, identity)
    added_as: str = ""


@dataclass(frozen=True)
class Fingerprint:
    """What the values of a file were computed with."""

    column: int
    version: int
    inputs: tuple[tuple[int, int], ...]  # (column identity, token)


@dataclass
class File:
    """A computed column's file in a fragment. `settled`: ids of rows that were computed or failed; `migrated`: the same
    by fingerprint, where compaction made the file."""

    fingerprint: Fingerprint | None
    settled: set[int] = field(default_factory=set)
    migrated: dict[Fingerprint, set[int]] = field(default_factory=dict)

    def known(self, fingerprint: Fingerprint) -> set[int]:
        """Ids of the rows that are settled for that fingerprint."""
        return self.settled if self.fingerprint == fingerprint else self.migrated.get(fingerprint, set())


@dataclass
class Fragment:
    """`tokens` and `files` by column identity. `made_of`: the fragments that a compaction made it of, by number."""

    live: set[int]
    tokens: dict[int, int]
    files: dict[int, File] = field(default_factory=dict)
    made_of: dict[int, Fragment] = field(default_factory=dict)

    def token(self, column: int) -> int:
        return self.tokens.get(column, 0)


@dataclass
class State:
    """One version of the table."""

    columns: dict[str, Column]
    rows: dict[int, Row]
    fragments: dict[int, Fragment]
    #: What the computed values of rows were computed with: by id and column identity, the version and the arguments.
    origins: dict[tuple[int, int], tuple[int, tuple[Value, ...]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Where:
    """A filter: its text, the columns it reads, and what it says."""

    text: str = ""
    reads: tuple[str, ...] = ()
    matches: Callable[[Mapping[str, Value]], bool] = lambda _: True


@dataclass(frozen=True)
class Slot:
    """What checkpoints of one fragment share, whatever their filter. `tokens`: (column identity, token) of inputs."""

    function: str
    version: int
    column: str
    tokens: tuple[tuple[int, int], ...]
    fragment: int


@dataclass(frozen=True)
class Asked:
    """One fragment's part of a plan, as it was when the plan was made."""

    fragment: int
    fingerprint: Fingerprint
    target: int
    live: frozenset[int]
    asked: frozenset[int]
    known: frozenset[int]
    needed: frozenset[int]
    optional: frozenset[int]
    slot: Slot
    where: tuple[object, ...]
    #: Live rows whose values may be kept, asked for or not.
    spared: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Staged:
    """A finished file with its record. `spared`: rows that it may have besides, as their values were kept."""

    fingerprint: Fingerprint
    target: int
    live: frozenset[int]
    asked: frozenset[int]
    settled: frozenset[int]
    key: str = ""
    spared: frozenset[int] = frozenset()


class Oracle:
    """The table as it must be, and everything that earlier runs left behind."""

    def __init__(self, values: Callable[[str, int, int, Value], tuple[Value, bool]]) -> None:
        self._values = values
        self._numbers = itertools.count(1)
        self.state = State({}, {}, {})
        self.versions: dict[int, State] = {}
        self.broken: set[int] = set()  # fragments whose staged file is damaged
        self._stored: dict[Slot, dict[str, frozenset[int]]] = {}
        self._loose: dict[Slot, dict[str, frozenset[int]]] = {}
        self._handed_on: dict[Slot, dict[str, frozenset[int]]] = {}  # what was migrated: from link to link
        self._spoiled: dict[Slot, set[int]] = {}  # rows that damaged checkpoints had: others may have them, unused
        self._records: dict[tuple[Slot, tuple[object, ...]], Staged] = {}
        self._installed: dict[str, int] = {}  # token of each column file, by its name
        #: What was ever computed: by id and column identity, the version and the arguments.
        self._computed: set[tuple[int, int, int, tuple[Value, ...]]] = set()
        self._of_retries: set[tuple[str, tuple[object, ...]]] = set()  # (checkpoint key, what it was written under)

    # what happens to the table

    def create(self, rows: Mapping[int, Row], layout: Layout) -> None:
        """A new table, or an overwritten one: every file is new, no column is computed."""
        self.state = State({"id": Column(ID), "x": Column(X), "z": Column(Z)}, {}, {})
        self.append(rows, layout)

    def append(self, rows: Mapping[int, Row], layout: Layout) -> None:
        self.state.rows.update({i: dict(row) for i, row in rows.items()})
        self._settle(layout, set(rows))

    def delete(self, ids: Collection[int], layout: Layout) -> None:
        for i in ids:
            del self.state.rows[i]
        self.state.origins = {at: origin for at, origin in self.state.origins.items() if at[0] in self.state.rows}
        self._settle(layout, set())

    def move(self, changes: Mapping[int, Row], layout: Layout) -> None:
        """Update or merge: the rows go to new fragments, all columns of them."""
        for i, row in changes.items():
            self.state.rows.setdefault(i, {}).update(row)
        self._settle(layout, set(changes))

    def rewrite(self, fragment: int, column: int, change: Callable[[int, Value], Value]) -> None:
        """A column of a fragment is rewritten, in place."""
        found = self.state.fragments[fragment]
        for i in found.live:
            self.state.rows[i][column] = change(i, self.state.rows[i].get(column))
            self.state.origins.pop((i, column), None)
        found.tokens[column] = next(self._numbers)
        if column in found.files:
            found.files[column] = File(None)

    def compact(self, layout: Layout) -> None:
        before = self.state.fragments
        moved = {i for f, ids in layout.items() if f not in before for i in ids}
        self._settle(layout, moved, compacted=True)
        if COMPACTION_IS_FREE:
            for number in layout.keys() - before.keys():
                made = self.state.fragments[number]
                self._migrate(before, made)
                made.made_of = {n: f for n, f in before.items() if n not in layout}

    def _migrate_stored(self, number: int, made: Fragment) -> None:
        """What was stored for the rows of fragments that compaction took away is migrated, also where it was stored
        after the compaction, between two restores."""
        gone = made.made_of
        for n, old_one in gone.items():
            self._migrate_stored(n, old_one)
        files = [(slot, f"file {where}", s.settled | s.spared) for (slot, where), s in self._records.items()]
        known = [*self._stored.items(), *self._handed_on.items()]
        stored = [(slot, key, ids) for slot, by_key in known for key, ids in by_key.items()]
        for slot, key, ids in [*stored, *files]:
            old = gone.get(slot.fragment)
            if old is None or slot.fragment in self.broken or any(old.token(i) != t for i, t in slot.tokens):
                continue
            now = replace(slot, fragment=number, tokens=tuple((i, made.token(i)) for i, _ in slot.tokens))
            self._migrated(now, f"{_MIGRATED}{slot.fragment} {key}", ids & made.live & old.live)

    def _migrated(self, slot: Slot, key: str, ids: Collection[int]) -> None:
        """Rows that may be migrated: they may be evaluated, or not. Tests of checkpoint migration say it exactly."""
        for known in (self._loose.setdefault(_loose(slot), {}), self._handed_on.setdefault(slot, {})):
            known[key] = known.get(key, frozenset[int]()).union(ids)

    def _know(self, slot: Slot, key: str, ids: Collection[int]) -> None:
        self._stored.setdefault(slot, {})[key] = frozenset(ids)
        self._loose.setdefault(_loose(slot), {})[key] = frozenset(ids)

    def _migrate(self, before: Mapping[int, Fragment], made: Fragment) -> None:
        """What was known of the rows of a compacted fragment is known still, of the same inputs in new files."""
        for old in before.values():
            for identity, file in old.files.items():
                here = made.live & old.live  # other rows of the old file have moved away before
                known = {f: ids & here for f, ids in file.migrated.items()}
                if file.fingerprint is not None:
                    known[file.fingerprint] = file.settled & here
                for fingerprint, ids in known.items():
                    if ids and all(old.token(i) == token for i, token in fingerprint.inputs):
                        inputs = tuple((i, made.token(i)) for i, _ in fingerprint.inputs)
                        migrated = made.files.setdefault(identity, File(None)).migrated
                        migrated.setdefault(replace(fingerprint, inputs=inputs), set()).update(ids)

    def restore(self, version: int) -> None:
        self.state = copy.deepcopy(self.versions[version])

    def remember(self, version: int) -> None:
        """The state as a version that can be restored."""
        self.versions[version] = copy.deepcopy(self.state)

    def add_column(self, name: str, function: str, version: int, inputs: tuple[str, ...]) -> None:
        bound = tuple((n, self.state.columns[n].identity) for n in inputs)
        self.state.columns[name] = Column(next(self._numbers) + 100, function, version, bound, name)

    def drop_column(self, name: str) -> None:
        gone = self.state.columns.pop(name).identity
        for fragment in self.state.fragments.values():
            fragment.tokens.pop(gone, None)
            fragment.files.pop(gone, None)
        for i, row in self.state.rows.items():
            row.pop(gone, None)
            self.state.origins.pop((i, gone), None)

    def rename(self, old: str, new: str) -> None:
        columns = self.state.columns
        self.state.columns = {new if n == old else n: c for n, c in columns.items()}

    def _settle(self, layout: Layout, moved: set[int], *, compacted: bool = False) -> None:
        """Takes over which row is in which fragment. Fragments that are new hold `moved` rows only."""
        before, after = self.state.fragments, {}
        for number, ids in layout.items():
            old = before.get(number)
            if old is not None:
                assert set(ids) <= old.live, "rows came into a fragment that was there already"
                old.live = set(ids)
                after[number] = old
            else:
                assert set(ids) <= moved, "rows moved that no one touched"
                after[number] = self._new_fragment(set(ids), before, compacted=compacted)
        self.state.fragments = after

    def _new_fragment(self, ids: set[int], before: Mapping[int, Fragment], *, compacted: bool) -> Fragment:
        token = next(self._numbers)
        made = Fragment(ids, {})
        for column in self.state.columns.values():
            held = {i for i in ids if column.identity in self.state.rows[i]}
            if column.function and not held and not compacted:
                continue
            made.tokens[column.identity] = token
            if column.function:
                made.files[column.identity] = File(None)
        return made

    # what is to be read

    def row(self, i: int) -> dict[str, Value]:
        return {name: self.state.rows[i].get(c.identity) for name, c in self.state.columns.items()}

    def table(self) -> dict[int, dict[str, Value]]:
        return {i: self.row(i) for i in self.state.rows}

    # backfills

    def plan(self, name: str, version: int, where: Where) -> dict[int, Asked]:
        """What a backfill finds, by fragment with live rows. `version` 0: the column's own function."""
        column = self.state.columns[name]
        inputs = self.input_identities(name)
        return {
            number: self._ask(column, version or column.version, inputs, where, number, fragment)
            for number, fragment in self.state.fragments.items()
            if fragment.live
        }

    def input_identities(self, name: str) -> tuple[int, ...]:
        """Inputs by identity, or by name where the column of that identity is gone. Raises KeyError."""
        known = {c.identity for c in self.state.columns.values()}
        bound = self.state.columns[name].inputs
        return tuple(i if i in known else self.state.columns[n].identity for n, i in bound)

    def _ask(
        self,
        column: Column,
        version: int,
        inputs: tuple[int, ...],
        where: Where,
        number: int,
        fragment: Fragment,
    ) -> Asked:
        tokens = tuple((i, fragment.token(i)) for i in inputs)
        fingerprint = Fingerprint(column.identity, version, tokens)
        target = fragment.token(column.identity)
        file = fragment.files.get(column.identity)
        settled = file.known(fingerprint) & fragment.live if file is not None else set()
        asked = {i for i in fragment.live if where.matches(self.row(i))}
        slot = Slot(column.function, version, column.added_as, tokens, number)
        self._migrate_stored(number, fragment)
        own = {column.identity, *inputs}
        read = sorted({self.state.columns[n].identity for n in where.reads} - own)
        where_id = (where.text, tuple((i, fragment.token(i)) for i in read)) if where.text else ()
        staged = self._usable(slot, where_id, fingerprint, target, fragment.live)
        if staged is None and not (file is not None and (file.fingerprint == fingerprint or file.known(fingerprint))):
            self._migrate_replaced(slot)
        stored = {i for ids in self._stored.get(slot, {}).values() for i in ids}
        needed = asked - settled - stored
        optional = needed & {i for ids in self._loose.get(_loose(slot), {}).values() for i in ids}
        spared = self._spared(fingerprint, fragment)
        optional |= needed & (spared | self._had_before(fingerprint, fragment))
        optional |= (asked - settled) & self._spoiled.get(slot, set())
        needed -= optional
        if staged is not None:
            needed, optional = set[int](), set[int]()  # only to be installed, or refused where rows came back
        return Asked(
            number,
            fingerprint,
            target,
            frozenset(fragment.live) if staged is None else staged.live,
            frozenset(asked),
            frozenset(settled),
            frozenset(needed),
            frozenset(optional),
            slot,
            where_id,
            frozenset(spared),
        )

    def _spared(self, fingerprint: Fingerprint, fragment: Fragment) -> set[int]:
        """Rows whose value was computed by that version with the arguments that they have now: it may be kept."""
        return {
            i
            for i in fragment.live
            if self.state.origins.get((i, fingerprint.column)) == (fingerprint.version, self._arguments(fingerprint, i))
        }

    def _had_before(self, fingerprint: Fingerprint, fragment: Fragment) -> set[int]:
        """Rows whose value others overwrote, or another version of the function replaced, and which had in an earlier
        version of the table what is to be computed: it may be taken from there."""
        column, version = fingerprint.column, fingerprint.version
        return {
            i
            for i in fragment.live
            if self.state.origins.get((i, column), (None,))[0] != version
            and (i, column, version, self._arguments(fingerprint, i)) in self._computed
        }

    def _arguments(self, fingerprint: Fingerprint, i: int) -> tuple[Value, ...]:
        return tuple(self.state.rows[i].get(identity) for identity, _ in fingerprint.inputs)

    def _migrate_replaced(self, slot: Slot) -> None:
        """Files whose place another one took, or that were made for a column of the same name that is gone; also where
        an input is another column now, and neither has any file."""
        for (at, where), staged in list(self._records.items()):
            if _loose(at) == _loose(slot) and slot.fragment not in self.broken:
                self._migrated(slot, f"{_MIGRATED}{slot.fragment} file {where}", staged.settled | staged.spared)

    def plan_failed(self, name: str) -> dict[int, Asked]:
        """What a retry finds: failed rows are asked for and no others. Other files' checkpoints say nothing."""
        parts = {}
        for number, plain in self.plan(name, 0, Where()).items():
            fragment = self.state.fragments[number]
            failed = frozenset(i for i in plain.known if self._fails(name, plain, i))
            spared = self._spared(plain.fingerprint, fragment) - plain.known
            perhaps = frozenset(i for i in spared if self._fails(name, plain, i))
            under = ("failed", plain.target)
            stored = {
                i
                for key, ids in self._stored.get(plain.slot, {}).items()
                if (key, under) in self._of_retries
                for i in ids
            }
            live = frozenset(fragment.live)
            staged = self._usable(plain.slot, under, plain.fingerprint, plain.target, fragment.live)
            part = replace(
                plain, asked=failed | perhaps, needed=failed - stored, optional=perhaps, where=under, live=live
            )
            nothing: frozenset[int] = frozenset()
            parts[number] = (
                part if staged is None else replace(part, needed=nothing, optional=nothing, live=staged.live)
            )
        return parts

    def _fails(self, name: str, part: Asked, i: int) -> bool:
        arguments = self._arguments(part.fingerprint, i)
        return self._values(self.state.columns[name].function, part.fingerprint.version, i, arguments[1])[1]

    def _usable(
        self, slot: Slot, where: tuple[object, ...], fingerprint: Fingerprint, target: int, live: set[int]
    ) -> Staged | None:
        found = []
        for (at, under), staged in self._records.items():
            if at != slot or staged.fingerprint != fingerprint or staged.target != target:
                continue
            if (under == where) if where else (staged.live <= staged.settled):
                found.append(staged)
        return max(found, key=lambda s: len(s.settled), default=None)

    def stored(self, part: Asked, key: str, ids: Collection[int]) -> None:
        """A checkpoint was written."""
        self._of_retries.add((key, part.where))
        self._know(part.slot, key, ids)

    def damaged(self, key: str, fragment: int) -> None:
        """A checkpoint was damaged: its rows are not known any more, unless they were migrated before. Others of
        the fragment may hold them, or may have been left aside for the one that was damaged."""
        for slot, by_key in self._stored.items():
            if slot.fragment == fragment:
                self._spoiled.setdefault(slot, set()).update(*by_key.values())
                by_key.pop(key, None)

    def may_begin_again(self, part: Asked) -> bool:
        """Whether a pass over the fragment may come upon a damaged checkpoint: it starts again then, and evaluates rows
        again that a restore brought back and no checkpoint has."""
        return part.slot in self._spoiled

    def staged(self, part: Asked, key: str = "") -> None:
        """A column file and its record were written."""
        self._records[part.slot, part.where] = Staged(
            part.fingerprint, part.target, part.live, part.asked, part.asked | part.known, key, part.spared
        )

    def cleaned(self, gone: Collection[str]) -> None:
        """All versions but the latest are gone, and with them the files of the records with these keys."""
        self.versions = {}
        self._records = {at: staged for at, staged in self._records.items() if staged.key not in gone}

    def told(self, name: str, version: int, ids: Collection[int]) -> None:
        """Which rows count as settled for a version of a column's function, as far as can be known after a cleaning.
        Those of a compacted file may have been forgotten; none may have been made up."""
        inputs = self.input_identities(name)
        for fragment in self.state.fragments.values():
            fingerprint = Fingerprint(
                self.state.columns[name].identity, version, tuple((i, fragment.token(i)) for i in inputs)
            )
            file = fragment.files.get(fingerprint.column)
            known = file.known(fingerprint) & fragment.live if file is not None else set()
            found = fragment.live.intersection(ids)
            spared = self._spared(fingerprint, fragment)
            assert found <= known | spared, f"taken for computed: {sorted(found - known - spared)}"
            if file is not None and file.fingerprint != fingerprint:
                file.migrated[fingerprint] = found
            else:
                assert known <= found, f"forgotten: {sorted(known - found)}"

    def forget(self, part: Asked) -> None:
        """The record of a file that was refused for what it holds is gone."""
        gone = [key for key, s in self._records.items() if key[0] == part.slot and s.live == part.live]
        for key in gone:
            del self._records[key]
        self.broken.discard(part.fragment)

    def may_commit(self, name: str, part: Asked) -> bool:
        """Whether a file that was made for that part may be installed now."""
        column = self.state.columns.get(name)
        fragment = self.state.fragments.get(part.fragment)
        if part.fragment in self.broken or column is None or fragment is None:
            return False
        if column.identity != part.fingerprint.column:
            return False
        same = all(fragment.token(i) == token for i, token in part.fingerprint.inputs)
        return same and fragment.token(column.identity) == part.target and fragment.live <= part.live

    def is_current(self, part: Asked) -> bool:
        """Whether the fragment holds all values of that fingerprint."""
        fragment = self.state.fragments[part.fragment]
        file = fragment.files.get(part.fingerprint.column)
        return file is not None and fragment.live <= file.known(part.fingerprint)

    def committed(self, part: Asked, name: str) -> None:
        """The file of that name was installed for that part: perhaps one that a restore had taken away before."""
        column = next(c for c in self.state.columns.values() if c.identity == part.fingerprint.column)
        fragment = self.state.fragments[part.fragment]
        file = fragment.files.get(column.identity)
        known = file.known(part.fingerprint) if file is not None else set()
        made = File(part.fingerprint)
        for i in fragment.live:
            if i in known:
                made.settled.add(i)
            elif i in part.asked:
                made.settled.add(i)
                arguments = self._arguments(part.fingerprint, i)
                value, _ = self._values(column.function, part.fingerprint.version, i, arguments[1])
                self.state.rows[i][column.identity] = value
                self.state.origins[i, column.identity] = part.fingerprint.version, arguments
                self._computed.add((i, column.identity, part.fingerprint.version, arguments))
        fragment.files[column.identity] = made
        fragment.tokens[column.identity] = self._installed.setdefault(name, next(self._numbers))


def _loose(slot: Slot) -> Slot:
    """An input without any file is all NULL, whichever column of that name it is: values may be known from another."""
    return replace(slot, tokens=tuple((identity if token else 0, token) for identity, token in slot.tokens))
