"""Refreshes of a view of SQL after a thousandth of its source's rows was deleted: scattered over all fragments, and
from one place. Half of the rows are in the view.

What has to be done does not grow with the table: run it with `--rows` of 1, 10 and 50 million.
"""

from __future__ import annotations

import time

import lance

from benchmarks.common import Document, Options, Target, figures, options_of, report, say, scratch
from benchmarks.leman_side import Caller, running
from benchmarks.practical_limit import even, make_table
from benchmarks.view_side import KEPT, refresh

_SHARE = 1000
_VIEW = {"x": "x", "y": "x * 2"}


def scattered(rows: int, number: int) -> str:
    """One row of each thousand."""
    del rows
    return f"x % {_SHARE} = {2 * number}"


def together(rows: int, number: int) -> str:
    """A thousandth of the rows, one after the other."""
    part = rows // _SHARE
    return f"x >= {(100 + number) * part} AND x < {(101 + number) * part}"


def _measure(caller: Caller, options: Options) -> Document:
    caller.sdk.create_materialized_view("v", caller.sdk.open_table("t").search(None).where(KEPT).select(_VIEW))
    refresh(caller, "v")
    cases: Document = {}
    for kind in (scattered, together):
        seconds = []
        for number in range(options.repetitions + 1):
            lance.dataset(caller.uri("t")).delete(kind(options.rows, number))
            time.sleep(0.5)  # what a job leaves to be done after its end
            run = refresh(caller, "v")
            if number:
                seconds.append(run.seconds)
            say(f"{kind.__name__} {number} of {options.repetitions}: {run.seconds:.3f} s, {run.job.plan_summary}")
        cases[kind.__name__] = figures(seconds)
    live = lance.dataset(caller.uri("v")).count_rows()
    if live != lance.dataset(caller.uri("t")).count_rows(KEPT):
        raise RuntimeError(f"the view has {live} rows")
    return cases


def main() -> None:
    options = options_of(__doc__ or "", rows=10_000_000)
    with scratch(options) as folder, running(folder / "lake") as caller:
        make_table(caller.uri("t"), even(options.rows, options.fragments))
        cases = _measure(caller, options)
    targets = [Target(f"{name} ≤ 0.3 s", case["median"], 0.3) for name, case in cases.items()]
    report("view_deletes", options, targets, cases=cases)


if __name__ == "__main__":
    main()
