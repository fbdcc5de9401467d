"""The parameters of a backfill."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict

from leman._wire_values import ref
from leman.errors import InvalidArgument
from leman.v1 import catalog_pb2, planner_pb2, udf_pb2

OnStaleInput = Literal["error", "warn", "first"]
"""What a backfill or a refresh does about inputs that are not current, see `BackfillParameters`."""


class BackfillParameters(TypedDict, total=False):
    """What `Table.backfill` and its kin take by name; None is the same as not given.

    - `where`: compute only rows for which this SQL expression is true; the others keep their values.
    - `read_version`: compute from this version of the table, a number or a tag's name: its rows, with the values that
      they had then. Where inputs have moved on since, the next run without it makes the values current. Default: the
      latest.
    - `concurrency`: worker processes at the most. Default: one for each task slot.
    - `intra_applier_concurrency`: threads in each worker process that call the function at the same time,
      which then has to allow that. Default: one. At most `concurrency` times as many calls run at once.
    - `checkpoint_size`, `min_checkpoint_size`, `max_checkpoint_size`: rows between checkpoints; they
      override what the function asks for. Default: about five seconds of work.
    - `task_size`: rows in a unit of work. Default: chosen from the measured cost.
    - `task_shuffle_diversity`: units of so many fragments are handed out in turn. With 1 one fragment after
      the other is completed. Default: of all, the one with the most rows left next.
    - `commit_granularity`: fragments between commits. Default: about every five seconds, or a tenth of the
      job.
    - `commit_rows`: rows between commits, also of fragments that the job is still computing. Rows that are not
      computed yet are NULL, and `row_states` counts them separately. Not with `where` or `read_version`. Default: the
      job commits whole fragments; after ten seconds without a commit it commits the rows that are checkpointed, and
      doubles that interval each time.
    - `on_stale_input`: what happens where the column reads computed columns (or these read others) that are stale or
      not computed yet. `"error"`, the default: the job is refused (InputColumnStale), as it would compute from values
      that are not right, or not there. `"first"`: it computes these first, all their rows. `"warn"`: it computes from
      what is there, with a warning; once the inputs are computed, these values are stale.
    - `num_frags`: compute at most this many fragments, for a sample run. Default: all.
    - `optimize_indices`: once the values are in the table, bring the indexes on the column up to date, as
      `Table.optimize_indices` does. Default: no; `Job.stale_indices` says which leave rows out.
    """

    where: str | None
    read_version: int | str | None
    concurrency: int | None
    intra_applier_concurrency: int | None
    checkpoint_size: int | None
    min_checkpoint_size: int | None
    max_checkpoint_size: int | None
    task_size: int | None
    task_shuffle_diversity: int | None
    commit_granularity: int | None
    commit_rows: int | None
    num_frags: int | None
    optimize_indices: bool | None
    on_stale_input: OnStaleInput | None


@dataclass(frozen=True, slots=True)
class BackfillOptions:
    """`BackfillParameters`, checked. Raises InvalidArgument (a ValueError)."""

    where: str | None = None
    read_version: int | str | None = None
    concurrency: int | None = None
    intra_applier_concurrency: int | None = None
    checkpoint_size: int | None = None
    min_checkpoint_size: int | None = None
    max_checkpoint_size: int | None = None
    task_size: int | None = None
    task_shuffle_diversity: int | None = None
    commit_granularity: int | None = None
    commit_rows: int | None = None
    num_frags: int | None = None
    optimize_indices: bool | None = None
    on_stale_input: OnStaleInput | None = None

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> BackfillOptions:
        """Raises TypeError for a name that is not among them."""
        names = [field.name for field in fields(cls)]
        for name in parameters:
            if name not in names:
                close = difflib.get_close_matches(name, names, 1)
                hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"
                raise TypeError(f"a backfill has no parameter {name!r}: {hint}")
        return cls(**parameters)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            tag = field.name == "read_version" and isinstance(value, str) and value.strip()
            if value is not None and field.name not in _NO_COUNTS and not tag:
                _check_count(field.name, value)
        if self.optimize_indices not in (None, True, False):
            raise InvalidArgument(f"optimize_indices is True or False, not {self.optimize_indices!r}")
        on_stale_input_to_wire(self.on_stale_input)
        check_where(self.where)
        smallest, largest = self.min_checkpoint_size, self.max_checkpoint_size
        if smallest is not None and largest is not None and smallest > largest:
            raise InvalidArgument(f"min_checkpoint_size ({smallest}) is above max_checkpoint_size ({largest})")

    def spec(
        self, table: catalog_pb2.TableRef, column: str, udf_name: str, udf_version: str
    ) -> planner_pb2.BackfillSpec:
        """The parameters on the wire; what is not given is left out."""
        spec = planner_pb2.BackfillSpec(
            table=table,
            column=column,
            udf=ref(udf_name, udf_version) if udf_name else None,
            where=self.where or "",
            concurrency=self.concurrency,
            intra_applier_concurrency=self.intra_applier_concurrency,
            checkpoint=udf_pb2.CheckpointBounds(
                checkpoint_size=self.checkpoint_size,
                min_checkpoint_size=self.min_checkpoint_size,
                max_checkpoint_size=self.max_checkpoint_size,
            ),
            task_size=self.task_size,
            task_shuffle_diversity=self.task_shuffle_diversity,
            commit_granularity=self.commit_granularity,
            commit_rows=self.commit_rows,
            num_frags=self.num_frags,
            optimize_indices=bool(self.optimize_indices),
            on_stale_input=on_stale_input_to_wire(self.on_stale_input),
        )
        if isinstance(self.read_version, int):
            spec.read_version = self.read_version
        elif self.read_version is not None:
            spec.read_tag = self.read_version
        return spec


def on_stale_input_to_wire(value: object) -> planner_pb2.OnStaleInput.ValueType:
    """The word on the wire; None leaves it to the service. Raises InvalidArgument."""
    if value is None:
        return planner_pb2.ON_STALE_INPUT_UNSPECIFIED
    found = _ON_STALE_INPUT.get(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidArgument(f"on_stale_input is 'error', 'warn' or 'first', not {value!r}")
    return found


_NO_COUNTS = ("where", "optimize_indices", "on_stale_input")
_ON_STALE_INPUT = {
    "error": planner_pb2.ON_STALE_INPUT_ERROR,
    "warn": planner_pb2.ON_STALE_INPUT_WARN,
    "first": planner_pb2.ON_STALE_INPUT_FIRST,
}
_INT32 = (
    "concurrency",
    "intra_applier_concurrency",
    "task_shuffle_diversity",
    "commit_granularity",
    "num_frags",
)


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"{name} is a whole number, 1 or more, not {value!r}", facts={"field": name})
    if value >= 1 << (31 if name in _INT32 else 63):
        raise InvalidArgument(f"{name}={value} is too large", facts={"field": name})


def check_where(where: Any) -> None:
    """Raise InvalidArgument unless it may be a SQL expression, or is None."""
    if where is not None and (not isinstance(where, str) or not where.strip()):
        raise InvalidArgument(f'where is a SQL expression such as "size > 10", not {where!r}', facts={"field": "where"})
