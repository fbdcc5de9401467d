"""What a view must hold, and which rows may cost a call, in plain Python. Knows nothing of Lance's filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Row = dict[str, int | None]


@dataclass
class SourceRow:
    """A row of the source. `stamp` changes whenever the row is rewritten, that in `columns` when the column is
    rewritten in its fragment: a view that reads the column has to compute the row again then, and only then."""

    values: Row
    stamp: int
    columns: dict[str, int] = field(default_factory=dict)

    def same(self, other: SourceRow, columns: frozenset[str]) -> bool:
        """For a view that reads these columns."""
        return self.stamp == other.stamp and all(self.columns.get(c) == other.columns.get(c) for c in columns)


@dataclass
class State:
    """One version of the source: row id → row."""

    rows: dict[int, SourceRow] = field(default_factory=dict)

    def copy(self) -> State:
        return State({i: SourceRow(dict(r.values), r.stamp, dict(r.columns)) for i, r in self.rows.items()})


@dataclass(frozen=True)
class Shape:
    """A view: its filter in SQL and in Python, its columns, its function."""

    name: str
    where: str
    matches: Callable[[Row], bool]
    columns: dict[str, tuple[str, Callable[[Row], int | None]]]
    reads: frozenset[str]
    #: Columns that the function is given.
    given: tuple[str, ...] = ()
    function: tuple[str, Callable[[Row], int | None]] | None = None
    shuffle: bool = False
    limit: int | None = None
    offset: int = 0

    def ids(self, state: State) -> list[int]:
        """Row ids in the view, ascending."""
        found = sorted(i for i, r in state.rows.items() if self.matches(r.values))
        end = None if self.limit is None else self.offset + self.limit
        return found[self.offset : end]

    def row(self, values: Row) -> Row:
        made = {name: compute(values) for name, (_, compute) in self.columns.items()}
        if self.function is not None:
            made[self.function[0]] = self.function[1](values)
        return made


@dataclass(frozen=True)
class Expected:
    """What a refresh has to do."""

    rows: dict[int, Row]
    added: frozenset[int]
    recomputed: frozenset[int]
    evicted: frozenset[int]

    @property
    def evaluated(self) -> list[int]:
        return sorted(self.added | self.recomputed)


def expect(shape: Shape, before: State | None, after: State) -> Expected:
    """From one version of the source to another. `before` None: the view was never filled."""
    now = shape.ids(after)
    old = [] if before is None else shape.ids(before)
    stayed = set(now) & set(old)
    changed = {i for i in stayed if before is not None and not before.rows[i].same(after.rows[i], shape.reads)}
    return Expected(
        rows={i: shape.row(after.rows[i].values) for i in now},
        added=frozenset(set(now) - set(old)),
        recomputed=frozenset(changed),
        evicted=frozenset(set(old) - set(now)),
    )


def order_holds(before: Sequence[int], after: Sequence[int], added: frozenset[int]) -> bool:
    """Rows that stayed keep their order, and new ones come behind them."""
    kept = [i for i in before if i in set(after)]
    return list(after[: len(kept)]) == kept and set(after[len(kept) :]) == set(added)
